"""A broker as a process that is killed and started again, always on the same port and data."""
import atexit
import re
import subprocess
import sys
import threading

QUICK = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}  # that connections break is meant


class Broker:
    def __init__(self, program, data, options=()):
        self.command, self.listen, self.process, self.panics = [program, "--data-dir", data, *options], "127.0.0.1:0", None, []
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
