"""Rows over confluent-kafka: what it writes comes back the same, whoever reads it.

confluent.py write TOPIC-PREFIX CODEC...   makes a topic for each codec and writes the rows to its partition 1
confluent.py read TOPIC...                 reads them from the start, and keeps an offset for a group
confluent.py refused TOPIC CODEC...        each codec is refused by the broker, and nothing is stored
"""
import sys

from confluent_kafka import Consumer, KafkaError, OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import rows

check = rows.check
SERVER = {"bootstrap.servers": rows.BOOTSTRAP}
if rows.CA:
    SERVER |= {"security.protocol": "SASL_SSL", "ssl.ca.location": rows.CA, "sasl.mechanism": "PLAIN",
               "sasl.username": rows.USER, "sasl.password": rows.PASSWORD}


def new_topic(name):
    admin = AdminClient(SERVER)
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=1)])[name].result(30)


def producer(codec, **more):
    return Producer(SERVER | {"acks": "all", "enable.idempotence": False, "compression.type": codec, "linger.ms": 100} | more)


def watermarks(topic):
    consumer = Consumer(SERVER | {"group.id": "watermarks"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in range(3)]
    consumer.close()
    return found


def write(prefix, codecs):
    for codec in codecs:
        topic, places = f"{prefix}-{codec}", []
        mine = rows.rows_of(topic)
        new_topic(topic)
        sender = producer(codec)
        for key, value, headers in mine:
            sender.produce(topic, value=value, key=key, headers=headers, partition=1,
                           on_delivery=lambda error, message: places.append(error and error.name() or message.offset()))
        check(f"write {topic}: all sent", sender.flush(30), 0)
        check(f"write {topic}: offsets", places, list(range(len(mine))))
        check(f"write {topic}: watermarks", watermarks(topic), [(0, 0), (0, len(mine)), (0, 0)])


def read(topics):
    consumer = Consumer(SERVER | {"group.id": "reader-confluent", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 20})
    for topic in topics:
        consumer.assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
        got, ended = [], False
        while not ended:
            message = consumer.poll(20)
            if message is None:
                break
            if not message.error():
                got.append((message.offset(), message.key(), message.value(), message.headers() or []))
            else:
                ended = message.error().code() == KafkaError._PARTITION_EOF
        check(f"read {topic}: the end is reached", ended, True)
        check(f"read {topic}", got, rows.expected(topic))
        consumer.commit(offsets=[TopicPartition(topic, 1, 7, metadata="seven")], asynchronous=False)
        [kept] = consumer.committed([TopicPartition(topic, 1)], timeout=10)
        check(f"read {topic}: offset of the group", kept.offset, 7)
    consumer.close()


def refused(topic, codecs):
    new_topic(topic)
    for codec in codecs:
        outcome = []
        sender = producer(codec, **{"message.timeout.ms": 3000})
        sender.produce(topic, value="v" * 2000, partition=1, on_delivery=lambda error, _: outcome.append(error and error.name()))
        sender.flush(10)
        check(f"refused {codec}", outcome, ["_MSG_TIMED_OUT"])
    check("refused: nothing stored", watermarks(topic), [(0, 0)] * 3)


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "write":
        write(words[0], words[1:])
    elif command == "read":
        read(words)
    else:
        refused(words[0], words[1:])
    rows.end()
