#!/usr/bin/env python3
"""tidy.py - the house style as a test.

use: tests/tidy.py [--self-test] [ROOT]

Checks every C file of the tree: include arrows between folders, purity of the
protocol cores, function length, line width, banned calls, mutable file-scope
state, include guards, the essay at the top, clang-format, trailing blanks; and
lists that must agree (lists.py).
Prints "FILE:LINE: what" per finding; exit 0 only when there is none.
--self-test feeds each check a snippet that it must find and one that it must
not, and fails when a check is blind or too eager.
"""
import os
import re
import shutil
import subprocess
import sys

import lists

FUNCTION_MAX = 70  # lines from { to }
COLUMNS = 80
FOLDERS = ("proto", "kernels", "train", "p2p", "daemon", "tests")

# Folder (longest prefix first) -> what a file there may include of ours.
ARROWS = {
    "proto/base": {"proto/base"},
    "proto": {"proto/base", "proto"},
    "kernels": {"proto/base", "kernels"},
    "train": {"proto/base", "kernels", "train"},
    "p2p/uv": {"proto/base", "proto", "p2p", "p2p/uv"},
    "p2p": {"proto/base", "proto", "p2p"},
    "daemon": {"proto/base", "proto", "kernels", "train", "p2p", "p2p/uv",
               "daemon"},
    "tests": {"proto/base", "proto", "kernels", "train", "p2p", "p2p/uv",
              "daemon", "tests"},
}
# Library header -> folders that may include it.
LIBRARIES = {
    r"uv\.h": {"p2p/uv", "daemon", "tests"},
    r"sodium\.h": {"proto", "p2p", "p2p/uv", "daemon", "tests"},
    r"openssl/.*": {"p2p/uv", "tests"},
    r"msgpack.*\.h": {"proto", "tests"},
    r"(natpmp|miniupnpc/.*)\.h": {"p2p/uv"},
    r"curl/.*": {"p2p/uv", "daemon", "tests"},
    r"jansson\.h": {"train", "daemon", "tests"},
    r"pcre2\.h": {"train"},
    r"microhttpd\.h": {"daemon", "tests"},
    r"(yaml|cyaml/.*)\.h": {"daemon", "tests"},
    r"cmocka\.h": {"tests"},
}
# The whole peer is a pure core too: it may see p2p and proto, nothing else.
NODE = re.compile(r"daemon/node(_\w+)?\.[ch]$")
NODE_ARROWS = {"proto/base", "proto", "p2p", "daemon"}
PURE_HEADERS = re.compile(
    r"^(uv|time|sys/time|pthread|threads|sys/socket|netdb|unistd|fcntl|poll|"
    r"sys/epoll|sys/stat|signal)\.h$")
PURE_CALLS = re.compile(
    r"\b(clock_gettime|getrandom|random|getenv|socket|open|fopen|read|write|"
    r"pthread_\w+|uv_\w+|randombytes\w*|printf|fprintf)\s*\(")
# Where a core may take memory: what opens, creates or closes it.
ALLOCATORS = re.compile(r"\b(malloc|calloc|realloc|aligned_alloc|strdup)\s*\(")
OPENERS = re.compile(r"(_open|_init|_new|_create|^open_\w+)$")
BANNED = re.compile(
    r"\b(sprintf|vsprintf|strcpy|strcat|strncpy|atoi|atol|atof|rand|srand|"
    r"time|gettimeofday|gethostbyname|system|gets|strtok|alloca)\s*\(")
EXITS = re.compile(r"\b(exit|_exit|abort)\s*\(")
# The control plane's one allocator ends the process with size and site.
MAY_ABORT = {"p2p/uv/loop.c"}
# Programs with a main of their own; only they may end the process.
MAINS = re.compile(r"^(daemon/(main|cli)\.c|tests/.*)$")
STATELESS = re.compile(
    r"^(proto/|p2p/(?!uv/)|train/sync/|daemon/node(_\w+)?\.c)")
STATE_ALLOWED = {"proto/base/log.c"}


def folder_of(path):
    """The longest key of ARROWS that `path` lies in."""
    for name in sorted(ARROWS, key=len, reverse=True):
        if path.startswith(name + "/"):
            return name
    return None


def is_pure(path):
    """Protocol cores: p2p without its shell, and the node."""
    return (path.startswith("p2p/") and not path.startswith("p2p/uv/")) \
        or bool(NODE.match(path))


def blank(text):
    """The text with comments, strings and characters blanked out; newlines
    and length stay, so that places are those of the file."""
    pattern = re.compile(
        r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
        re.S)

    def cover(match):
        body = match.group(0)
        if body[0] in "\"'":
            return body[0] + "_" * (len(body) - 2) + body[0]
        return re.sub(r"[^\n]", " ", body)

    return pattern.sub(cover, text)


def line_of(text, index):
    return text.count("\n", 0, index) + 1


def functions(code):
    """(name, first line of the body, lines, body) of every function, braces
    in the first column as clang-format puts them."""
    for match in re.finditer(r"^\{$", code, re.M):
        end = re.compile(r"^\}", re.M).search(code, match.end())
        if end is None:
            continue
        head = code[:match.start()].rstrip()
        name = re.search(r"(\w+)\s*\([^{};]*\)[^(){};]*$", head)
        body = code[match.start():end.end()]
        yield (name.group(1) if name else "?", line_of(code, match.start()),
               body.count("\n") + 1, body)


# ---- the checks: each yields (line, what) -----------------------------------


def check_arrows(path, text, code):
    here = folder_of(path)
    allowed = NODE_ARROWS if NODE.match(path) else ARROWS.get(here, set())
    for match in re.finditer(r'^\s*#\s*include\s*"([^"]+)"', text, re.M):
        there = folder_of(match.group(1))
        line = line_of(text, match.start())
        local = os.path.join(os.path.dirname(path), match.group(1))
        if there is None and path.startswith("tests/"):
            continue  # a test's own helper beside it
        if there is None:
            yield line, f'include "{match.group(1)}" by its path from the root' \
                f' (not {local})'
        elif there not in allowed:
            yield line, f"{here} must not include {there}"


def check_libraries(path, text, code):
    here = folder_of(path)
    for match in re.finditer(r"^\s*#\s*include\s*<([^>]+)>", text, re.M):
        for pattern, allowed in LIBRARIES.items():
            if re.fullmatch(pattern, match.group(1)) and here not in allowed:
                yield (line_of(text, match.start()),
                       f"{here} must not include <{match.group(1)}>")


def check_pure(path, text, code):
    if not is_pure(path):
        return
    for match in re.finditer(r"^\s*#\s*include\s*<([^>]+)>", text, re.M):
        if PURE_HEADERS.match(match.group(1)):
            yield (line_of(text, match.start()),
                   f"a pure core must not include <{match.group(1)}>")
    if not path.endswith(".c"):
        return
    for name, line, _, body in functions(code):
        for match in PURE_CALLS.finditer(body):
            yield (line + body.count("\n", 0, match.start()),
                   f"a pure core must not call {match.group(1)}")
        for match in ALLOCATORS.finditer(body):
            if not OPENERS.search(name):
                yield (line + body.count("\n", 0, match.start()),
                       f"{name}: no allocation after init in a pure core")


def check_functions(path, text, code):
    for name, line, lines, _ in functions(code):
        if lines > FUNCTION_MAX:
            yield line, f"{name} has {lines} lines, more than {FUNCTION_MAX}"


def check_columns(path, text, code):
    if path.endswith(".def"):
        return
    exempt = False
    for number, line in enumerate(text.split("\n"), 1):
        if "clang-format off" in line:
            exempt = True
        elif "clang-format on" in line:
            exempt = False
        if len(line) > COLUMNS and not exempt and "://" not in line:
            yield number, f"{len(line)} columns, more than {COLUMNS}"


def check_blanks(path, text, code):
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
        if "\t" in line:
            yield number, "a tab"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file"


def check_banned(path, text, code):
    for match in BANNED.finditer(code):
        yield line_of(code, match.start()), f"{match.group(1)} is banned"
    if not MAINS.match(path):
        for match in EXITS.finditer(code):
            if match.group(1) == "abort" and path in MAY_ABORT:
                continue
            yield (line_of(code, match.start()),
                   f"{match.group(1)} outside a main file")


STATIC = re.compile(
    r"^(?:static|_Thread_local|extern)\b(?P<rest>[^;{(=]*)(?P<end>[;={(\[])",
    re.M)


def check_state(path, text, code):
    if not STATELESS.match(path) or path in STATE_ALLOWED:
        return
    depth, at = 0, 0
    outside = []  # code at file scope, the rest blanked
    for char in code:
        depth -= char == "}"
        outside.append(char if depth == 0 or char == "\n" else " ")
        depth += char == "{"
        at += 1
    scope = "".join(outside)
    for match in STATIC.finditer(scope):
        rest = match.group("rest")
        if match.group("end") == "(" or "inline" in rest:
            continue  # a function
        # The last word before the name says what is constant: for a table of
        # pointers "char *const names" counts, "const char *names" does not.
        last = rest[rest.rfind("*") + 1:] if "*" in rest else rest
        if not re.search(r"\bconst\b", last):
            yield (line_of(code, match.start()),
                   f"mutable file-scope state:{rest.rstrip()}")
    for _, line, _, body in functions(code):
        for match in re.finditer(r"^\s+static\s+([^;={(\[]*)", body, re.M):
            rest = match.group(1)
            last = rest[rest.rfind("*") + 1:] if "*" in rest else rest
            if not re.search(r"\bconst\b", last):
                yield (line + body.count("\n", 0, match.start()) + 0,
                       f"mutable static: {rest.strip()}")


def check_guard(path, text, code):
    if not path.endswith(".h"):
        return
    want = "LOCO_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper()
    if f"#ifndef {want}\n#define {want}\n" not in text:
        yield 1, f"the include guard is not {want}"


def check_essay(path, text, code):
    name = os.path.basename(path)
    if path.endswith(".c"):
        if not re.match(r"/\* \S", text):
            yield 1, "the file does not begin with what it is"
    elif not re.match(r"/\* " + re.escape(name) + r" - \S", text):
        yield 1, f'the file does not begin with "/* {name} - ..."'


CHECKS = (check_arrows, check_libraries, check_pure, check_functions,
          check_columns, check_blanks, check_banned, check_state, check_guard,
          check_essay)


def run_checks(path, text):
    code = blank(text)
    for check in CHECKS:
        for line, what in check(path, text, code):
            yield f"{path}:{line}: {what}"


def check_format(root, paths):
    """Findings of clang-format, and whether it could run."""
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    if program is None:
        return [], False
    findings = []
    paths = [p for p in paths if p.endswith((".c", ".h"))]
    for start in range(0, len(paths), 50):
        done = subprocess.run(
            [program, "--dry-run", "--ferror-limit=1"]
            + paths[start:start + 50],
            cwd=root, capture_output=True, text=True, timeout=120)
        findings += re.findall(r"^(\S+?:\d+):\d+: (?:warning|error): "
                               r"code should be clang-formatted",
                               done.stderr, re.M)
    return [f"{f}: clang-format would change this" for f in findings], True


def sources(root):
    for folder in FOLDERS:
        for base, dirs, files in os.walk(os.path.join(root, folder)):
            dirs[:] = [d for d in sorted(dirs)
                       if d not in ("__pycache__", "corpus")]
            for name in sorted(files):
                if name.endswith((".c", ".h", ".def")):
                    yield os.path.relpath(os.path.join(base, name), root)


def main(root):
    paths = list(sources(root))
    findings = []
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            findings += run_checks(path, f.read())
    formatted, ran = check_format(root, paths)
    disagree = lists.findings(root)
    for finding in findings + formatted + disagree:
        print(finding)
    if not ran:
        print("tidy: clang-format is not installed: layout not checked")
    total = len(findings) + len(formatted) + len(disagree)
    print(f"tidy: {len(paths)} files, {total} findings")
    return 1 if total or not paths else 0


# ---- self-test --------------------------------------------------------------

LONG = "void f(void)\n{\n" + "    g();\n" * FUNCTION_MAX + "}\n"
# (check, path, snippet, whether it must be found)
SNIPPETS = [
    (check_arrows, "p2p/x.c", '#include "train/llama.h"\n', True),
    (check_arrows, "p2p/x.c", '#include "p2p/uv/loop.h"\n', True),
    (check_arrows, "p2p/uv/x.c", '#include "p2p/core.h"\n', False),
    (check_arrows, "train/x.c", '#include "p2p/core.h"\n', True),
    (check_arrows, "train/x.c", '#include "proto/id.h"\n', True),
    (check_arrows, "train/x.c", '#include "proto/base/err.h"\n', False),
    (check_arrows, "proto/x.c", '#include "daemon/node.h"\n', True),
    (check_arrows, "proto/x.c", '#include "id.h"\n', True),
    (check_arrows, "daemon/node_round.c", '#include "train/llama.h"\n', True),
    (check_arrows, "daemon/main.c", '#include "train/llama.h"\n', False),
    (check_libraries, "train/x.c", "#include <sodium.h>\n", True),
    (check_libraries, "p2p/x.c", "#include <uv.h>\n", True),
    (check_libraries, "p2p/x.c", "#include <sodium.h>\n", False),
    (check_pure, "p2p/x.c", "#include <uv.h>\n", True),
    (check_pure, "p2p/x.c", "#include <time.h>\n", True),
    (check_pure, "daemon/node.c", "#include <pthread.h>\n", True),
    (check_pure, "p2p/uv/x.c", "#include <time.h>\n", False),
    (check_pure, "p2p/x.c", "int f(void)\n{\n    return !malloc(1);\n}\n",
     True),
    (check_pure, "p2p/x.c", "int x_open(void)\n{\n    return !malloc(1);\n}\n",
     False),
    (check_pure, "p2p/x.c", "void f(void)\n{\n    clock_gettime(0, 0);\n}\n",
     True),
    (check_pure, "p2p/x.c", "void f(void)\n{\n    /* malloc( */\n}\n", False),
    (check_functions, "train/x.c", LONG, True),
    (check_functions, "train/x.c", "void f(void)\n{\n    g();\n}\n", False),
    (check_columns, "train/x.c", "int a" + "b" * 80 + ";\n", True),
    (check_columns, "train/x.c",
     "/* clang-format off */\nint " + "b" * 80 + ";\n", False),
    (check_columns, "train/x.c", "/* https://" + "b" * 80 + " */\n", False),
    (check_blanks, "train/x.c", "int a; \n", True),
    (check_blanks, "train/x.c", "\tint a;\n", True),
    (check_blanks, "train/x.c", "int a;", True),
    (check_blanks, "train/x.c", "int a;\n", False),
    (check_banned, "train/x.c", "    strcpy(a, b);\n", True),
    (check_banned, "train/x.c", "    x = rand();\n", True),
    (check_banned, "train/x.c", "    t = time(NULL);\n", True),
    (check_banned, "train/x.c", "    exit(1);\n", True),
    (check_banned, "daemon/main.c", "    exit(1);\n", False),
    (check_banned, "train/x.c", '    say("time(now)"); /* rand() */\n', False),
    (check_banned, "train/x.c", "    n = snprintf(a, 1, b);\n", False),
    (check_banned, "train/x.c", "    n = wall_time(a);\n", False),
    (check_state, "p2p/x.c", "static int counter;\n", True),
    (check_state, "p2p/x.c", "static const char *name = 0;\n", True),
    (check_state, "p2p/x.c", "static struct a b[4];\n", True),
    (check_state, "p2p/x.c", "int f(void)\n{\n    static int n;\n}\n", True),
    (check_state, "p2p/x.c", "static const int table[] = {1};\n", False),
    (check_state, "p2p/x.c", "static const char *const names[] = {0};\n",
     False),
    (check_state, "p2p/x.c", "static int f(int a);\n", False),
    (check_state, "p2p/x.c",
     "static int f(int a)\n{\n    int b = a;\n    return b;\n}\n", False),
    (check_state, "daemon/node_view.c", "static int counter = 0;\n", True),
    (check_state, "daemon/main.c", "static int counter;\n", False),
    (check_guard, "p2p/x.h", "#ifndef X_H\n#define X_H\n#endif\n", True),
    (check_guard, "p2p/x.h",
     "#ifndef LOCO_P2P_X_H\n#define LOCO_P2P_X_H\n#endif\n", False),
    (check_essay, "p2p/x.h", "#ifndef LOCO_P2P_X_H\n", True),
    (check_essay, "p2p/x.h", "/* x.h - what an x is.\n */\n", False),
    (check_essay, "p2p/x.c", "#include <stdio.h>\n", True),
    (check_essay, "p2p/x.c", "/* Bytes to words. */\n", False),
]


def self_test():
    failures = 0
    for check, path, snippet, must_find in SNIPPETS:
        found = list(check(path, snippet, blank(snippet)))
        if bool(found) != must_find:
            failures += 1
            print(f"{check.__name__} {'missed' if must_find else 'minded'} "
                  f"in {path}: {snippet!r} {found}")
    unproven = [c.__name__ for c in CHECKS
                if not any(s[0] is c and s[3] for s in SNIPPETS)]
    for name in unproven:
        failures += 1
        print(f"{name} has no snippet that it must find")
    cases, wrong = lists.self_test()
    for sentence in wrong:
        failures += 1
        print(sentence)
    print(f"tidy self-test: {len(SNIPPETS)} snippets, {cases} lists, "
          f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    arguments = sys.argv[1:]
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main(arguments[0] if arguments else here))
