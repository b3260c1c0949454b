"""install_tests.py - deploy/install.sh, interrupted at every step.

The programs of these releases are scripts that say their version. Each program
that install.sh calls is a shim here, which counts, and sends a signal to the
whole process group before one of them, as Ctrl-C in a terminal does.
"""
import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile

from e2e_registry import test
from swarm import ROOT, check

ARCH = platform.machine()
SAYS = "#!/bin/sh\necho {0} {1}\n"
SHIM = """#!/bin/sh
n=$({flock} {dir}/count /bin/sh -c '
    n=$(($(/bin/cat {dir}/count) + 1)); echo $n | /usr/bin/tee {dir}/count')
if [ $n = "$AT" ]; then
    echo {name} >{dir}/hit
    kill -s "$SIGNAL" 0
fi
exec {program} "$@"
"""
SIGNALS = (("INT", 130), ("TERM", 143), ("HUP", 143))
# Of each version: a page that only it has; its unit differs.
OLD, NEW = "1.0.1", "1.0.2"


def release(folder, number):
    """A release file of a few bytes."""
    top = f"loco-{number}-linux-{ARCH}"
    path = os.path.join(folder, f"{top}.tar.gz")
    with tarfile.open(path, "w:gz") as tar:
        def add(name, text, mode=0o644):
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mode = len(text), mode
            tar.addfile(info, io.BytesIO(text.encode()))
        for name in ("loco", "locod"):
            add(f"bin/{name}", SAYS.format(name, number), 0o755)
        add(f"bin/loco-of-{number}", "", 0o755)
        add("share/man/man1/loco.1.gz", "")
        add(f"share/man/man1/of-{number}.1.gz", "")
        add("share/systemd/user/locod.service", f"# {number}: %h/.local\n")
        with open(os.path.join(ROOT, "deploy/install.sh"),
                  encoding="utf-8") as f:
            add("install.sh", f.read())
        add("ABOUT", f"version {number}\narch {ARCH}\nglibc 2.17\n"
            "protocols 1 1\ntime 1\n")
    return path


class Place:
    """A prefix with the old version in use, which can be put back."""

    def __init__(self, folder):
        self.dir = folder
        self.prefix = os.path.join(folder, "prefix")
        self.tmp = os.path.join(folder, "tmp")
        self.shims = os.path.join(folder, "shims")
        os.mkdir(self.tmp)
        os.mkdir(self.shims)
        for name in ("awk cat cmp cp cut dirname find getconf grep gzip head ln "
                     "mkdir mktemp mv od readlink rm rmdir sed sha256sum sort "
                     "sync systemctl tail tar tr uname wc").split():
            program = shutil.which(name)
            if program:
                path = os.path.join(self.shims, name)
                with open(path, "w", encoding="ascii") as f:
                    f.write(SHIM.format(dir=folder, name=name,
                                        program=program,
                                        flock=shutil.which("flock")))
                os.chmod(path, 0o755)

    def keep(self):
        subprocess.run(["cp", "-a", self.prefix, self.prefix + ".kept"],
                       check=True)

    def restore(self):
        shutil.rmtree(self.prefix)
        subprocess.run(["cp", "-a", self.prefix + ".kept", self.prefix],
                       check=True)

    def install(self, *words, at=0, signal="INT"):
        """The exit code, and which call was hit ("": none)."""
        for name, text in (("count", "0"), ("hit", "")):
            with open(os.path.join(self.dir, name), "w",
                      encoding="ascii") as f:
                f.write(text)
        done = subprocess.run(
            ["sh", os.path.join(ROOT, "deploy/install.sh"), *words,
             "--prefix", self.prefix], start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60,
            env={"PATH": self.shims + ":" + os.environ["PATH"],
                 "HOME": self.dir, "TMPDIR": self.tmp, "AT": str(at),
                 "SIGNAL": signal})
        with open(os.path.join(self.dir, "hit"), encoding="ascii") as f:
            return done.returncode, f.read().strip()

    def whole(self, where):
        """The version in use, every name of which is there, and no other."""
        lib = os.path.join(self.prefix, "lib")
        tree = os.readlink(os.path.join(lib, "loco"))
        number = tree.split("-")[1]
        names = {f"bin/{n}" for n in ("loco", "locod", f"loco-of-{number}")} | {
            f"share/man/man1/{n}.1.gz" for n in ("loco", f"of-{number}")}
        unit = "share/systemd/user/locod.service"
        found = {os.path.relpath(os.path.join(root, name), self.prefix)
                 for root, _, files in os.walk(self.prefix) for name in files
                 if not root.startswith(lib)}
        check(found == names | {unit}, f"{where}: {number} has {found}")
        for name in names:
            check(os.path.realpath(os.path.join(self.prefix, name)) ==
                  os.path.realpath(os.path.join(lib, tree, name)),
                  f"{where}: {name} is not of {number}")
        with open(os.path.join(self.prefix, unit), encoding="ascii") as f:
            check(f.read() == f"# {number}: {self.prefix}\n",
                  f"{where}: the unit is not of {number}")
        said = subprocess.run([os.path.join(self.prefix, "bin/locod")],
                              capture_output=True, check=True).stdout.decode()
        check(said == f"locod {number}\n", f"{where}: {said}")
        check(not os.listdir(self.tmp), f"{where}: {os.listdir(self.tmp)}")
        return number

    def trees(self):
        return sum(n.startswith("loco-") for n in os.listdir(
            os.path.join(self.prefix, "lib")))


def at_every_step(place, words, before, after):
    """Interrupted before each program that it calls; how often each version was
    in use afterwards."""
    used = {before: 0, after: 0}
    at = 0
    while True:
        at += 1
        signal, code = SIGNALS[at % len(SIGNALS)]
        place.restore()
        rv, hit = place.install(*words, at=at, signal=signal)
        where = f"SIG{signal} before call {at}, {hit}"
        number = place.whole(where)
        if not hit:
            check(rv == 0 and number == after, f"{where}: exit code {rv}")
            return used
        check(rv in (0, code), f"{where}: exit code {rv}")
        check(number == after or rv != 0, f"{where}: it says that all is well")
        used[number] += 1
        if number == before and words[0] != "--back":
            check(place.trees() == 1, f"{where}: a folder is left behind")


@test("install.sh that a signal interrupts, at any step, leaves the version before "
      "or the new one, and that one is whole", 300)
def interrupted():
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder)
        old, new = release(folder, OLD), release(folder, NEW)
        check(place.install(old)[0] == 0, "the old version")
        place.keep()
        used = at_every_step(place, (new,), OLD, NEW)
        print(f"install: {used}")
        check(used[OLD] > 20 and used[NEW] > 10, used)
        shutil.rmtree(place.prefix + ".kept")
        place.keep()
        used = at_every_step(place, ("--back",), NEW, OLD)
        print(f"--back: {used}")
        check(used[NEW] > 3 and used[OLD] > 10, used)
