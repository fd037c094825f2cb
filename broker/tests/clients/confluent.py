"""Rows over confluent-kafka: what it writes comes back the same, whoever reads it.

confluent.py write TOPIC-PREFIX CODEC...   makes a topic for each codec and writes the rows to its partition 1
confluent.py read TOPIC...                 reads them from the start, and keeps an offset for a group
confluent.py clean FILE CODEC...           makes compacted topics, waits until they are cleaned, and writes what they hold
confluent.py cleaned FILE                  reads them to their ends
confluent.py refused TOPIC CODEC...        each codec is refused by the broker, and nothing is stored
"""
import sys
import time

from confluent_kafka import Consumer, KafkaError, OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import rows

check = rows.check
SERVER = {"bootstrap.servers": rows.BOOTSTRAP}
if rows.CA:
    SERVER |= {"security.protocol": "SASL_SSL", "ssl.ca.location": rows.CA, "sasl.mechanism": "PLAIN",
               "sasl.username": rows.USER, "sasl.password": rows.PASSWORD}


def new_topic(name, partitions=3, **config):
    admin = AdminClient(SERVER)
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)])[name].result(30)


def producer(codec, **more):
    return Producer(SERVER | {"acks": "all", "enable.idempotence": False, "compression.type": codec, "linger.ms": 100} | more)


def watermarks(topic):
    consumer = Consumer(SERVER | {"group.id": "watermarks"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60) for p in range(3)]
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


# One batch each; a value is 0 for null. The last one holds tombstones alone, which go in the end: the log ends in a gap.
ROUNDS = [{f"key-{n}": 1 for n in range(12)}, {f"key-{n}": 2 for n in range(0, 12, 2)}, {"key-9": 0, "key-1": 3},
          {"key-6": 4, "key-3": 0, "key-11": 4}, {"key-7": 0, "key-8": 0}]


def clean(path, codecs):
    lines, topics = [], []
    for codec in codecs:
        for retention_ms in (0, 86400000):
            topic, offset, newest = f"cleaned-{codec}-{retention_ms}", 0, {}
            new_topic(topic, 1, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0",
                                   "min.compaction.lag.ms": "2000", "delete.retention.ms": str(retention_ms)})
            sender = producer(codec)
            for batch in ROUNDS:
                for key, number in batch.items():
                    value = f"value-{number}-" + 200 * "x" if number else None
                    sender.produce(topic, value=value, key=key, partition=0)
                    newest[key] = (offset, value)
                    offset += 1
                sender.flush(30)
            topics.append(topic)
            # Tombstones go where they are not kept for long.
            lines += [f"{topic}\t{offset}\t{at}\t={key}\t{'-' if value is None else '=' + value}\n"
                      for key, (at, value) in sorted(newest.items(), key=lambda item: item[1][0]) if value or retention_ms]
    with open(path, "w", encoding="ascii") as file:
        file.writelines(lines)
    want, deadline = rows.survivors(path), time.monotonic() + 80
    while time.monotonic() < deadline and any(read_to_end(topic)[1] != want[topic][1] for topic in topics):
        time.sleep(1)
    for topic in topics:
        check(f"{topic} was cleaned", read_to_end(topic)[1], want[topic][1])


def read_to_end(topic):
    """Where the end of a partition is told, and offset, key and value of all before it."""
    consumer = Consumer(SERVER | {"group.id": "reader-of-cleaned", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    got, end = [], None
    while end is None and (message := consumer.poll(20)) is not None:
        if not message.error():
            got.append((message.offset(), message.key(), message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            end = message.offset()
    consumer.close()
    return end, got


def cleaned(path):
    for topic, want in rows.survivors(path).items():
        check(f"{topic} to its end", read_to_end(topic), want)


def refused(topic, codecs):
    new_topic(topic)
    for codec in codecs:
        outcome = []
        sender = producer(codec, **{"message.timeout.ms": 3000})
        sender.produce(topic, value="v" * 2000, partition=1, on_delivery=lambda error, _: outcome.append(error and error.name()))
        sender.flush(60)
        check(f"refused {codec}", outcome, ["_MSG_TIMED_OUT"])
    check("refused: nothing stored", watermarks(topic), [(0, 0)] * 3)


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "write":
        write(words[0], words[1:])
    elif command == "read":
        read(words)
    elif command == "clean":
        clean(words[0], words[1:])
    elif command == "cleaned":
        cleaned(words[0])
    else:
        refused(words[0], words[1:])
    rows.end()
