"""Rows over kafka-python, and one Produce request over several partitions.

kafka_python.py write TOPIC-PREFIX CODEC...   makes a topic for each codec and writes the rows to its partition 1
kafka_python.py read TOPIC...                 reads them from the start, and keeps an offset for a group
kafka_python.py cleaned FILE                  reads cleaned topics to their ends
kafka_python.py atomic atomic|independent     a request with one batch that is refused, by the broker's rule
"""
import sys

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import NewTopic

import rows

check = rows.check
SERVER = {"bootstrap_servers": rows.BOOTSTRAP}
if rows.CA:
    SERVER |= {"security_protocol": "SASL_SSL", "ssl_cafile": rows.CA, "sasl_mechanism": "PLAIN",
               "sasl_plain_username": rows.USER, "sasl_plain_password": rows.PASSWORD}


def new_topic(name, partitions=3, **configs):
    admin = KafkaAdminClient(**SERVER)
    admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])
    admin.close()


def watermarks(consumer, topic, partitions=3):
    places = [TopicPartition(topic, p) for p in range(partitions)]
    low, high = consumer.beginning_offsets(places), consumer.end_offsets(places)
    return [(low[p], high[p]) for p in places]


def write(prefix, codecs):
    for codec in codecs:
        topic = f"{prefix}-{codec}"
        mine = rows.rows_of(topic)
        new_topic(topic)
        sender = KafkaProducer(**SERVER, acks="all", enable_idempotence=False, linger_ms=100,
                               compression_type=None if codec == "none" else codec)
        sent = [sender.send(topic, key=key, value=value, headers=headers, partition=1) for key, value, headers in mine]
        check(f"write {topic}: offsets", [future.get(30).offset for future in sent], list(range(len(mine))))
        sender.close()
        consumer = KafkaConsumer(**SERVER)
        check(f"write {topic}: watermarks", watermarks(consumer, topic), [(0, 0), (0, len(mine)), (0, 0)])
        consumer.close()


def read(topics):
    consumer = KafkaConsumer(**SERVER, group_id="reader-kafka-python", enable_auto_commit=False, auto_offset_reset="earliest",
                             fetch_max_wait_ms=20)
    for topic in topics:
        place = TopicPartition(topic, 1)
        consumer.assign([place])
        got, end = [], consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            batches = consumer.poll(20000)
            if not batches:
                break
            for record in batches[place]:
                got.append((record.offset, record.key, record.value, list(record.headers)))
        check(f"read {topic}", got, rows.expected(topic))
        consumer.commit({place: OffsetAndMetadata(7, "seven", -1)})
        kept = consumer.committed(place, metadata=True)
        check(f"read {topic}: offset of the group", (kept.offset, kept.metadata), (7, "seven"))
    consumer.close()


def cleaned(path):
    consumer = KafkaConsumer(**SERVER, enable_auto_commit=False, auto_offset_reset="earliest", fetch_max_wait_ms=20)
    for topic, (end, records) in rows.survivors(path).items():
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        check(f"{topic}: its end", consumer.end_offsets([place])[place], end)
        got, idle = [], 0
        while consumer.position(place) < end and idle < 20:
            found = consumer.poll(1000).get(place, [])
            idle = 0 if found else idle + 1
            got += [(record.offset, record.key, record.value) for record in found]
        check(f"{topic} to its end", (consumer.position(place), got), (end, records))
    consumer.close()


def one_request(sends):
    """Sends all in one request: (topic, partition, key, value). The offset or the error's name of each."""
    sender = KafkaProducer(**SERVER, acks="all", enable_idempotence=False, retries=0, linger_ms=500, batch_size=1 << 18)
    for topic in {topic for topic, *_ in sends}:
        sender.partitions_for(topic)
    sent, outcome = [sender.send(t, partition=p, key=k, value=v) for t, p, k, v in sends], []
    for future in sent:
        try:
            outcome.append(future.get(30).offset)
        except Exception as error:
            outcome.append(type(error).__name__)
    sender.close()
    return outcome


def atomic(rule):
    three, small, keyed = "atomic-three-kafka-python", "atomic-small-kafka-python", "atomic-keyed-kafka-python"
    new_topic(three)
    new_topic(small, 1, **{"max.message.bytes": "4096"})
    new_topic(keyed, 1, **{"cleanup.policy": "compact"})
    consumer = KafkaConsumer(**SERVER)
    good = [(three, p, b"k", b"good") for p in range(3)] + [(small, 0, b"k", b"good"), (keyed, 0, b"k", b"good")]

    def ends():
        return [high for topic, n in ((three, 3), (small, 1), (keyed, 1)) for _, high in watermarks(consumer, topic, n)]

    check("atomic: five partitions in one request", (one_request(good), ends()), ([0] * 5, [1] * 5))
    want = [1] * 5
    for culprit, error, at in (((small, 0, b"k", b"y" * 8192), "MessageSizeTooLargeError", 3), ((keyed, 0, None, b"v"), "InvalidRecordError", 4)):
        sends = good[:at] + [culprit] + good[at + 1:]
        got = one_request(sends)
        if rule == "atomic":
            check(f"atomic: {error} refuses all", got, [error] * 5)
        else:
            check(f"atomic: {error} refuses its partition", got, want[:at] + [error] + want[at + 1:])
            want = [end + (n != at) for n, end in enumerate(want)]
        check(f"atomic: after {error} the ends are", ends(), want)
    check("atomic: the offsets go on", one_request(good), want)
    consumer.close()


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "write":
        write(words[0], words[1:])
    elif command == "read":
        read(words)
    elif command == "cleaned":
        cleaned(words[0])
    else:
        atomic(words[0])
    rows.end()
