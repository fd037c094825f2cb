"""The rows of rows.txt for the clients in Python, and how they report."""
import os
import sys

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP"]
# Where a certificate is named, clients use TLS and log in.
CA, USER, PASSWORD = (os.environ.get("KAFKA_" + name) for name in ("CA", "USERNAME", "PASSWORD"))
FAILED = []


def field(text):
    kind, rest = text[0], text[1:]
    if kind == "-":
        return None
    if kind == "#":
        return bytes.fromhex(rest)
    return b"x" * int(rest) if kind == "*" else rest.encode()


def header(text):
    name, _, value = text.partition(":")
    return name, field(value)


def load():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rows.txt")
    with open(path, encoding="ascii") as file:
        cells = [line.rstrip("\n").split("\t") for line in file if not line.startswith("# ")]
    return [(row[0], field(row[1]), field(row[2]), [header(cell) for cell in row[3:]]) for row in cells]


ALL = load()


def rows_of(topic):
    """The rows that the client in the topic's name can send: key, value, headers."""
    return [row for unable, *row in ALL if not any(name in topic for name in unable.split(","))]


def expected(topic):
    """What a reader must find: offset, key, value, headers. kafkajs has a map of headers, so it groups those of one name."""
    found = []
    for offset, (key, value, headers) in enumerate(rows_of(topic)):
        if "kafkajs" in topic:
            names = list(dict.fromkeys(name for name, _ in headers))
            headers = [h for name in names for h in headers if h[0] == name]
        found.append((offset, key, value, headers))
    return found


def survivors(path):
    """What cleaned topics hold: by topic its end, and offset, key and value of each record."""
    topics = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            topic, end, offset, key, value = line.rstrip("\n").split("\t")
            topics.setdefault(topic, (int(end), []))[1].append((int(offset), field(key), field(value)))
    return topics


def short(value):
    text = repr(value)
    return text if len(text) < 1500 else text[:1500] + "..."


def check(name, got, want):
    ok = got == want
    print(("ok   " if ok else "FAIL ") + name + ("" if ok else f": got {short(got)}, want {short(want)}"), flush=True)
    if not ok:
        FAILED.append(name)


def end():
    print(f"{len(FAILED)} failed")
    sys.exit(1 if FAILED else 0)
