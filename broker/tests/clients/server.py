"""A broker as a process that is killed and started again, always on the same port and data."""
import atexit
import random
import re
import socket
import subprocess
import sys
import threading

QUICK = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}  # that connections break is meant


def free_address():
    """Below the ports that clients get for their end of a connection: one of them must not take it between two starts."""
    while True:
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", random.SystemRandom().randrange(15000, 32000)))
                return "127.0.0.1:%d" % tried.getsockname()[1]
            except OSError:
                continue


class Broker:
    def __init__(self, program, data, options=()):
        self.command, self.listen, self.process, self.panics = [program, "--data-dir", data, *options], free_address(), None, []
        atexit.register(self.kill)
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command + ["--listen", self.listen], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"serving listen=(\S+)", line)
            if found:
                self.listen = found[1]
                threading.Thread(target=self.drain, args=(self.process.stderr,), daemon=True).start()
                return
        sys.exit("the broker did not start")

    def drain(self, lines):
        for line in lines:
            if "panicked" in line:
                self.panics.append(line)
                print("FAIL " + line, flush=True)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
