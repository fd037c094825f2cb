"""Debit and credit: one producer writes both in one transaction, to two topics, and aborts every other one; readers of
both, at any moment, never see one without the other, nor an aborted one.
"""
import threading

from confluent_kafka import Consumer, KafkaError, KafkaException, OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS, PATIENCE_S = 3, 60
TOPICS = ("debit", "credit")


class Side:
    """What a read-committed reader has seen of one topic."""

    def __init__(self, server, topic, complain):
        self.topic, self.complain, self.seen, self.next = topic, complain, set(), [OFFSET_BEGINNING] * PARTITIONS
        self.consumer = Consumer(server | {"group.id": "debit-credit", "enable.auto.commit": False, "fetch.wait.max.ms": 20,
                                           "isolation.level": "read_committed", "enable.partition.eof": True})

    def begin(self):
        """Fetches that were under way count no more."""
        self.consumer.assign([TopicPartition(self.topic, partition, at) for partition, at in enumerate(self.next)])

    def poll(self):
        """A number that is new; or the partition, as `-1 - partition`, whose end was reached; or nothing."""
        message = self.consumer.poll(0.1)
        if message is None:
            return None
        if message.error():
            return -1 - message.partition() if message.error().code() == KafkaError._PARTITION_EOF else None
        number = int(message.value())
        if number % 2:
            self.complain(f"{self.topic} {number}, which is aborted")
        if number in self.seen:
            self.complain(f"{self.topic} {number} twice")
        self.seen.add(number)
        self.next[message.partition()] = message.offset() + 1
        return number

    def to_the_end(self, stop):
        """All that is committed when this begins, whatever was fetched before."""
        self.begin()
        ended = set()
        while len(ended) < PARTITIONS and not stop.is_set():
            number = self.poll()
            if number is not None and number < 0:
                ended.add(number)


class Watcher(threading.Thread):
    """Whatever it sees on one side must be seen on the other by fetches that begin later."""

    def __init__(self, server, first, second, stop, complain):
        super().__init__(daemon=True)
        self.first, self.second = Side(server, first, complain), Side(server, second, complain)
        self.stop, self.complain, self.checked = stop, complain, 0

    def run(self):
        self.first.begin()
        while not self.stop.is_set():
            number = self.first.poll()
            if number is None or number < 0 or number in self.second.seen:
                continue
            self.second.to_the_end(self.stop)
            self.checked += 1
            if number not in self.second.seen and not self.stop.is_set():
                self.complain(f"{self.first.topic} {number} without {self.second.topic}")


class DebitCredit:
    def __init__(self, server, complain):
        self.server, self.complain, self.stop, self.ended = server, complain, threading.Event(), threading.Event()
        self.committed, self.aborted, self.refused = [], 0, 0
        self.watchers = [Watcher(server, *pair, self.ended, complain) for pair in (TOPICS, TOPICS[::-1])]
        self.writer = threading.Thread(target=self.write, daemon=True)

    def start(self):
        topics = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1) for topic in TOPICS]
        admin = AdminClient(self.server)
        for future in admin.create_topics(topics).values():
            future.result(30)
        for thread in (*self.watchers, self.writer):
            thread.start()

    @staticmethod
    def insist(call, *words):
        """Calls again what may be called again."""
        while True:
            try:
                return call(*words)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def transfer(self, producer, number):
        producer.begin_transaction()
        producer.produce("debit", value=str(number), partition=number % PARTITIONS)
        producer.produce("credit", value=str(number), partition=(number + 1) % PARTITIONS)
        if number % 2:
            producer.flush(PATIENCE_S)
            self.insist(producer.abort_transaction, PATIENCE_S)
            self.aborted += 1
            return
        try:
            self.insist(producer.commit_transaction, PATIENCE_S)
            self.committed.append(number)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.insist(producer.abort_transaction, PATIENCE_S)
            self.refused += 1

    def write(self):
        # Why the last: see copier_confluent.py.
        producer = Producer(self.server | {"transactional.id": "debit-credit", "linger.ms": 1,
                                           "metadata.recovery.strategy": "none"})
        try:
            self.insist(producer.init_transactions, PATIENCE_S)
            number = 0
            while not self.stop.wait(0.01):
                self.transfer(producer, number)
                number += 1
        except KafkaException as error:
            self.complain(f"debit and credit: the producer failed: {error}")

    def finish(self):
        self.stop.set()
        self.writer.join(PATIENCE_S)
        self.ended.set()
        for watcher in self.watchers:
            watcher.join(PATIENCE_S)
        if any(thread.is_alive() for thread in (self.writer, *self.watchers)):
            self.complain("debit and credit: a client hangs")
        go_on = threading.Event()
        for topic in TOPICS:
            side = Side(self.server, topic, self.complain)
            side.to_the_end(go_on)
            if side.seen != set(self.committed):
                self.complain(f"{topic}: {sorted(side.seen ^ set(self.committed))[:20]} are there and aborted, or missing")
        checked = [watcher.checked for watcher in self.watchers]
        seen = [len(side.seen) for watcher in self.watchers for side in (watcher.first, watcher.second)]
        return (f"debit and credit: {len(self.committed)} committed, {self.aborted} aborted on purpose, {self.refused} "
                f"otherwise; looked {checked} times for the other side, saw {seen}")
