"""Members of groups as processes, whatever library they use: see member_confluent.py for what they say."""
import signal
import subprocess
import threading

changed = threading.Condition()


class Member:
    """A process that is a member."""

    def __init__(self, command, group, topic, protocol, instance):
        self.assigned, self.times, self.revoked, self.got, self.maybe = None, 0, 0, [], []
        words = command + [group, topic, protocol, instance or "-"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            word, *numbers = line.split()
            numbers = [int(number) for number in numbers]
            with changed:
                if word == "got":
                    self.got.append(tuple(numbers))
                elif word == "maybe":
                    self.maybe.append(tuple(numbers))
                else:
                    self.assigned = set(numbers)
                    self.times += word == "assigned"
                    self.revoked += word == "revoked"
                changed.notify_all()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def finish(self):
        self.process.send_signal(signal.SIGTERM)
