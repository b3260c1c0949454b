#!/usr/bin/env python3
"""tidy.py - the house style as a test.

use: tests/tidy.py [--self-test] [ROOT]

Checks every C file of the tree: include arrows between folders, purity of the
protocol cores, function length, line width, banned calls, mutable file-scope
state, include guards, the essay at the top, clang-format, trailing blanks,
comments that belong to nothing or name what does not exist; and lists that must
agree (lists.py).
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

# Folders that a test may include: all. Those of the product are declared in
# CMake: the library of folder a/b is loco_a_b, and what it links are its arrows.
EVERYWHERE = "tests"
# Library header -> folders, with those below them, that may include it.
LIBRARIES = {
    r"uv\.h": {"p2p/uv", "daemon", "tests"},
    r"sodium\.h": {"proto", "p2p", "p2p/uv", "daemon", "tests"},
    r"openssl/.*": {"p2p/uv", "tests"},
    r"msgpack.*\.h": {"proto", "tests"},
    r"natpmp\.h": {"p2p/uv"},
    r"curl/.*": {"p2p/uv", "daemon", "tests"},
    r"jansson\.h": {"train", "daemon", "tests"},
    r"pcre2\.h": {"train"},
    r"microhttpd\.h": {"daemon/control", "daemon/watch", "daemon/web",
                        "tests"},
    r"yaml\.h": {"daemon/settings"},
    r"cmocka\.h": {"tests"},
}
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
# The one allocator of the control plane, and that of the simulator, end the
# process with size and site; a check that cannot be made ends the simulator.
MAY_ABORT = {"p2p/uv/loop.c", "daemon/sim/world/world.c",
             "daemon/sim/stages_check.c"}
# Programs with a main of their own; only they may end the process.
MAINS = re.compile(r"^(daemon/main\.c|daemon/cli/cli\.c|tests/.*)$")
STATELESS = re.compile(
    r"^(proto/|p2p/(?!uv/)|train/sync/|daemon/node/)")
STATE_ALLOWED = {"proto/base/log.c"}
# Comments: where a name may stand that the check of mentions finds.
CODE = (".c", ".h", ".def", ".cu", ".cuh", ".cpp", ".in", ".py", ".sh",
        ".cmake", ".txt", ".yaml", ".js")
COMMENT = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(/\*.*?\*/|//[^\n]*)',
    re.S)
# A function, a file, or words joined as only a program's names are; x_i and
# sum_j are mathematics.
MENTION = re.compile(
    r"(?<![\w.])(?:[A-Za-z_]\w*(?=\(\))|[\w-]+\.(?:c|h|def|py|sh)\b|"
    r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*_(?:[a-z0-9]{2,}|s)\b)")
# Made by macros or by CMake, examples, mathematics, and the world outside.
ELSEWHERE = re.compile(
    r"ref_\w+|\w+_avx512|test_\w+|(fast_|\w+_)?TYPE\.c|x_\w+|sum_in|g_low|g_high|"
    r"(member|view)_(fields|schema)|bytes_to_unicode|msgpack_packer_write|"
    r"sd_notify|sd_watchdog_enabled|tcp_min_rtt_wlen|sm_\d+|"
    r"ioprio\.h|ll(m|ama2)\.c")


class Arrows:
    """Which folder may include which, as CMake has it."""

    def __init__(self, lists):
        """lists: folder -> text of its CMakeLists.txt."""
        self.direct = {}  # folder -> folders that it links
        names = {f: "loco_" + f.replace("/", "_") for f in lists}
        folders = {name: f for f, name in names.items()}
        links = {}
        for folder, text in lists.items():
            text = re.sub(r"#[^\n]*", "", text)
            if re.search(rf"add_library\({names[folder]}\s", text):
                self.direct[folder] = set()
            for name, words in re.findall(
                    r"target_link_libraries\(\s*(\w+)([^)]*)\)", text):
                links.setdefault(name, set()).update(words.split())
        # The programs: their folder is what has their main.
        for folder, program in (("daemon", "locod"), ("daemon/cli", "loco")):
            self.direct.setdefault(folder, set())
            links.setdefault(names.get(folder, folder), set()).update(
                links.get(program, set()))
        for folder in self.direct:
            self.direct[folder] = {
                folders[word] for word in self.expand(
                    links.get(names.get(folder, folder), set()), links,
                    folders)} - {folder}

    def expand(self, words, links, folders):
        """Libraries of folders; an interface library stands for its own."""
        found, todo = set(), list(words)
        while todo:
            word = todo.pop()
            if word in folders and folders[word] in self.direct:
                found.add(word)
            elif word.startswith("loco_") and word in links:
                todo += links[word]
        return found

    def allowed(self, folder):
        """What it reaches, itself included."""
        seen, todo = {folder}, [folder]
        while todo:
            for there in self.direct.get(todo.pop(), set()) - seen:
                seen.add(there)
                todo.append(there)
        return seen

    def cycles(self):
        """Folders that reach themselves over others."""
        return sorted(f for f in self.direct if any(
            f in self.allowed(there) for there in self.direct[f]))

    def folder_of(self, path):
        """The nearest folder above `path` that has a library; None."""
        folder = os.path.dirname(path)
        while folder and folder not in self.direct:
            folder = os.path.dirname(folder)
        return folder or (EVERYWHERE if path.startswith("tests/") else None)


ARROWS = None  # of the tree that is checked


def is_pure(path):
    """Protocol cores: p2p without its shell, and the node."""
    return (path.startswith("p2p/") and not path.startswith("p2p/uv/")) \
        or path.startswith("daemon/node/")


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
    here = ARROWS.folder_of(path)
    for match in re.finditer(r'^\s*#\s*include\s*"([^"]+)"', text, re.M):
        name = match.group(1)
        there = ARROWS.folder_of(name)
        line = line_of(text, match.start())
        if there is None and here == EVERYWHERE:
            continue  # a test's own helper beside it
        if there is None:
            yield line, f'include "{name}" by its path from the root'
        elif here != EVERYWHERE and there not in ARROWS.allowed(here):
            yield line, f"{here} must not include {there}: " \
                f"{here}/CMakeLists.txt does not link it"


# Where folders are one library, its private headers are of all of them.
ONE_LIBRARY = ("daemon/sim/",)


def check_private(path, text, code):
    for match in re.finditer(
            r'^\s*#\s*include\s*"([^"]*/(?:\w+_)?internal\.h)"', text, re.M):
        name = match.group(1)
        one = any(path.startswith(f) and name.startswith(f)
                  for f in ONE_LIBRARY)
        if os.path.dirname(name) != os.path.dirname(path) and not one:
            yield (line_of(text, match.start()),
                   f'"{name}" is private to its folder: use a verb or a '
                   "getter of a public header (inspect.h)")


def inside(path, folders):
    return any(path.startswith(folder + "/") for folder in folders)


def check_libraries(path, text, code):
    for match in re.finditer(r"^\s*#\s*include\s*<([^>]+)>", text, re.M):
        for pattern, allowed in LIBRARIES.items():
            if re.fullmatch(pattern, match.group(1)) \
                    and not inside(path, allowed):
                yield (line_of(text, match.start()),
                       f"{os.path.dirname(path)} must not include "
                       f"<{match.group(1)}>")


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


# struct node holds cores and children by value; the child `pairs` is written by
# pairs.c, a core by none of these files: they ask by verbs.
CHILD = re.compile(r"\bn->(\w+)(?:\.\w+|\[[^\]]*\])+\s*"
                   r"(?:=(?!=)|\+\+|--|[-+|&*^]=)|"
                   r"(?:\+\+|--)\s*n->(\w+)\.")
CHILD_FILES = {"fetches": {"fetch"}, "way": {"follow"},
               "sync": {"sync", "follow"}, "eval": {"eval", "eval_pass"},
               "pipe": {"pipe", "pipe_actions"}}
NO_CHILDREN = {"opt", "terms", "lost"}


def check_children(path, text, code):
    if not re.fullmatch(r"daemon/node/\w+\.c", path):
        return
    stem = os.path.basename(path)[:-2]
    for match in CHILD.finditer(code):
        child = match.group(1) or match.group(2)
        if stem not in CHILD_FILES.get(child, {child}) \
                and child not in NO_CHILDREN:
            yield (line_of(code, match.start()),
                   f"{stem}.c writes a field of n->{child}: ask by a verb")


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
        named = re.match(r"/\* (\w+\.c) - ", text)
        if not re.match(r"/\* \S", text):
            yield 1, "the file does not begin with what it is"
        elif named and named.group(1) != name:
            yield 1, f"the file says that it is {named.group(1)}"
    elif not re.match(r"/\* " + re.escape(name) + r" - \S", text):
        yield 1, f'the file does not begin with "/* {name} - ..."'


# What a comment may be for that stands above another one.
SECTION = re.compile(r"----|clang-format|NOLINT|^/\* [\w./]+\.[ch](?=[ :])")


def check_orphans(path, text, code):
    for match in re.finditer(r"^/\*(?:(?!\*/).)*\*/(?=\n/\*)", text,
                             re.M | re.S):
        after = text[match.end() + 1:].split("\n", 1)[0]
        if match.start() > 0 and not SECTION.search(match.group(0)) \
                and not SECTION.search(after):
            yield line_of(text, match.start()), "a comment of nothing: what " \
                "it was above has moved"


CHECKS = (check_arrows, check_private, check_libraries, check_pure, check_functions,
          check_columns, check_blanks, check_banned, check_children,
          check_state, check_guard, check_essay, check_orphans)


def names_of(path, text):
    """Every word of a file that a comment may name, comments left out."""
    if path.endswith(".py"):
        text = re.sub(r"#.*", "", text)
    else:
        text = COMMENT.sub(lambda m: " " if m.group(1) else m.group(0), text)
    name = os.path.basename(path)
    return {name, name.split(".")[0], *re.findall(r"\w+", text),
            *re.findall(r"[\w-]+\.\w+", text)}


def names_in(root):
    names = set()
    for base, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if not d.startswith((".", "build"))
                   and d not in ("__pycache__", "corpus")]
        for name in files:
            if name.endswith(CODE):
                path = os.path.join(base, name)
                with open(path, encoding="utf-8") as f:
                    names |= names_of(path, f.read())
    return names


def check_mentions(path, text, names):
    """Yields (line, what) for each name in a comment that is none."""
    for comment in COMMENT.finditer(text):
        for match in MENTION.finditer(comment.group(1) or ""):
            name = match.group(0)
            if name not in names and not ELSEWHERE.fullmatch(name):
                yield (line_of(text, comment.start() + match.start()),
                       f"the comment names {name}, which does not exist")


def run_checks(path, text, names):
    code = blank(text)
    for line, what in check_mentions(path, text, names):
        yield f"{path}:{line}: {what}"
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


def read_arrows(root):
    """The tree's arrows; a finding for each folder in a cycle."""
    lists_of = {}
    for folder in FOLDERS:
        for base, _, files in os.walk(os.path.join(root, folder)):
            if "CMakeLists.txt" in files:
                with open(os.path.join(base, "CMakeLists.txt"),
                          encoding="utf-8") as f:
                    lists_of[os.path.relpath(base, root)] = f.read()
    arrows = Arrows(lists_of)
    return arrows, [f"{folder}/CMakeLists.txt:1: {folder} reaches itself over "
                    "the folders that it links" for folder in arrows.cycles()]


def main(root):
    global ARROWS
    paths = list(sources(root))
    ARROWS, findings = read_arrows(root)
    names = names_in(root)
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            findings += run_checks(path, f.read(), names)
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

# A tree of folders for check_arrows.
TREE = {
    "proto": "add_library(loco_proto STATIC a.c)\n"
             "target_link_libraries(loco_proto PUBLIC loco_proto_base)",
    "proto/base": "add_library(loco_proto_base STATIC a.c)",
    "p2p": "add_library(loco_p2p STATIC a.c)\n"
           "target_link_libraries(loco_p2p PUBLIC loco_proto)",
    "p2p/uv": "add_library(loco_p2p_uv STATIC a.c)\n"
              "target_link_libraries(loco_p2p_uv PUBLIC loco_p2p)",
    "train": "add_library(loco_train INTERFACE)\n"
             "target_link_libraries(loco_train INTERFACE loco_train_model)",
    "train/model": "add_library(loco_train_model STATIC a.c)\n"
                   "target_link_libraries(loco_train_model\n"
                   "  PUBLIC loco_proto_base)",
    "daemon": "add_executable(locod main.c)\n"
              "target_link_libraries(locod PRIVATE loco_daemon_node"
              " loco_train)",
    "daemon/node": "add_library(loco_daemon_node STATIC a.c)\n"
                   "target_link_libraries(loco_daemon_node PUBLIC loco_p2p)",
}
LONG = "void f(void)\n{\n" + "    g();\n" * FUNCTION_MAX + "}\n"
# (check, path, snippet, whether it must be found)
SNIPPETS = [
    (check_arrows, "p2p/x.c", '#include "train/model/llama.h"\n', True),
    (check_arrows, "p2p/x.c", '#include "p2p/uv/loop.h"\n', True),
    (check_arrows, "p2p/uv/x.c", '#include "p2p/core.h"\n', False),
    (check_arrows, "train/model/x.c", '#include "p2p/core.h"\n', True),
    (check_arrows, "train/model/x.c", '#include "proto/id.h"\n', True),
    (check_arrows, "train/model/x.c", '#include "proto/base/err.h"\n', False),
    (check_arrows, "proto/x.c", '#include "daemon/node/node.h"\n', True),
    (check_arrows, "proto/x.c", '#include "id.h"\n', True),
    (check_arrows, "daemon/node/x.c", '#include "proto/id.h"\n', False),
    (check_arrows, "daemon/node/x.c", '#include "train/model/llama.h"\n',
     True),
    (check_arrows, "daemon/main.c", '#include "train/model/llama.h"\n', False),
    (check_arrows, "tests/x.c", '#include "train/model/llama.h"\n', False),
    (check_private, "tests/x.c", '#include "p2p/dht/internal.h"\n', True),
    (check_private, "tests/unit/daemon/x.h",
     '#include "daemon/machine/internal.h"\n', True),
    (check_private, "daemon/sim/x.c", '#include "daemon/node/internal.h"\n',
     True),
    (check_private, "p2p/x.c", '#include "p2p/uv/conn_internal.h"\n', True),
    (check_private, "p2p/dht/x.c", '#include "p2p/dht/internal.h"\n', False),
    (check_private, "daemon/sim/x.c",
     '#include "daemon/sim/world/internal.h"\n', False),
    (check_private, "tests/x.c", '#include "p2p/dht/inspect.h"\n', False),
    (check_libraries, "train/x.c", "#include <sodium.h>\n", True),
    (check_libraries, "p2p/x.c", "#include <uv.h>\n", True),
    (check_libraries, "p2p/x.c", "#include <sodium.h>\n", False),
    (check_pure, "p2p/x.c", "#include <uv.h>\n", True),
    (check_pure, "p2p/x.c", "#include <time.h>\n", True),
    (check_pure, "daemon/node/node.c", "#include <pthread.h>\n", True),
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
    (check_children, "daemon/node/view.c", "    n->held.known = x;\n", True),
    (check_children, "daemon/node/view.c", "    n->round.kept.n++;\n", True),
    (check_children, "daemon/node/view.c", "    n->view.join_ms = 0;\n", False),
    (check_children, "daemon/node/follow.c", "    n->sync.phase = 1;\n",
     False),
    (check_children, "daemon/node/view.c",
     "    if (n->held.known.round == x) {\n", False),
    (check_children, "daemon/machine/x.c", "    n->held.known = x;\n", False),
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
    (check_state, "daemon/node/view.c", "static int counter = 0;\n", True),
    (check_state, "daemon/main.c", "static int counter;\n", False),
    (check_guard, "p2p/x.h", "#ifndef X_H\n#define X_H\n#endif\n", True),
    (check_guard, "p2p/x.h",
     "#ifndef LOCO_P2P_X_H\n#define LOCO_P2P_X_H\n#endif\n", False),
    (check_essay, "p2p/x.h", "#ifndef LOCO_P2P_X_H\n", True),
    (check_essay, "p2p/x.h", "/* x.h - what an x is.\n */\n", False),
    (check_essay, "p2p/x.c", "#include <stdio.h>\n", True),
    (check_essay, "p2p/x.c", "/* y.c - see y.h. */\n", True),
    (check_essay, "p2p/x.c", "/* x.c - see x.h. */\n", False),
    (check_essay, "p2p/x.c", "/* Bytes to words. */\n", False),
    (check_orphans, "p2p/x.h", "int a;\n/* Of b. */\n/* Of c. */\nint c;\n",
     True),
    (check_orphans, "p2p/x.h", "/* x.h - an x. */\n/* Of c. */\nint c;\n",
     False),
    (check_orphans, "p2p/x.h",
     "int a;\n/* ---- b ---- */\n/* Of c. */\nint c;\n", False),
    (check_orphans, "p2p/x.h", "int a;\n/* y.c */\n/* Of c. */\nint c;\n",
     False),
    (check_orphans, "p2p/x.h", "int a;\n/* Of c. */\nint c;\n", False),
]
# What a comment says, and whether a name in it must be found to be none, where
# these are the other files.
OTHERS = {"train/x.c": '/* old_name() */\nint h_open(void)\n{\n    say("key_of");\n}\n',
          "tests/y_test.py": "def check_it():  # as gone_by() did\n    pass\n"}
MENTIONS = [
    ("h_open() is called first", False),
    ("old_name() is called first", True),
    ("gone_by() is called first", True),
    ("h_close() is called last", True),
    ("the member h_opened", True),
    ("the setting key_of", False),
    ("tests/y_test.py, check_it", False),
    ("see train/x.c and x.h", True),
    ("see train/x.c", False),
    ("sum_j x_j of f(x)", False),
    ("made: ref_matmul()", False),
]


def self_test():
    global ARROWS
    failures = 0
    ARROWS = Arrows(TREE)
    round_trip = dict(TREE, proto=TREE["proto"] + "\n"
                      "target_link_libraries(loco_proto PUBLIC loco_p2p)")
    if ARROWS.cycles() or Arrows(round_trip).cycles() != ["p2p", "proto"]:
        failures += 1
        print("a cycle of folders is not seen, or seen where there is none")
    for check, path, snippet, must_find in SNIPPETS:
        found = list(check(path, snippet, blank(snippet)))
        if bool(found) != must_find:
            failures += 1
            print(f"{check.__name__} {'missed' if must_find else 'minded'} "
                  f"in {path}: {snippet!r} {found}")
    names = set().union(*(names_of(p, t) for p, t in OTHERS.items()))
    for sentence, must_find in MENTIONS:
        snippet = f"int a; /* {sentence} */\n"
        found = list(check_mentions("train/z.c", snippet, names))
        if bool(found) != must_find:
            failures += 1
            print(f"check_mentions {'missed' if must_find else 'minded'}: "
                  f"{sentence!r} {found}")
    unproven = [c.__name__ for c in CHECKS
                if not any(s[0] is c and s[3] for s in SNIPPETS)]
    for name in unproven:
        failures += 1
        print(f"{name} has no snippet that it must find")
    cases, wrong = lists.self_test()
    for sentence in wrong:
        failures += 1
        print(sentence)
    print(f"tidy self-test: {len(SNIPPETS) + len(MENTIONS)} snippets, {cases} lists, "
          f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    arguments = sys.argv[1:]
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main(arguments[0] if arguments else here))
