"""Transactions over kafka-python: what is committed is read, what is aborted is not, and offsets come along.

transactions_kafka_python.py NAME    with topics and a transactional id of that name
"""
import sys
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

import rows

check = rows.check


def producer(name):
    made = KafkaProducer(bootstrap_servers=rows.BOOTSTRAP, transactional_id=name, linger_ms=5)
    made.init_transactions()
    return made


def send(sender, topic, value):
    sent = [sender.send(topic, value=f"{value}{partition}".encode(), partition=partition) for partition in (0, 1)]
    [future.get(30) for future in sent]


def read(topic, isolation):
    consumer = KafkaConsumer(bootstrap_servers=rows.BOOTSTRAP, isolation_level=isolation, enable_auto_commit=False,
                             fetch_max_wait_ms=20)
    places = [TopicPartition(topic, partition) for partition in (0, 1)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends, found = consumer.end_offsets(places), {place: [] for place in places}
    while any(consumer.position(place) < ends[place] for place in places):
        for place, records in consumer.poll(timeout_ms=200).items():
            found[place] += [record.value.decode() for record in records]
    consumer.close()
    return [found[place] for place in places]


def group_behind_a_trim(admin, topic):
    """What a group has committed was deleted since, and it goes on at the new beginning."""
    admin.create_topics([NewTopic(topic, 1, 1)])
    sender = KafkaProducer(bootstrap_servers=rows.BOOTSTRAP, enable_idempotence=False)
    [future.get(30) for future in [sender.send(topic, value=b"v", partition=0) for _ in range(10)]]
    sender.close()
    place = TopicPartition(topic, 0)
    settings = {"bootstrap_servers": rows.BOOTSTRAP, "group_id": topic, "enable_auto_commit": False,
                "auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
    consumer = KafkaConsumer(**settings)
    consumer.commit({place: OffsetAndMetadata(5, "", -1)})
    consumer.close()
    admin.delete_records({place: 8})
    consumer = KafkaConsumer(topic, **settings)
    check("the offset that was committed is below the beginning", consumer.committed(place), 5)
    offsets, deadline = [], time.monotonic() + 30
    while not offsets and time.monotonic() < deadline:
        offsets = [record.offset for records in consumer.poll(timeout_ms=500).values() for record in records]
    check("a group behind a trim goes on at the beginning", offsets[:1], [8])
    consumer.close()


def end_behind_the_marker(topic):
    """One record and its marker make an end of 2, and the client comes to it."""
    consumer = KafkaConsumer(bootstrap_servers=rows.BOOTSTRAP, isolation_level="read_committed", fetch_max_wait_ms=20)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    deadline = time.monotonic() + 30
    while consumer.position(place) < 2 and time.monotonic() < deadline:
        consumer.poll(timeout_ms=200)
    check("the position comes behind the marker", (consumer.position(place), consumer.end_offsets([place])[place]), (2, 2))
    consumer.close()


def main(name):
    out, source, group = f"{name}-out", f"{name}-in", f"{name}-group"
    admin = KafkaAdminClient(bootstrap_servers=rows.BOOTSTRAP)
    admin.create_topics([NewTopic(topic, 2, 1) for topic in (out, source)])
    place = TopicPartition(source, 0)
    consumer = KafkaConsumer(bootstrap_servers=rows.BOOTSTRAP, group_id=group, enable_auto_commit=False)
    sender = producer(name)
    for value, offset, ends in (("a", 3, sender.commit_transaction), ("b", 7, sender.abort_transaction),
                                ("c", 5, sender.commit_transaction)):
        sender.begin_transaction()
        send(sender, out, value)
        sender.send_offsets_to_transaction({place: OffsetAndMetadata(offset, "", -1)}, group)
        if value == "b":
            check("nothing of an open transaction is read", read(out, "read_committed"), [["a0"], ["a1"]])
        ends()
        if value == "a":
            end_behind_the_marker(out)
        check(f"offset behind {value}", consumer.committed(place), 5 if value == "c" else 3)
    check("what was committed is read", read(out, "read_committed"), [["a0", "c0"], ["a1", "c1"]])
    check("all is there", read(out, "read_uncommitted"), [["a0", "b0", "c0"], ["a1", "b1", "c1"]])

    sender.begin_transaction()
    send(sender, out, "d")
    second = producer(name)
    try:
        sender.commit_transaction()
        check("who was replaced is fenced", "committed", "fenced")
    except KafkaError as error:
        check("who was replaced is fenced", "Fenced" in repr(error) or "InvalidProducerEpoch" in repr(error), True)
    second.begin_transaction()
    send(second, out, "e")
    second.commit_transaction()
    check("what the first had open is gone", read(out, "read_committed"), [["a0", "c0", "e0"], ["a1", "c1", "e1"]])
    group_behind_a_trim(admin, f"{name}-trim")
    for each in (consumer, second, admin):
        each.close()
    sender.close(timeout=1)


main(sys.argv[1])
sys.exit(1 if rows.FAILED else 0)
