"""A member of a group over confluent-kafka, until it is told to end (SIGTERM) or killed.

member_confluent.py GROUP TOPIC eager|cooperative INSTANCE|-

Says `assigned P...` and `revoked P...`, each with all partitions that it has then, and `got P OFFSET` for each record whose
offset it has committed, `maybe P OFFSET` where it cannot know.
"""
import os
import signal
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

group, topic, protocol, instance = sys.argv[1:]
config = {
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": group, "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "session.timeout.ms": 4000, "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50,
    "log_level": 0,  # where brokers are killed, that connections break is meant
    "max.poll.interval.ms": 60000, "partition.assignment.strategy": "cooperative-sticky" if protocol == "cooperative" else "range",
}
if instance != "-":
    config["group.instance.id"] = instance
mine, told = set(), []


def say(*words):
    print(*words, flush=True)


def on_assign(_, partitions):
    if protocol == "eager":
        mine.clear()
    mine.update(one.partition for one in partitions)
    say("assigned", *sorted(mine))


def on_revoke(_, partitions):
    mine.difference_update(one.partition for one in partitions)
    say("revoked", *sorted(mine))


def again(message):
    """Who keeps the partition reads on behind the record, so it goes back to it."""
    if message.partition() in mine:
        try:
            consumer.seek(TopicPartition(topic, message.partition(), message.offset()))
        except KafkaException:
            pass  # It has just lost it.


signal.signal(signal.SIGTERM, lambda *_: told.append(True))
consumer = Consumer(config)
consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
while not told:
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    try:
        consumer.commit(message, asynchronous=False)
    except KafkaException:
        # A rebalance, and whoever has the partition next gets the record again; or the answer was lost with its broker.
        say("maybe", message.partition(), message.offset())
        again(message)
        continue
    say("got", message.partition(), message.offset())
consumer.close()
