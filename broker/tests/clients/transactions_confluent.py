"""Transactions over confluent-kafka: what is committed is read, what is aborted is not, and offsets come along.

transactions_confluent.py NAME    with topics and a transactional id of that name
"""
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import rows

check = rows.check
SERVER = {"bootstrap.servers": rows.BOOTSTRAP}


def producer(name):
    made = Producer(SERVER | {"transactional.id": name, "linger.ms": 5})
    made.init_transactions(30)
    return made


def send(sender, topic, value):
    for partition in (0, 1):
        sender.produce(topic, value=f"{value}{partition}", partition=partition)


def read(topic, isolation):
    consumer = Consumer(SERVER | {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True,
                                  "isolation.level": isolation, "fetch.wait.max.ms": 20})
    found = []
    for partition in (0, 1):
        consumer.assign([TopicPartition(topic, partition, 0)])
        values = []
        while (message := consumer.poll(20)) is not None and not message.error():
            values.append(message.value().decode())
        found.append(values)
    consumer.close()
    return found


def end_behind_the_marker(topic):
    """One record and its marker make an end of 2, and the client comes to it."""
    consumer = Consumer(SERVER | {"group.id": "ends", "enable.partition.eof": True, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while (message := consumer.poll(20)) is not None and not message.error():
        pass
    check("the end is behind the marker", message and (message.error().name(), message.offset()), ("_PARTITION_EOF", 2))
    check("watermarks with a marker", consumer.get_watermark_offsets(TopicPartition(topic, 0), 10), (0, 2))
    consumer.close()


def group_behind_a_trim(admin, topic):
    """What a group has committed was deleted since, and it goes on at the new beginning."""
    if not hasattr(admin, "delete_records"):
        return  # Version 2.4.0 cannot ask for it.
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(30)
    sender = Producer(SERVER)
    [sender.produce(topic, value=str(n)) for n in range(10)]
    sender.flush(30)
    place, settings = TopicPartition(topic, 0), SERVER | {"group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    consumer.close()
    [future.result(30) for future in admin.delete_records([TopicPartition(topic, 0, 8)]).values()]
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    check("the offset that was committed is below the beginning", consumer.committed([place], 10)[0].offset, 5)
    consumer.subscribe([topic])
    message = consumer.poll(30)
    check("a group behind a trim goes on at the beginning", message and message.offset(), 8)
    consumer.close()


def main(name):
    out, source, group = f"{name}-out", f"{name}-in", f"{name}-group"
    admin = AdminClient(SERVER)
    made = admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1) for topic in (out, source)])
    [future.result(30) for future in made.values()]
    consumer = Consumer(SERVER | {"group.id": group, "enable.auto.commit": False})
    sender = producer(name)
    for value, offset, ends in (("a", 3, sender.commit_transaction), ("b", 7, sender.abort_transaction),
                                ("c", 5, sender.commit_transaction)):
        sender.begin_transaction()
        send(sender, out, value)
        sender.send_offsets_to_transaction([TopicPartition(source, 0, offset)], consumer.consumer_group_metadata(), 30)
        sender.flush(30)
        if value == "b":
            check("nothing of an open transaction is read", read(out, "read_committed"), [["a0"], ["a1"]])
        ends(30)
        if value == "a":
            end_behind_the_marker(out)
        offset = consumer.committed([TopicPartition(source, 0)], 30)[0].offset
        check(f"offset behind {value}", offset, 5 if value == "c" else 3)
    check("what was committed is read", read(out, "read_committed"), [["a0", "c0"], ["a1", "c1"]])
    check("all is there", read(out, "read_uncommitted"), [["a0", "b0", "c0"], ["a1", "b1", "c1"]])

    sender.begin_transaction()
    send(sender, out, "d")
    sender.flush(30)
    second = producer(name)
    try:
        sender.commit_transaction(30)
        check("who was replaced is fenced", "committed", "fenced")
    except KafkaException as error:
        check("who was replaced is fenced", error.args[0].name(), "_FENCED")
    second.begin_transaction()
    send(second, out, "e")
    second.commit_transaction(30)
    check("what the first had open is gone", read(out, "read_committed"), [["a0", "c0", "e0"], ["a1", "c1", "e1"]])
    group_behind_a_trim(admin, f"{name}-trim")
    consumer.close()


main(sys.argv[1])
sys.exit(1 if rows.FAILED else 0)
