#!/usr/bin/env python3
"""log_events.py - the numbers by which programs know log lines.

The event of a line is FNV-1a (32 bits) of the form that the code gives to
printf (proto/base/log.h). This prints one line for each form in the sources:

    event  level  FILE:LINE  form

and exits with 1 where two forms have one number. Forms that are put together
from other text ("%s") share one.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("daemon", "p2p", "train", "kernels", "proto")
CALL = re.compile(r"\b(?:log_(debug|info|warn|error)\(\s*\"\w+\"|"
                  r"out_log\(\s*[\w>.()-]+,\s*LOG_(DEBUG|INFO|WARN|ERROR)),\s*")
PIECE = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([A-Z][A-Z0-9_a-z]*)\b)')
DEFINE = re.compile(r'^#define\s+(\w+)\s+"((?:[^"\\]|\\.)*)"\s*(?:/\*.*)?$', re.M)
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
# inttypes.h on the 64-bit systems that this runs on
PRI = {"PRIu64": "lu", "PRIi64": "li", "PRId64": "ld", "PRIx64": "lx",
       "PRIu32": "u", "PRIx32": "x", "PRId32": "d"}


def fnv(text):
    h = 2166136261
    for b in text.encode():
        h = (h ^ b) * 16777619 & 0xFFFFFFFF
    return h


def plain(piece):
    return re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[1]), piece)


def form_at(text, at, defines):
    """The string that stands there, or None where it is made at run time."""
    form = None
    while piece := PIECE.match(text, at):
        if piece[1] is not None:
            part = plain(piece[1])
        elif piece[2] in defines or piece[2] in PRI:
            part = defines.get(piece[2]) or PRI[piece[2]]
        else:
            return None
        form = (form or "") + part
        at = piece.end()
    return form if re.match(r"\s*[,)]", text[at:]) else None


def sources(root):
    for folder in FOLDERS:
        for where, _, names in sorted(os.walk(os.path.join(root, folder))):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    path = os.path.join(where, name)
                    with open(path, encoding="utf-8") as f:
                        yield os.path.relpath(path, root), f.read()


def events(root):
    files = dict(sources(root))
    defines = {}
    for text in files.values():
        defines.update((k, plain(v)) for k, v in DEFINE.findall(text))
    for path, text in files.items():
        for call in CALL.finditer(text):
            form = form_at(text, call.end(), defines)
            if form:
                yield (fnv(form), (call[1] or call[2]).lower(), path,
                       text.count("\n", 0, call.start()) + 1, form)


def main():
    seen, clashes = {}, 0
    for event, level, path, line, form in sorted(events(ROOT),
                                                 key=lambda e: e[2:4]):
        print(f"{event:08x} {level:5s} {path}:{line} {form}")
        if seen.setdefault(event, form) != form:
            print(f"{path}:{line}: has the number of: {seen[event]}",
                  file=sys.stderr)
            clashes += 1
    return 1 if clashes or len(seen) < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
