"""lists.py - lists of the tree that must agree, and nothing compiles them.

A test that no list names never runs, and nobody notices: what lies in a folder
is compared with what builds or imports it, and with the pages that tell of it.
tidy.py runs this; `self_test` feeds each comparison a tree that is right and
one that is not.
"""
import json
import os
import re


class Tree:
    """Files of a folder, or of a dictionary in the self-test."""

    def __init__(self, root=None, files=None):
        self.root, self.files = root, files

    def text(self, path):
        if self.files is not None:
            return self.files.get(path, "")
        try:
            with open(os.path.join(self.root, path), encoding="utf-8") as f:
                return f.read()
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def has(self, path):
        if self.files is not None:
            return any(p == path or p.startswith(path.rstrip("/") + "/")
                       for p in self.files)
        return os.path.exists(os.path.join(self.root, path))

    def names(self, folder):
        if self.files is not None:
            return sorted({p[len(folder) + 1:].split("/")[0]
                           for p in self.files if p.startswith(folder + "/")})
        at = os.path.join(self.root, folder)
        return sorted(os.listdir(at)) if os.path.isdir(at) else []


def differ(where, have, want, what):
    for name in sorted(want - have):
        yield f"{where}: {name} is missing: {what}"
    for name in sorted(have - want):
        yield f"{where}: {name} is no such thing: {what}"


def unit_tests(tree):
    """unit/FOLDER/NAME_test.c and loco_unit(FOLDER NAME ...)."""
    for folder in tree.names("tests/unit"):
        where = f"tests/unit/{folder}/tests.cmake"
        built = set(re.findall(rf"^\s*loco_unit\({folder} (\w+)",
                               tree.text(where), re.M))
        for names in re.findall(r"^\s*foreach\(name ([\w\s]+)\)\s*"
                                rf"loco_unit\({folder} \$\{{name\}}",
                                tree.text(where), re.M):
            built |= set(names.split())
        files = {n[:-len("_test.c")]
                 for n in tree.names(f"tests/unit/{folder}")
                 if n.endswith("_test.c")}
        yield from differ(where, built, files,
                          "each NAME_test.c has a line loco_unit")


def seeds(tree):
    """Every fuzz target begins with something that is right."""
    targets = {n[:-len("_fuzz.c")] for n in tree.names("tests/fuzz")
               if n.endswith("_fuzz.c")}
    yield from differ("tests/fuzz/corpus",
                      set(tree.names("tests/fuzz/corpus")), targets,
                      "a folder of seeds for each NAME_fuzz.c")


def imported(tree):
    """Files of tests that register themselves when they are imported."""
    for folder, program in (("e2e", "e2e.py"), ("netlab", "netlab.py"),
                            ("interop", "interop.py")):
        where = f"tests/{folder}/{program}"
        have = set(re.findall(r"^\s*import (\w+_tests)\b", tree.text(where),
                              re.M))
        files = {n[:-len(".py")] for n in tree.names(f"tests/{folder}")
                 if n.endswith("_tests.py")}
        yield from differ(where, have, files,
                          "each file of tests is imported")


def scenarios(tree):
    """The simulator's tables and what ctest runs of them."""
    table = {name for part in ("table", "scenarios") for name in
             re.findall(r'^    \{"([a-z0-9-]+)",',
                        tree.text(f"daemon/sim/{part}.c"), re.M)}
    where = "tests/sim/sim.cmake"
    text = re.sub(r"#.*", "", tree.text(where))
    # An argument of a test, or a word of a loop over scenarios; no name of a
    # setting (sync.quorum=1) or option.
    words = set(re.findall(r"(?<![\w.-])[a-z][a-z0-9-]*(?![\w.=-])", text))
    for name in sorted(table - words):
        yield f"{where}: {name} is missing: a line for each scenario"


def groups(tree):
    """Names of groups: run.sh three times, two pages."""
    where = "tests/run.sh"
    text = tree.text(where)
    named = re.search(r'^all="([^"]*)"', text, re.M)
    want = set(named[1].split() if named else ())
    head = text.split("set -u")[0]
    yield from differ(where, set(re.findall(r"^group (\w+) ", text, re.M)),
                      want, "a call of group for each of $all")
    for name in sorted(want):
        if not re.search(rf"^#.*\b{name}\b", head, re.M):
            yield f"{where}: {name} is missing: the comment at the top"
    page = tree.text("tests/README.md")
    told = {name for line in re.findall(r"^- ((?:`\w+`(?:, )?)+):", page, re.M)
            for name in re.findall(r"`(\w+)`", line)}
    yield from differ("tests/README.md", told, want, "a line for each group")
    page = tree.text("CONTRIBUTING.md").partition("| group |")[2]
    told = set(re.findall(r"^\| (\w+) \|", page, re.M))
    for name in sorted(told - want):
        yield f"CONTRIBUTING.md: {name} is no group of run.sh"


def methods(tree):
    """presets.def: a row with the same paper in README.md, a kill -9 in e2e."""
    presets = dict(re.findall(r'^PRESET(?:_MUON)?\("([^"]+)", "([^"]+)"',
                              tree.text("train/sync/presets.def"), re.M))
    rows = {name: source for source, name in re.findall(
        r"^\| [^|]*\((arXiv:[^)]+)\) \| `([^`]+)` \| [^|]+ \|$",
        tree.text("README.md"), re.M)}
    yield from differ("README.md", set(rows.items()), set(presets.items()),
                      "a method with its paper, its preset, when to use it")
    where = "tests/e2e/method_tests.py"
    _, _, table = tree.text(where).partition("\nMETHODS = {\n")
    have = set(re.findall(r'^    "([^"]+)": \(', table.partition("\n}")[0],
                          re.M))
    yield from differ(where, have, set(presets), "METHODS has every preset")


def wire_types(tree):
    """codec.def: the same row in PROTOCOL.md."""
    rows = {", ".join(re.split(r",\s*", row)[1:7]) for row in re.findall(
        r"^CODEC\((.*)\)$", tree.text("proto/base/codec.def"), re.M)}
    told = {", ".join(re.split(r"`? \| `?", row)) for row in re.findall(
        r"^\| `(\w+`(?: \| \w+){5}) \|$", tree.text("proto/PROTOCOL.md"), re.M)
        if re.search(r" (RING|BUTTERFLY) ", row)}
    yield from differ("proto/PROTOCOL.md", told, rows,
                      "a row for each wire type, as in codec.def")


def arguments(text):
    """Of a macro's call, between its parentheses: strings joined, one line."""
    depth, parts, at = 0, [""], 0
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|[^"]', text):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[at] += token
        at = len(parts) - 1
    return [re.sub(r'"\s*"', "", " ".join(p.split())).strip('"')
            for p in parts]


RULES_HEAD = """# What cannot be combined

Made of `proto/base/rules.def` by `python3 tests/lists.py > daemon/RULES.md`.
`loco run create`, `loco run sign` and locod refuse each of these with the reason
and what to set. `loco sim train` does so too, but for *peers*: these are of the
network, or not built for peers yet. *Machine*: between the run and the settings
of one machine; locod refuses to join.
"""
RULES_WHO = {"RUN": "peers", "MACHINE": "machine"}


def rules_page(tree):
    """RULES.md as it follows from rules.def."""
    text = re.sub(r"\n#.*(\\\n.*)*", "", tree.text("proto/base/rules.def"))
    page = RULES_HEAD
    for title, scope, call in re.findall(
            r"^/\* ---- (.*?) -+ \*/$|^REFUSE_(\w+)\((.*?)\)$(?=\n[R/\n])",
            text, re.M | re.S):
        if title:
            page += (f"\n## {title[0].upper()}{title[1:]}\n\n"
                     "| settings | why not | set | |\n|---|---|---|---|\n")
            continue
        _, names, _, reason, nearest = arguments(call)
        names = ", ".join(f"`{n}`" for n in names.split(", "))
        nearest = re.sub(r"[\w.]+=[\w.-]+", r"`\g<0>`", nearest)
        page += (f"| {names} | {reason} | {nearest} | "
                 f"{RULES_WHO.get(scope, '')} |\n")
    return page


def rules(tree):
    """RULES.md is what rules.def makes."""
    have = set(tree.text("daemon/RULES.md").splitlines())
    want = set(rules_page(tree).splitlines())
    yield from differ("daemon/RULES.md", have, want,
                      "a line that rules.def makes; run tests/lists.py")


def live_settings(tree):
    """What changes while locod runs: its table and the page of the API."""
    row = re.search(r"^\| `POST /api/v1/set.*changes live \(([^)]*)\)",
                    tree.text("daemon/API.md"), re.M)
    yield from differ("daemon/API.md",
                      set(re.findall(r"`(\w+)`", row[1] if row else "")),
                      set(re.findall(r"^OPTION\((\w+),.*, LIVE, ",
                                     tree.text("daemon/settings/options.def"),
                                     re.M)),
                      "the settings that POST /api/v1/set takes")


def vectors(tree):
    """Each published vector: a test reads it, or a page says where it is."""
    where = "tests/unit/train/VECTORS.md"
    keys = set(json.loads(tree.text("tests/unit/train/vectors.json") or "{}"))
    files = {f"{folder}/{name}" for folder in tree.names("tests/unit")
             for name in tree.names(f"tests/unit/{folder}")
             if name.endswith("_test.c")}
    read = set()
    for name in files:
        text = re.sub(r'"\s*\n\s*"', "", tree.text(f"tests/unit/{name}"))
        read |= {key for key in keys if f'"{key}"' in text}
    told = dict(re.findall(r"^- `([^`]+)`: ([^,;\n]+)", tree.text(where), re.M))
    yield from differ(where, set(told), keys - read,
                      "a line for each vector that no test reads by its key")
    for key, name in told.items():
        if name not in files | {"nothing"}:
            yield f"{where}: {name} is no test, and has `{key}`"


PRODUCT = ("proto", "kernels", "train", "p2p", "daemon")
TABLE = re.compile(r"^\| file \| noun \|\n\|[-|]+\n((?:\|.*\n)+)", re.M)


def folders(tree, top):
    """`top` and every folder below it."""
    yield top
    for name in tree.names(top):
        if tree.names(f"{top}/{name}"):
            yield from folders(tree, f"{top}/{name}")


PAGES = ("README.md", "tests/FEATURES.md", "CONTRIBUTING.md", "deploy/README.md",
         "deploy/TROUBLESHOOTING.md", "daemon/API.md", ".github/SECURITY.md")
FOLDERS = "daemon deploy kernels p2p proto tests train .github".split()
SHOP_WINDOW = 160  # lines: what comes first is read, what is long is not


def pages(tree):
    """Files that the pages name are there; README.md stays short."""
    below = [f"{f}/README.md" for top in PRODUCT for f in folders(tree, top)]
    for page in [*PAGES, *below]:
        text = tree.text(page)
        named = set(re.findall(r"`([\w.-]+/[\w./-]*\w)`", text)) | \
            set(re.findall(r"\]\(([\w./-]+)\)", text)) | \
            set(re.findall(r"`([A-Z]+\.md)`", text))
        for name in sorted(named):
            beside = os.path.join(os.path.dirname(page), name)
            if "/FOLDER/" in name:
                continue  # a form of names, not one
            if (name.split("/")[0] in FOLDERS or name.endswith(".md")) and \
                    not tree.has(name) and not tree.has(beside):
                yield f"{page}: {name} is not there"
    n = tree.text("README.md").count("\n")
    if n > SHOP_WINDOW:
        yield f"README.md: {n} lines, at most {SHOP_WINDOW}: is it for who " \
              "sees loco for the first time?"


def folder_pages(tree):
    """A folder's README.md has a table with each of its C files."""
    for folder in [f for top in PRODUCT for f in folders(tree, top)]:
        code, other = set(), set()
        for name in tree.names(folder):
            (code if name.endswith((".c", ".h")) else other).add(
                name.split(".")[0])
        table = TABLE.search(tree.text(f"{folder}/README.md"))
        told = {name for row in (table[1] if table else "").split("\n")
                for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
        yield from differ(f"{folder}/README.md", told - (other - code), code,
                          "a file of this folder, in the table of nouns")


CHECKS = (unit_tests, seeds, imported, scenarios, groups, methods,
          wire_types, rules, live_settings, pages, folder_pages, vectors)


def findings(root):
    tree = Tree(root)
    return [f for check in CHECKS for f in check(tree)]


# ---- self-test --------------------------------------------------------------

RIGHT = {
    "tests/unit/a/one_test.c": "",
    "tests/unit/a/two_test.c": 'x = of(" second, "\n       "of 2");',
    "tests/unit/a/tests.cmake":
        "loco_unit(a one lib)\nforeach(name two)\n    loco_unit(a ${name} x)",
    "tests/fuzz/x_fuzz.c": "",
    "tests/fuzz/corpus/x/good": "",
    "tests/e2e/e2e.py": "import storm_tests  # noqa\nimport method_tests\n",
    "tests/e2e/storm_tests.py": "",
    "daemon/sim/table.c": '    {"dht", g, NULL,\n',
    "daemon/sim/scenarios.c": '    {"kill-each", f, NULL,\n',
    "tests/sim/sim.cmake":
        "loco_sim_test(dht dht --seeds 2)\nforeach(s kill-each nat)\n",
    "tests/run.sh":
        '# run.sh\n#   build  gcc   tidy  style\nset -u\nall="build tidy"\n'
        "group build 6 do_build\ngroup tidy 6 do_tidy\n",
    "tests/README.md": "- `build`, `tidy`: what they do\n",
    "CONTRIBUTING.md": "| group | what |\n|---|---|\n| tidy | the style |\n",
    "train/sync/presets.def": 'PRESET("x", "arXiv:1",\n    .period = 1)\n',
    "proto/base/codec.def":
        "CODEC(AB, ab, 1,   0, 32, RING,   STATES, SAME)\n",
    "proto/PROTOCOL.md": "| `ab` | 1 | 0 | 32 | RING | STATES |\n",
    "proto/base/rules.def":
        '#define REFUSE_RUN(name)\n/* ---- the a ---- */\n'
        'REFUSE_RUN(ab, "a, b.c",\n    is(a, "x") && b,\n    "too "\n    "many",'
        '\n    "a=1, or none")\n/* end */\n',
    "daemon/RULES.md": RULES_HEAD + "\n## The a\n\n| settings | why not | set | |"
        "\n|---|---|---|---|\n| `a`, `b.c` | too many | `a=1`, or none | peers |\n",
    "README.md": "| X, Y (arXiv:1) | `x` | always |\n`daemon/API.md` `tests/sim`"
                 " `loco/x` [that](CONTRIBUTING.md)\n",
    "tests/e2e/method_tests.py": '\nMETHODS = {\n    "x": (6, {}),\n}\n',
    "daemon/settings/options.def":
        'OPTION(log, TEXT, "", 0, 0, LIVE, HIDDEN, "",\n    "a level")\n'
        'OPTION(keep, COUNT, "2", 1, 9, LIVE, LIMIT, "N", "so many")\n'
        'OPTION(run, TEXT, "", 0, 0, START, HIDDEN, "FILE", "that run")\n',
    "daemon/API.md":
        "| `POST /api/v1/set?name=N` | one that changes live (`keep`, `log`) |",
    "tests/unit/train/vectors.json": '{"first": 1, " second, of 2": 2}',
    "tests/unit/train/VECTORS.md": "- `first`: a/one_test.c, in full\n",
    "daemon/sim/README.md": "| file | noun |\n|---|---|\n"
                            "| `table`, `scenarios` | by name |\n",
    "kernels/cpu/rope.c": "",
    "kernels/cpu/simd.h": "",
    "kernels/cpu/wire.cu": "",
    "kernels/cpu/README.md": "| file | noun |\n|---|---|\n| `rope` | turns |\n"
                             "| `simd`, `wire` | beside `mma` |\n\n`slot`\n",
}
# What is changed of it, and in how many findings that must end.
WRONG = [
    (methods, {"README.md": ""}, 1),
    (methods, {"README.md": "| X (arXiv:2) | `x` | always |\n"}, 2),
    (methods, {"tests/e2e/method_tests.py": "\nMETHODS = {\n}\n"}, 1),
    (methods, {"train/sync/presets.def": ""}, 2),
    (wire_types, {"proto/base/codec.def": ""}, 1),
    (wire_types, {"proto/PROTOCOL.md":
                  "| `ab` | 1 | 0 | 16 | RING | STATES |\n"}, 2),
    (rules, {"proto/base/rules.def": ""}, 4),
    (rules, {"daemon/RULES.md": RULES_HEAD}, 4),
    (live_settings, {"daemon/API.md": "| `POST /api/v1/set` | what changes live "
                     "(`keep`, `state`) |"}, 2),
    (live_settings, {"daemon/settings/options.def": ""}, 2),
    (pages, {"daemon/API.md": "as `tests/sum` or `sim/x.c` in `tests/run.sh` and "
             "[here](here.md)"}, 2),
    (pages, {"README.md": 200 * "a\n"}, 1),
    (folder_pages, {"kernels/cpu/README.md": ""}, 2),
    (folder_pages, {"kernels/cpu/slot.c": ""}, 1),
    (folder_pages, {"kernels/cpu/README.md": "| file | noun |\n|---|---|\n"
                    "| `rope`, `simd`, `gone` | x |\n"}, 1),
    (folder_pages, {"train/new/a.h": ""}, 1),
    (unit_tests, {"tests/unit/a/three_test.c": ""}, 1),
    (unit_tests, {"tests/unit/a/tests.cmake": "loco_unit(a one lib)"}, 1),
    (vectors, {"tests/unit/train/VECTORS.md": ""}, 1),
    (vectors, {"tests/unit/train/VECTORS.md": "- `first`: a/x_test.c\n"}, 1),
    (vectors, {"tests/unit/train/vectors.json": '{"first": 1, "third": 3}'}, 1),
    (seeds, {"tests/fuzz/y_fuzz.c": ""}, 1),
    (imported, {"tests/e2e/e2e.py": ""}, 2),
    (imported, {"tests/netlab/new_tests.py": ""}, 1),
    (scenarios, {"tests/sim/sim.cmake": "# kill-each\nf(dht)"}, 1),
    (scenarios, {"tests/sim/sim.cmake": "f(dht dht --set sync.kill-each=1)"},
     1),
    (groups, {"tests/README.md": "- `build`: gcc\n- `bulid`: gcc\n"}, 2),
    (groups, {"CONTRIBUTING.md": "| group | what |\n| units | all |\n"}, 1),
    (groups, {"tests/run.sh": '# build tidy\nset -u\nall="build tidy"\n'
              "group build 6 do_build\n"}, 1),
]


def self_test():
    """(how many cases, sentences about those that went wrong)"""
    wrong = [f"{check.__name__} minded {found} where all is right"
             for check in CHECKS for found in [list(check(Tree(files=RIGHT)))]
             if found]
    for check, change, n in WRONG:
        found = list(check(Tree(files={**RIGHT, **change})))
        if len(found) != n:
            wrong.append(f"{check.__name__}: {change}: {found}")
    return len(CHECKS) + len(WRONG), wrong


if __name__ == "__main__":
    print(rules_page(Tree(os.path.join(os.path.dirname(__file__), ".."))),
          end="")
