"""Read-process-write by groups of three, one group a library, while members and the broker are killed at random: a
read-committed reader finds every input in the output exactly once, in order, at any moment and at the end.

exactly_once.py PROGRAM DATA-DIRECTORY NAME=COMMAND...    COMMAND copies as copier_confluent.py does

INPUTS (for each library), CLIENT_KILLS (of one member of each library), BROKER_KILLS, SEED and BROKER_OPTIONS come from the
environment.
"""
import atexit
import os
import random
import subprocess
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from debit_credit import DebitCredit
from server import QUICK, Broker

PARTITIONS, MEMBERS, PATIENCE_S = 12, 3, 90
OPTIONS = ["--group-initial-rebalance-delay-ms", "200", "--group-min-session-timeout-ms", "1000"]
changed = threading.Condition()
failed = []


def complain(what):
    failed.append(what)
    print("FAIL " + what, flush=True)


class Copier:
    """A process that copies, until it is killed."""

    def __init__(self, command, words, counts):
        self.counts, self.last = counts, ""
        self.process = subprocess.Popen(command + words, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            word, *rest = line.split()
            with changed:
                self.last = line.strip()
                self.counts[word] = self.counts.get(word, 0) + (int(rest[0]) if word == "copied" else 1)
                changed.notify_all()

    def ended(self):
        return self.process.poll() is not None

    def kill(self):
        self.process.kill()
        self.process.wait()


class Copies:
    """What one library copies: input, members and a reader of the output."""

    def __init__(self, name, command, server):
        self.name, self.command, self.server = name, command, server
        self.source, self.target, self.group = f"{name}-in", f"{name}-out", f"{name}-group"
        self.counts, self.members, self.ids, self.seen, self.fed = {}, [], [], [0] * PARTITIONS, 0
        self.feeder = Producer(server | {"enable.idempotence": True, "linger.ms": 2})
        self.stop = threading.Event()

    def create(self):
        topics = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1) for topic in (self.source, self.target)]
        admin = AdminClient(self.server)
        for future in admin.create_topics(topics).values():
            future.result(30)

    def start(self):
        self.ids = [f"{self.name}-{number}" for number in range(MEMBERS)]
        self.members = [self.member(number) for number in range(MEMBERS)]
        self.reader = threading.Thread(target=self.read, args=(self.stop,), daemon=True)
        self.reader.start()

    def member(self, number):
        words = [self.group, self.source, self.target, self.ids[number], str(PARTITIONS)]
        return Copier(self.command, words, self.counts)

    def feed(self, count):
        """Each partition gets its own numbers, in order."""
        for number in range(self.fed, self.fed + count):
            self.feeder.produce(self.source, value=str(number), partition=number % PARTITIONS, on_delivery=self.delivered)
            self.feeder.poll(0)
        self.fed += count

    def delivered(self, error, _):
        if error:
            complain(f"{self.name}: an input was not taken: {error}")

    def kill_one(self):
        """Another comes: under the same transactional id, or with what was open left to its timeout."""
        number = random.randrange(MEMBERS)
        self.members[number].kill()
        if random.random() < 0.5:
            self.ids[number] += "x"
        self.members[number] = self.member(number)

    def revive(self):
        """Starts members again whose producer was of no use any more."""
        for number, member in enumerate(self.members):
            if member.ended():
                if member.process.returncode != 3:
                    complain(f"{self.name}: a member ended with {member.process.returncode}: {member.last}")
                print(f"     {self.name}: a member {member.last}", flush=True)
                self.members[number] = self.member(number)

    def take(self, message):
        """The output of a partition is its input, from the first number on."""
        partition, number = message.partition(), int(message.value())
        before = (partition - 1) % PARTITIONS
        want = before + self.seen[partition] * PARTITIONS
        if number != want:
            complain(f"{self.name}: output {partition}@{message.offset()} has {number} in place of {want}")
        with changed:
            self.seen[partition] += 1
            changed.notify_all()

    def read(self, stop):
        consumer = self.consumer("read_committed")
        while not stop.is_set():
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                self.take(message)
        consumer.close()

    def consumer(self, isolation, **options):
        made = Consumer(self.server | {"group.id": self.group, "enable.auto.commit": False, "isolation.level": isolation,
                                       "fetch.wait.max.ms": 50} | options)
        made.assign([TopicPartition(self.target, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        return made

    def all_seen(self):
        return sum(self.seen) >= self.fed

    def read_again(self, isolation):
        """All values by partition, up to the end that uncommitted readers see."""
        consumer = self.consumer(isolation, **{"enable.partition.eof": True})
        plain = self.consumer("read_uncommitted")
        ends = [plain.get_watermark_offsets(TopicPartition(self.target, p), timeout=30)[1] for p in range(PARTITIONS)]
        found, at, deadline = [[] for _ in ends], [0] * PARTITIONS, time.monotonic() + PATIENCE_S
        while any(here < end for here, end in zip(at, ends)) and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if not message.error():
                found[message.partition()].append(int(message.value()))
            if not message.error() or message.error().code() == KafkaError._PARTITION_EOF:
                at[message.partition()] = max(at[message.partition()], message.offset())
        for partition, (here, end) in enumerate(zip(at, ends)):
            if here < end - 1:
                complain(f"{self.name}: a reader came only to {here} of {end} in partition {partition}")
        consumer.close()
        plain.close()
        return found

    def finish(self):
        """What has to hold when everything is at rest."""
        for member in self.members:
            member.process.terminate()
        for member in self.members:
            if member.process.wait(PATIENCE_S) not in (0, 3, -15, 143):  # by itself, or by the signal
                complain(f"{self.name}: a member ended with {member.process.returncode}: {member.last}")
        again = self.read_again("read_committed")
        for partition, numbers in enumerate(again):
            want = list(range((partition - 1) % PARTITIONS, self.fed, PARTITIONS))
            if numbers != want:
                complain(f"{self.name}: partition {partition} of the output has {len(numbers)} records, not its {len(want)}")
        self.offsets_are_ends()
        aborted = sum(map(len, self.read_again("read_uncommitted"))) - self.fed
        self.stop.set()
        self.reader.join(PATIENCE_S)
        if sum(self.seen) != self.fed:
            complain(f"{self.name}: who read all the time saw {sum(self.seen)} of {self.fed}")
        return f"{self.name}: {self.fed} inputs, each once in the output; {aborted} records aborted, said {self.counts}"

    def offsets_are_ends(self):
        """The group has committed all, and the input has no record twice."""
        consumer = Consumer(self.server | {"group.id": self.group, "isolation.level": "read_committed"})
        places = [TopicPartition(self.source, partition) for partition in range(PARTITIONS)]
        kept = {place.partition: place.offset for place in consumer.committed(places, 30)}
        for place in places:
            want = len(range(place.partition, self.fed, PARTITIONS))
            end = consumer.get_watermark_offsets(place, timeout=30)[1]
            if (kept[place.partition], end) != (want, want):
                complain(f"{self.name}: input {place.partition} ends at {end}, committed {kept[place.partition]}, want {want}")
        consumer.close()


def disturb(broker, copies, event):
    """Half of the time as soon as everybody has gone on, else at any moment."""
    if random.random() < 0.5:
        goals = [one.counts.get("copied", 0) for one in copies]
        deadline = time.monotonic() + PATIENCE_S
        while any(one.counts.get("copied", 0) <= goal for one, goal in zip(copies, goals)) and not failed:
            for one in copies:
                one.revive()
            with changed:
                changed.wait(0.5)
            if time.monotonic() > deadline:
                complain(f"somebody did not go on: {[(one.name, one.counts) for one in copies]}")
    else:
        with changed:
            changed.wait_for(lambda: failed, timeout=random.random())
    if event == "broker":
        broker.kill()
        broker.start()
    else:
        for one in copies:
            one.kill_one()


def setting(name, standard):
    return int(os.environ.get(name, standard))


def main():
    program, data = sys.argv[1:3]
    seed = setting("SEED", random.randrange(1 << 32))
    random.seed(seed)
    print(f"SEED={seed}", flush=True)
    broker = Broker(program, data, OPTIONS + os.environ.get("BROKER_OPTIONS", "").split())
    os.environ["KAFKA_BOOTSTRAP"] = broker.listen
    server = {"bootstrap.servers": broker.listen} | QUICK
    copies = [Copies(name, command.split(), server) for name, _, command in (word.partition("=") for word in sys.argv[3:])]
    plan = ["broker"] * setting("BROKER_KILLS", 20) + ["clients"] * setting("CLIENT_KILLS", 20)
    random.shuffle(plan)
    inputs = setting("INPUTS", 20000)
    share = inputs // (len(plan) + 1)
    both = DebitCredit(server, complain)
    for one in copies:
        one.create()
        one.feed(inputs - share * len(plan))
        one.start()
    both.start()
    for event in plan:
        disturb(broker, copies, event)
        for one in copies:
            one.revive()
            one.feed(share)
        if failed:
            sys.exit(1)
    deadline = time.monotonic() + PATIENCE_S
    while not all(one.all_seen() for one in copies):
        for one in copies:
            one.revive()
            one.feeder.poll(0)
        with changed:
            changed.wait(0.2)
        if failed or time.monotonic() > deadline:
            sys.exit(f"FAIL not all was copied: {[(one.name, one.fed, sum(one.seen), one.counts) for one in copies]}")
    print(both.finish(), flush=True)
    for one in copies:
        print(one.finish(), flush=True)
    broker.kill()
    print(f"exactly once: {plan.count('broker')} kills of the broker, {plan.count('clients')} of a member of each of "
          f"{', '.join(one.name for one in copies)}", flush=True)
    sys.exit(1 if failed or broker.panics else 0)


if __name__ == "__main__":
    main()
