"""checkpoints.py - change a vector of a checkpoint, as damaged memory or a
forger would: its checksum is right again (train/replica/checkpoint.h).
"""
import json
import os
import struct

K1, K2, MASK = 0x9E3779B97F4A7C15, 0x6A09E667F3BCC909, (1 << 64) - 1


def finish(h):
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ h >> 27) * 0x94D049BB133111EB & MASK
    return h ^ h >> 31


def hash64(data, seed):
    """proto/base/hash64.h."""
    lanes = [seed, seed + K1 & MASK, seed ^ K2, ~seed & MASK]
    h = seed ^ len(data) * K2 & MASK
    data = bytes(data) + bytes(-len(data) % 32)
    for at, word in enumerate(struct.unpack(f"<{len(data) // 8}Q", data)):
        lane = lanes[at % 4] ^ word
        lanes[at % 4] = (lane << 27 | lane >> 37) * K1 & MASK
    for lane in lanes:
        h = finish(h ^ lane)
    return h


def newest(state):
    """The newest checkpoint of a daemon's state directory."""
    folder = os.path.join(state, "checkpoints")
    names = [n for n in os.listdir(folder) if n.endswith(".safetensors")]
    return os.path.join(folder, max(names))


def fill(path, values):
    """values: name of a vector -> what each of its elements becomes."""
    with open(path, "rb") as f:
        raw = bytearray(f.read())
    n = struct.unpack_from("<Q", raw)[0]
    head = json.loads(raw[8:8 + n])
    spans = {name: [8 + n + o for o in t["data_offsets"]]
             for name, t in head.items() if name != "__metadata__"}
    for name, value in values.items():
        begin, end = spans[name]
        raw[begin:end] = struct.pack("<f", value) * ((end - begin) // 4)
    h = 0
    for key, text in head["__metadata__"].items():
        if key not in ("format", "checksum"):
            h = hash64(key.encode() + b"\0", h)
            h = hash64(text.encode() + b"\0", h)
    for name, (begin, end) in spans.items():
        h = hash64(name.encode() + b"\0", h)
        h = hash64(raw[begin:end], h)
    at = raw.index(b'"checksum":"') + len(b'"checksum":"')
    raw[at:at + 16] = b"%016x" % h
    with open(path, "wb") as f:
        f.write(raw)
