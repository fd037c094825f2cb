"""Three members of a group: one is killed, another comes; what each is assigned, and that every record is got.

groups.py NAME eager|cooperative|static... -- COMMAND...    COMMAND makes a member, as member_confluent.py does
"""
import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from members import Member, changed
from rows import BOOTSTRAP, FAILED, check, end

PARTITIONS = 6
EACH = 10
PATIENCE_S = 60
ALL = set(range(PARTITIONS))


def wait(what, condition):
    deadline = time.monotonic() + PATIENCE_S
    with changed:
        while not condition():
            if not changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                check(what, "not in time", "in time")
                return False
    check(what, "in time", "in time")
    return True


def share(members):
    """Whether these have all partitions among them, each some, and none two."""
    parts = [member.assigned or set() for member in members]
    return all(parts) and set().union(*parts) == ALL and sum(map(len, parts)) == PARTITIONS


class Scenario:
    def __init__(self, name, protocol, command):
        self.name, self.protocol, self.command = f"{name}, {protocol}", protocol, command
        self.group = self.topic = f"{name}-{protocol}"
        self.members, self.sent = [], 0
        admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])
        admin.close()
        self.producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=False)

    def member(self, number):
        protocol = "eager" if self.protocol == "static" else self.protocol
        instance = f"instance-{number}" if self.protocol == "static" else None
        member = Member(self.command, self.group, self.topic, protocol, instance)
        self.members.append(member)
        return member

    def send(self):
        for offset in range(self.sent, self.sent + EACH):
            for partition in range(PARTITIONS):
                self.producer.send(self.topic, partition=partition, value=b"%d" % offset)
        self.producer.flush(30)
        self.sent += EACH

    def everything_is_got(self, when):
        want = {(partition, offset) for partition in ALL for offset in range(self.sent)}
        wait(f"{self.name}: every record is got {when}",
             lambda: want <= {place for member in self.members for place in member.got})

    def run(self):
        self.send()
        first, second, third = [self.member(number) for number in range(3)]
        wait(f"{self.name}: three members share the partitions", lambda: share([first, second, third]))
        self.everything_is_got("by three")
        if self.protocol == "static":
            fourth = self.replaced(first, second, third)
        else:
            fourth = self.rebalanced(first, second, third)
        self.send()
        self.everything_is_got("after that")
        for member in (first, third, fourth):
            member.finish()
        for member in (first, third, fourth):
            member.process.wait(PATIENCE_S)
        self.committed()

    def replaced(self, first, second, third):
        """One is killed and started again under its name before its session ends: nobody else is disturbed."""
        had, times = second.assigned, (first.times, third.times)
        second.kill()
        fourth = self.member(1)
        wait(f"{self.name}: it has again what it had", lambda: fourth.assigned == had)
        check(f"{self.name}: the others were not disturbed", (first.times, third.times), times)
        return fourth

    def rebalanced(self, first, second, third):
        """One is killed: the others take over when its session ends. Another comes."""
        had, revoked = [first.assigned, third.assigned], (first.revoked, third.revoked)
        second.kill()
        self.send()
        wait(f"{self.name}: two take over from one that was killed", lambda: share([first, third]))
        self.everything_is_got("by two")
        if self.protocol == "cooperative":
            kept = [first.assigned >= had[0], third.assigned >= had[1]]
            check(f"{self.name}: they kept what they had", (kept, first.revoked, third.revoked), ([True, True], *revoked))
        fourth = self.member(3)
        wait(f"{self.name}: another gets its share", lambda: share([first, third, fourth]))
        return fourth

    def committed(self):
        consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=self.group)
        kept = [consumer.committed(TopicPartition(self.topic, partition)) for partition in sorted(ALL)]
        consumer.close()
        check(f"{self.name}: the group has committed all", kept, [self.sent] * PARTITIONS)
        last, before = self.member(4), self.sent
        wait(f"{self.name}: a later member gets all partitions", lambda: last.assigned == ALL)
        self.send()
        self.everything_is_got("by it")
        check(f"{self.name}: it got no record from before", min(offset for _, offset in last.got), before)
        last.finish()
        last.process.wait(PATIENCE_S)


if __name__ == "__main__":
    split = sys.argv.index("--")
    for protocol_name in sys.argv[2:split]:
        scenario = Scenario(sys.argv[1], protocol_name, sys.argv[split + 1:])
        try:
            scenario.run()
        finally:
            for each in scenario.members:
                each.process.kill()
        if FAILED:
            break
    end()
