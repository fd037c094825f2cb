"""Read-process-write over confluent-kafka: copies a topic to another exactly once, until told to end (SIGTERM) or killed.

copier_confluent.py GROUP INPUT OUTPUT TRANSACTIONAL-ID PARTITIONS

A record of partition P goes to partition P + 1. One transaction in ten is aborted on purpose. Says `copied N` behind each
commit, `aborted` behind each abort, and `assigned` at each rebalance. Ends with 3 when its producer is of no use any more.
"""
import os
import random
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

group, source, target, name = sys.argv[1:5]
partitions = int(sys.argv[5])
PATIENCE_S = 30
TIMEOUT_MS = os.environ.get("COPIER_TRANSACTION_MS", "5000")
QUICK = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200,
         "log_level": 0,  # that connections break is meant
         # Else it may drop the only broker while it is down, and with it requests of a transaction, which then hang.
         "metadata.recovery.strategy": "none"}
told, gathered, began, member = [], [], [0.0], [None]


def say(*words):
    print(*words, flush=True)


def insist(call, *words):
    """Calls again what may be called again."""
    while True:
        try:
            return call(*words)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def committed(consumer, partitions):
    """Where the group is, once no transaction holds an offset of it."""
    while True:
        try:
            found = consumer.committed(partitions, PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise
            continue
        for place in found:
            if place.error:
                raise KafkaException(place.error)
            place.offset = max(place.offset, 0)
        return found


def assigned(consumer, partitions):
    """Asks itself where to begin: left to it, librdkafka begins with the first record, in place of what is committed, if
    a rebalance meets an offset that a transaction holds."""
    consumer.assign(committed(consumer, partitions))
    # Asked for when it is thrown out already, this would be nobody's, and what it commits would not be refused.
    member[0] = consumer.consumer_group_metadata()
    say("assigned")


def rewind(consumer):
    """Goes back to what the group has committed."""
    for place in committed(consumer, consumer.assignment()):
        consumer.seek(place)


def gather(consumer):
    """Records that this member still has the partitions of: a rebalance in between takes them away."""
    gathered.clear()
    patience = 0.1
    for _ in range(random.randrange(1, 80)):
        record = consumer.poll(patience)
        if record is None:
            return
        if not record.error():
            gathered.append(record)
            patience = 0.002


def copy(producer, records):
    """Whether the transaction is committed."""
    producer.begin_transaction()
    began[0] = time.monotonic()
    ends = {}
    for record in records:
        producer.produce(target, value=record.value(), partition=(record.partition() + 1) % partitions)
        ends[record.partition()] = record.offset() + 1
    offsets = [TopicPartition(source, partition, end) for partition, end in ends.items()]
    insist(producer.send_offsets_to_transaction, offsets, member[0], PATIENCE_S)
    if random.random() < 0.1:
        producer.flush(PATIENCE_S)
        return False
    insist(producer.commit_transaction, PATIENCE_S)
    return True


def step(consumer, producer):
    gather(consumer)
    if not gathered:
        return
    try:
        done = copy(producer, gathered)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        done = False
    if done:
        say("copied", len(gathered))
        return
    insist(producer.abort_transaction, PATIENCE_S)
    say("aborted")
    rewind(consumer)


def main():
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    producer = Producer(QUICK | {"transactional.id": name, "transaction.timeout.ms": TIMEOUT_MS, "linger.ms": 2,
                                 "message.timeout.ms": TIMEOUT_MS})
    insist(producer.init_transactions, PATIENCE_S)
    consumer = Consumer(QUICK | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                                 "isolation.level": "read_committed", "session.timeout.ms": 3000,
                                 "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50})
    consumer.subscribe([source], on_assign=assigned, on_revoke=lambda *_: gathered.clear(),
                       on_lost=lambda *_: gathered.clear())
    while not told:
        step(consumer, producer)
    consumer.close()


try:
    main()
except KafkaException as failure:
    say(f"ended {time.monotonic() - began[0]:.1f} s after its last transaction began:", failure)
    sys.exit(3)
