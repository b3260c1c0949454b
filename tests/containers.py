#!/usr/bin/env python3
"""containers.py - the container files, read as a builder would read them.

use: python3 tests/containers.py
     sudo python3 tests/containers.py --build amd64=BASE.tar [arm64=BASE.tar]

With --build deploy/Dockerfile is built by buildah on root file systems of
Debian 12 in tar files, as debootstrap --variant=minbase makes them, this
machine's first, and podman runs what it has built (container_runs.py; Debian:
buildah, podman, crun, qemu-user-static). The image of Dockerfile.cuda needs
NVIDIA's server. It takes minutes.

Without it no builder runs: this finds what breaks a build before its first
download.
Of each Dockerfile: instructions that exist, FROM first, stages that are named
before they are copied from, files of the tree that are copied or sourced, RUN
as sh -n reads it, the JSON of exec forms, settings that locod has, no options
of locod, as these outweigh what `docker run -e` sets. compose.yaml: its
Dockerfile and settings.
"""
import json
import os
import re
import shlex
import subprocess
import sys

import container_runs

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = ("deploy/Dockerfile", "deploy/Dockerfile.cuda")
KNOWN = {"FROM", "COPY", "ADD", "WORKDIR", "RUN", "ENV", "USER", "VOLUME",
         "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD", "ARG",
         "LABEL", "SHELL"}


def settings():
    with open(os.path.join(ROOT, "daemon/settings/options.def"), encoding="ascii") as f:
        return set(re.findall(r"^OPTION\((\w+)", f.read(), re.M))


def instructions(text):
    """(line number, word, rest) with continued lines put together."""
    whole, begin = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#") or (not whole and not line.strip()):
            continue
        begin = begin if whole else number
        whole += line
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        word, _, rest = whole.strip().partition(" ")
        yield begin, word, rest.strip()
        whole = ""
    if whole:
        yield begin, "", "a line that goes on ends the file"


def shell_minds(script):
    done = subprocess.run(["sh", "-n"], input=script, text=True,
                          capture_output=True, check=False)
    return done.stderr.strip() if done.returncode != 0 else None


def of_run(rest, root):
    if minds := shell_minds(rest):
        yield f"sh: {minds}"
    for name in re.findall(r"(?:^|&&|;)\s*\.\s+(\S+)", rest):
        if not os.path.exists(os.path.join(root, name)):
            yield f"sources {name}, which is not there"


def of_copy(rest, stages, root):
    words = shlex.split(rest)
    flags = [w for w in words if w.startswith("--")]
    words = [w for w in words if not w.startswith("--")]
    if len(words) < 2:
        yield "copies nothing, or to nowhere"
        return
    if len(words) > 2 and not words[-1].endswith("/"):
        yield "copies several files to what is no directory"
    for flag in flags:
        name, _, value = flag.partition("=")
        if name == "--from" and value not in stages:
            yield f"copies from the stage {value}, which is not above"
    if not any(f.startswith("--from=") for f in flags):
        for source in words[:-1]:
            if "://" not in source and not os.path.exists(
                    os.path.join(root, source)):
                yield f"copies {source}, which is not there"


def of_env(rest, known):
    for pair in shlex.split(rest):
        name, equals, _ = pair.partition("=")
        if not equals:
            yield f"{pair}: NAME=VALUE"
        elif name.startswith("LOCO_") and name[5:].lower() not in known:
            yield f"{name} is no setting of locod"


def of_exec(rest, known):
    rest = rest[rest.find("["):] if "[" in rest else rest
    try:
        words = json.loads(rest)
    except ValueError:
        yield "is no JSON list of words"
        return
    if words[0] == "locod":
        for word in words[1:]:
            yield (f"{word} outweighs the environment" if word[2:].replace("-", "_") in known
                   else f"{word} is no option of locod")


def of_dockerfile(text, root=ROOT):
    known, stages, arguments, first = settings(), set(), set(), True
    for number, word, rest in instructions(text):
        found = []
        if word not in KNOWN:
            found.append(f"{word or rest}: no instruction")
        elif first and word not in ("FROM", "ARG"):
            found.append("FROM is to be first")
        elif word == "FROM":
            parts = [w for w in rest.split() if not w.startswith("--")] or [""]
            if len(parts) not in (1, 3) or (len(parts) == 3 and
                                            parts[1].upper() != "AS"):
                found.append("FROM IMAGE [AS NAME]")
            elif parts[0].startswith("$"):
                found += [] if parts[0][1:] in arguments else [f"{parts[0]}: no ARG above"]
            elif ":" not in parts[0] and parts[0] not in stages:
                found.append(f"{parts[0]}: no stage above, and no tag")
            stages.update(parts[2:3])
        elif word == "ARG":
            arguments.add(rest.partition("=")[0])
        elif word == "RUN":
            found += of_run(rest, root)
        elif word in ("COPY", "ADD"):
            found += of_copy(rest, stages, root)
        elif word == "ENV":
            found += of_env(rest, known)
        elif word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
            found += of_exec(rest, known)
        first = first and word == "ARG"
        yield from (f"line {number}: {sentence}" for sentence in found)
    if "ENTRYPOINT" not in {w for _, w, _ in instructions(text)}:
        yield "there is no ENTRYPOINT"


def of_compose(text, root=ROOT):
    known = settings()
    for name in re.findall(r"^ +dockerfile: (\S+)", text, re.M) or ["?"]:
        if not os.path.exists(os.path.join(root, name)):
            yield f"{name} is not there"
    for name, value in re.findall(r"^ +LOCO_(\w+): (.*)", text, re.M):
        if name.lower() not in known:
            yield f"LOCO_{name} is no setting of locod"
        if value.count("{") != value.count("}"):
            yield f"LOCO_{name}: {value}"
    if "\t" in text:
        yield "a tab"


GOOD = ('ARG B=x:1\nFROM --platform=$P debian:12 AS a\nRUN echo x \\\n    && echo y\n'
        'FROM $B\nFROM a\nCOPY --from=a /x /y/\nENV LOCO_DEVICE=cuda\n'
        'ENTRYPOINT ["locod"]\n')
WRONG = (("RUN echo x", "RUM echo x"), ("FROM --platform=$P debian:12 AS a\n", ""),
         ("&& echo y", "&& (echo y"), ("--from=a", "--from=b"),
         ("--from=a /x", "nothere"), ("LOCO_DEVICE", "LOCO_DEVISE"),
         ('"]', '"'), ('"]', '", "--state", "/s"]'), ('"]', '", "--stade"]'),
         ("FROM a", "FROM b"), ("FROM $B", "FROM $C"),
         ("debian:12 AS", "debian:12 IS"), ("/y/", ""),
         ("ENTRYPOINT", "LABEL"), ("cuda\n", "cuda \\\n"))


def self_test():
    wrong = list(of_dockerfile(GOOD))
    for right, change in WRONG:
        if not list(of_dockerfile(GOOD.replace(right, change, 1))):
            wrong.append(f"finds nothing wrong with {change!r}")
    if list(of_compose("      dockerfile: deploy/Dockerfile\n"
                       "      LOCO_STATE: ${A:-b}\n")):
        wrong.append("minds a good compose file")
    for text in ("      dockerfile: x\n", "  dockerfile: deploy/Dockerfile\n"
                 "      LOCO_STADE: 1\n"):
        if len(list(of_compose(text))) != 1:
            wrong.append(f"finds nothing wrong with {text!r}")
    return wrong


def main():
    if sys.argv[1:2] == ["--build"]:
        return container_runs.build(dict(word.split("=", 1) for word in sys.argv[2:]))
    found = [f"self-test: {sentence}" for sentence in self_test()]
    for name, check in [(n, of_dockerfile) for n in FILES] + [
            ("deploy/compose.yaml", of_compose)]:
        with open(os.path.join(ROOT, name), encoding="ascii") as f:
            found += [f"{name}: {sentence}" for sentence in check(f.read())]
    print("\n".join(found) or f"{len(FILES) + 1} files, 0 findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
