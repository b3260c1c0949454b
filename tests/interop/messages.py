"""messages.py - every message of PROTOCOL.md, section 13, from the page itself.

MESSAGES["VIEW"] is (number, fields); a field is (name, kind), a kind one of
"u8" .. "u64", "bool", ("bin", n), ("bytes", n), ("list", n, kind), ("struct",
name). `make` fills a message with what a liar would say.
"""
import re

from peer import PAGE, Identity, hash_in, msgpack

NUMBER = re.compile(r"^0x([0-9a-f]{2}) (\w+)\s+(\d+)\s+(.*)$")
BITS = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}


def blocks():
    """The two lists of section 13, each a list of whole lines."""
    section = PAGE[PAGE.index("\n## 13. Control messages"):]
    for text in section.split("```")[1:4:2]:
        lines = []
        for line in text.strip("\n").split("\n"):
            if line.startswith(" "):
                lines[-1] += " " + line.strip()
            else:
                lines.append(line)
        yield lines


def kind_of(words):
    """The kind that the words name, and how many they were."""
    if words[0].startswith("["):
        kind, n = kind_of(words[1:])
        return ("list", int(words[0].strip("[]")), kind), n + 1
    if words[0] in ("bin", "bytes"):
        return (words[0], int(words[1])), 2
    return (words[0] if words[0] in BITS or words[0] == "bool"
            else ("struct", words[0])), 1


def fields_of(text):
    fields = []
    for field in text.split(","):
        name, *words = field.split()
        kind, n = kind_of(words)
        if n != len(words):
            raise ValueError(f"section 13: {field}")
        fields.append((name, kind))
    return fields


def read():
    structs, messages = {}, {}
    first, second = blocks()
    for line in first:
        name, text = line.split(None, 1)
        structs[name] = fields_of(text)
    for line in second:
        number, name, _, text = NUMBER.match(line).groups()
        messages[name] = int(number, 16), fields_of(text)
        structs.setdefault(name.lower(), messages[name][1])
    return structs, messages


STRUCTS, MESSAGES = read()


def sign(identity, body_kind, body):
    """The signature of a body, section 4."""
    return identity.sign(f"struct {body_kind}".encode(),
                         msgpack.packb(body, use_bin_type=True))


def view_hash(body):
    return hash_in(b"loco-view-1", msgpack.packb(body, use_bin_type=True))


class Maker:
    """Messages of any type. `known` has what was heard, by field name: those
    values are taken often, so that messages get past the first check."""

    def __init__(self, rng, identity=None):
        self.rng = rng
        self.identity = identity or Identity()
        self.known = {}

    def learn(self, name, kind, value):
        values = self.known.setdefault((name, kind), [])
        if value not in values:
            values.append(value)
            del values[:-16]

    def hear(self, fields, values):
        """Remember the parts of a message that came."""
        for (name, kind), value in zip(fields, values):
            if kind[0] == "struct":
                self.hear(STRUCTS[kind[1]], value)
            elif kind[0] == "list":
                for one in value:
                    self.hear([(name, kind[2])], [one])
            else:
                self.learn(name, kind, value)

    def number(self, bits):
        top = (1 << bits) - 1
        return self.rng.choice((0, 1, 2, 3, top, top - 1, top >> 1,
                                self.rng.getrandbits(bits),
                                self.rng.getrandbits(min(bits, 10))))

    def value(self, name, kind):
        known = self.known.get((name, kind))
        if known and self.rng.random() < 0.8:
            value = self.rng.choice(known)
            if kind in BITS and self.rng.random() < 0.3:
                value = (value + self.rng.choice((1, -1, 1000))) % \
                    (1 << BITS[kind])
            return value
        if kind in BITS:
            return self.number(BITS[kind])
        if kind == "bool":
            return self.rng.random() < 0.5
        if kind[0] == "bin":
            return self.rng.choice((bytes(kind[1]),
                                    self.rng.randbytes(kind[1])))
        if kind[0] == "bytes":
            return self.rng.randbytes(self.rng.randrange(min(kind[1], 2000)))
        if kind[0] == "list":
            n = self.rng.choice((0, 1, 2, self.rng.randrange(kind[1] + 1)))
            return [self.value(name, kind[2]) for _ in range(n)]
        return self.struct(STRUCTS[kind[1]])

    def struct(self, fields):
        values = [self.value(*field) for field in fields]
        names = [name for name, _ in fields]
        if "body" in names and "sig" in names and self.rng.random() < 0.9:
            kind = fields[names.index("body")][1][1]
            values[names.index("sig")] = sign(
                self.identity, kind, values[names.index("body")])
        return values

    def message(self, name):
        """(number, values)"""
        number, fields = MESSAGES[name]
        return number, self.struct(fields)
