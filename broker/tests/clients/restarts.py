"""Clients that go on while the broker is killed under them: nothing acknowledged is missing, and none is started again.
A group of two members of different libraries finds together again each time, and gets everything.

restarts.py PROGRAM DATA-DIRECTORY ROUNDS
"""
import os
import sys
import threading
import time

from confluent_kafka import Consumer, OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from members import Member, changed
from server import QUICK, Broker

TOPIC, PARTITIONS, EACH_ROUND = "restarts", 3, 60
FAILED = []
OPTIONS = ["--group-initial-rebalance-delay-ms", "500", "--group-min-session-timeout-ms", "1000"]


def complain(what):
    FAILED.append(what)
    print("FAIL " + what, flush=True)


class Acknowledged:
    """What was acknowledged, and by which client: value to (partition, offset)."""

    def __init__(self):
        self.places, self.counts, self.changed = {}, {}, threading.Condition()

    def add(self, client, value, partition, offset):
        with self.changed:
            self.places[value] = (partition, offset)
            self.counts[client] = self.counts.get(client, 0) + 1
            self.changed.notify_all()

    def wait_for_more(self, clients):
        """Until each client has got so many more acknowledgements."""
        with self.changed:
            goals = {client: self.counts.get(client, 0) + EACH_ROUND for client in clients}
            done = self.changed.wait_for(lambda: all(self.counts.get(c, 0) >= goals[c] for c in goals), timeout=60)
        if not done:
            sys.exit(f"FAIL a client did not go on within a minute: {self.counts}, wanted {goals}")


def produce_with_confluent(listen, acknowledged, stop):
    producer = Producer({"bootstrap.servers": listen, "acks": "1", "enable.idempotence": False, "linger.ms": 1} | QUICK)

    def delivered(error, message):
        if not error:
            acknowledged.add("confluent", message.value(), message.partition(), message.offset())

    number = 0
    while not stop.is_set():
        producer.produce(TOPIC, value=f"confluent-{number}", partition=number % PARTITIONS, on_delivery=delivered)
        number += 1
        producer.poll(0.002)
    if producer.flush(30):
        complain("confluent-kafka has messages left")


def produce_with_kafka_python(listen, acknowledged, stop):
    producer = KafkaProducer(bootstrap_servers=listen, acks="all", enable_idempotence=False, linger_ms=1,
                             reconnect_backoff_ms=50, reconnect_backoff_max_ms=200, retry_backoff_ms=50)
    number = 0
    while not stop.is_set():
        values = [f"kafka-python-{number}-{p}".encode() for p in range(PARTITIONS)]
        sent = [producer.send(TOPIC, value=value, partition=p) for p, value in enumerate(values)]
        for value, future in zip(values, sent):
            found = future.get(60)
            acknowledged.add("kafka-python", value, found.partition, found.offset)
        number += 1
    producer.close()


def consume(listen, stop, seen):
    """Reads all partitions, and checks that offsets have no gap and never go back."""
    consumer = Consumer({"bootstrap.servers": listen, "group.id": "restarts", "enable.auto.commit": False} | QUICK)
    consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    ends = [0] * PARTITIONS
    while True:
        message = consumer.poll(0.2)
        if message is None:
            if stop.is_set() and ends == [consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=10)[1] for p in range(PARTITIONS)]:
                break
        elif not message.error():
            if message.offset() != ends[message.partition()]:
                complain(f"partition {message.partition()}: offset {message.offset()} after {ends[message.partition()]}")
            ends[message.partition()] = message.offset() + 1
            seen.setdefault(message.value(), set()).add((message.partition(), message.offset()))
    consumer.close()


def start_members(listen):
    """Two members of one group, by different libraries."""
    os.environ["KAFKA_BOOTSTRAP"] = listen
    here = os.path.dirname(os.path.abspath(__file__))
    programs = [os.path.join(here, name) for name in ("member_confluent.py", "member_kafka_python.py")]
    return [Member([sys.executable, program], "restarts-members", TOPIC, "eager", None) for program in programs]


def wait_for_members(members, times):
    """Waits until each has been given partitions since it was so many times."""
    with changed:
        if not changed.wait_for(lambda: all(m.times > n and m.assigned for m, n in zip(members, times)), timeout=60):
            sys.exit(f"FAIL the group did not find together: {[(m.times, m.assigned) for m in members]}, before {times}")


def finish_members(members, places):
    """Waits until they have got all of these, each its part, and ends them."""
    deadline = time.monotonic() + 60
    with changed:
        while missing := set(places) - {place for member in members for place in member.got + member.maybe}:
            if not changed.wait(max(0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                complain(f"the group has not got {len(missing)} records within a minute")
                break
    for member in members:
        member.finish()
    for member in members:
        member.process.wait(30)


def main():
    program, data, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    broker, acknowledged, stop, ended, seen = Broker(program, data, OPTIONS), Acknowledged(), threading.Event(), threading.Event(), {}
    admin = AdminClient({"bootstrap.servers": broker.listen} | QUICK)
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result(30)
    producers = [threading.Thread(target=run, args=(broker.listen, acknowledged, stop), daemon=True)
                 for run in (produce_with_confluent, produce_with_kafka_python)]
    consumer = threading.Thread(target=consume, args=(broker.listen, ended, seen), daemon=True)
    for thread in producers + [consumer]:
        thread.start()
    members = start_members(broker.listen)
    wait_for_members(members, [0, 0])
    for _ in range(rounds):
        acknowledged.wait_for_more(["confluent", "kafka-python"])
        times = [member.times for member in members]
        broker.kill()
        broker.start()
        wait_for_members(members, times)
    acknowledged.wait_for_more(["confluent", "kafka-python"])
    stop.set()
    for thread in producers:
        thread.join(60)
    finish_members(members, acknowledged.places.values())
    ended.set()
    consumer.join(60)
    if any(thread.is_alive() for thread in producers + [consumer]):
        sys.exit("FAIL a client hangs")
    missing = [value for value, place in acknowledged.places.items() if place not in seen.get(value, ())]
    joined = [member.times for member in members]
    print(f"restarts: {rounds} kills, members joined {joined} times, {len(acknowledged.places)} acknowledged records, {len(missing)} missing")
    broker.kill()
    sys.exit(1 if missing or FAILED or broker.panics else 0)


if __name__ == "__main__":
    main()
