"""A member of a group over kafka-python, until it is told to end (SIGTERM) or killed.

member_kafka_python.py GROUP TOPIC eager|cooperative INSTANCE|-

Says what member_confluent.py says.
"""
import os
import signal
import sys

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

group, topic, protocol, instance = sys.argv[1:]
told = []


def say(*words):
    print(*words, flush=True)


class Listener(ConsumerRebalanceListener):
    mine = set()

    def on_partitions_assigned(self, assigned):
        if protocol == "eager":
            self.mine.clear()
        self.mine.update(one.partition for one in assigned)
        say("assigned", *sorted(self.mine))

    def on_partitions_revoked(self, revoked):
        self.mine.difference_update(one.partition for one in revoked)
        say("revoked", *sorted(self.mine))


signal.signal(signal.SIGTERM, lambda *_: told.append(True))
consumer = KafkaConsumer(
    bootstrap_servers=os.environ["KAFKA_BOOTSTRAP"], group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
    session_timeout_ms=4000, heartbeat_interval_ms=300, fetch_max_wait_ms=50, max_poll_interval_ms=60000,
    group_instance_id=None if instance == "-" else instance,
    partition_assignment_strategy=[CooperativeStickyAssignor if protocol == "cooperative" else RangePartitionAssignor])
consumer.subscribe([topic], listener=Listener())
while not told:
    for place, records in consumer.poll(100, max_records=20).items():
        try:
            consumer.commit({place: OffsetAndMetadata(records[-1].offset + 1, "", -1)})
        except KafkaError:
            # A rebalance, and whoever has the partition next gets the records again; or the answer was lost.
            for record in records:
                say("maybe", record.partition, record.offset)
            if place in consumer.assignment():
                consumer.seek(place, records[0].offset)  # Who keeps the partition reads on behind them.
            continue
        for record in records:
            say("got", record.partition, record.offset)
consumer.close()
