"""package_tests.py - the Debian package and the service's unit.

The package is installed in a copy of this machine's root (an overlay in a
mount namespace of its own), so that nothing outside changes.
"""
import glob
import os
import re
import shutil
import socket
import subprocess
import tempfile

from e2e_registry import Skipped, test
from swarm import BUILD, ROOT, SCALE, Swarm, check, run

UNIT = os.path.join(ROOT, "deploy", "locod.service")
EXPOSURE_MAX = 2.5  # of 10; systemd-analyze calls this OK


def package(to):
    for program in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
        if not shutil.which(program):
            raise Skipped(f"no {program} (apt-get install cmake dpkg-dev)")
    config = os.path.join(BUILD, "CPackConfig.cmake")
    if not os.path.exists(config):
        raise Skipped("this build makes no package (sanitizers, cross)")
    if not glob.glob(os.path.join(BUILD, "pages", "*.gz")):
        raise Skipped("build all first: the pages are not made")
    run("cpack", "-G", "DEB", "--config", config, "-B", to, timeout=200)
    made, = glob.glob(to + "/*.deb")
    return made


@test("the Debian package holds program, unit and pages", 300)
def contents():
    with tempfile.TemporaryDirectory() as d:
        deb = package(d)
        names = run("dpkg-deb", "-c", deb).stdout
        for path in ("usr/bin/loco", "usr/bin/locod",
                     "lib/systemd/system/locod.service",
                     "usr/share/man/man1/loco.1.gz",
                     "usr/share/man/man5/locod.yaml.5.gz",
                     "usr/share/man/man8/locod.8.gz",
                     "usr/share/bash-completion/completions/loco",
                     "usr/share/zsh/vendor-completions/_loco",
                     "usr/share/fish/vendor_completions.d/loco.fish",
                     "etc/loco/locod.yaml", "usr/share/doc/loco/copyright"):
            check(re.search(rf" \./{re.escape(path)}$", names, re.M), path)
        for path in ("etc/loco/locod.yaml", "etc/default/locod"):
            check(re.search(rf"^-rw-r----- root/root .* \./{path}$", names,
                            re.M), f"{path} is for everybody: {names}")
        for name, line in (("shlibs", "libloco 0 loco (>= "),
                           ("triggers", "activate-noawait ldconfig")):
            said = run("dpkg-deb", "-I", deb, name).stdout
            check(line in said, f"{name} has no {line!r}: {said}")


@test("lintian finds no error in the Debian package", 300)
def judged():
    if not shutil.which("lintian"):
        raise Skipped("no lintian (apt-get install lintian)")
    with tempfile.TemporaryDirectory() as d:
        done = subprocess.run(["lintian", "--fail-on", "error", package(d)],
                              capture_output=True, text=True,
                              timeout=200 * SCALE)
        check(done.returncode == 0, done.stdout + done.stderr)


@test("docker-compose reads compose.yaml: a guest of a run, and its first machine", 60)
def composed():
    if not shutil.which("docker-compose"):
        raise Skipped("no docker-compose (apt-get install docker-compose)")

    def read(*words, **more):
        return subprocess.run(
            ["docker-compose", "-f", os.path.join(ROOT, "deploy/compose.yaml"),
             *words, "config"], capture_output=True, text=True, timeout=50 * SCALE,
            env={"PATH": os.environ["PATH"], **more})

    done = read(LOCO_JOIN="loco://x")
    check(done.returncode == 0 and "LOCO_JOIN: loco://x" in done.stdout and
          "dockerfile: deploy/Dockerfile" in done.stdout,
          done.stdout + done.stderr)
    check("LOCO_END_GRACE_S: '60'" in done.stdout, done.stdout)
    done = read("--profile", "first", LOCO_PORT="7800", LOCO_DATA="/srv/data")
    check(done.returncode == 0 and "LOCO_RUN: /data/run.yaml" in done.stdout and
          "/srv/data:/data:ro" in done.stdout and "published: 7800" in done.stdout and
          "LOCO_LISTEN: 0.0.0.0:7800" in done.stdout, done.stdout + done.stderr)


INSIDE = r"""
set -e
root=$1 deb=$2 yaml=$3
mount -t tmpfs none "$root"
mkdir "$root/upper" "$root/work" "$root/all"
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" none "$root/all"
mount -t proc none "$root/all/proc"
mount --rbind /dev "$root/all/dev"
mkdir -p "$root/all/tmp/loco"
cp -r "$(dirname "$yaml")"/. "$root/all/tmp/loco"
cp "$deb" "$root/all/tmp/loco.deb"
chmod -R a+rX "$root/all/tmp/loco"
chroot "$root/all" sh -e -c '
    dpkg -i /tmp/loco.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; exit 1; }
    id -u loco
    loco --version
    yaml=/etc/loco/locod.yaml
    modes() { stat -c "%U:%G %a" $yaml /etc/default/locod | tr "\n" " "; }
    [ "$(modes)" = "root:loco 640 root:root 640 " ] || { modes; exit 1; }
    loco config set log info --config $yaml
    [ "$(modes)" = "root:loco 640 root:root 640 " ] || { modes; exit 1; }
    # As a version before had them, and as an administrator chose.
    chgrp root $yaml
    chmod 644 $yaml /etc/default/locod
    dpkg -i /tmp/loco.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; exit 1; }
    [ "$(modes)" = "root:loco 640 root:root 640 " ] || { modes; exit 1; }
    chown loco:daemon $yaml
    chmod 600 $yaml
    dpkg -i /tmp/loco.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; exit 1; }
    [ "$(modes)" = "loco:daemon 600 root:root 640 " ] || { modes; exit 1; }
    loco config validate --config /etc/loco/locod.yaml --join loco://127.0.0.1:1/'"$(printf %064d 0)"'
    install -d -o loco -g loco -m 0700 /var/lib/loco
    setpriv --reuid loco --regid loco --clear-groups \
        locod --config /etc/loco/locod.yaml --state /var/lib/loco \
        --listen 127.0.0.1:0 --run /tmp/loco/run.yaml >/tmp/locod.log 2>&1 &
    pid=$!
    tries=600
    until [ "$(loco status --state /var/lib/loco --get state 2>/dev/null)" = finished ]; do
        kill -0 $pid || { cat /tmp/locod.log; exit 1; }
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { cat /tmp/locod.log; exit 1; }
        sleep 0.1
    done
    kill $pid
    wait $pid
    dpkg -r loco >/dev/null
    test -f /var/lib/loco/identity.key
    test ! -e /usr/bin/locod
    dpkg -P loco >/dev/null
    test ! -e /var/lib/loco
    test ! -e /etc/loco
    ! id -u loco 2>/dev/null
    echo all went well
'
"""


@test("the package installs, its daemon trains as its user, and it goes away",
      300)
def installs():
    if os.geteuid() != 0:
        raise Skipped("needs root for an overlay")
    if not (shutil.which("unshare") and shutil.which("setpriv")
            and shutil.which("adduser")):
        raise Skipped("no unshare, setpriv or adduser")
    with tempfile.TemporaryDirectory() as d, Swarm(peers=1, rounds=2) as s:
        deb = package(d)
        os.mkdir(d + "/root")
        probe = subprocess.run(
            ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {d}/root && cd "
             f"{d}/root && mkdir u w a && mount -t overlay -o lowerdir=/,"
             "upperdir=u,workdir=w none a"], capture_output=True, text=True)
        if probe.returncode != 0:
            raise Skipped(f"no overlay here: {probe.stderr.strip()[:100]}")
        done = run("unshare", "-m", "--propagation", "private", "sh", "-c",
                   INSIDE, "inside", d + "/root", deb, s.yaml,
                   timeout=200)
        check("all went well" in done.stdout, done.stdout + done.stderr)
        check("loco 0." in done.stdout, done.stdout)


@test("systemd finds no fault with the unit and calls it well confined", 60)
def unit():
    if not shutil.which("systemd-analyze"):
        raise Skipped("no systemd-analyze (apt-get install systemd)")
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "locod.service")
        with open(UNIT, encoding="utf-8") as f, \
                open(path, "w", encoding="utf-8") as to:
            # What the package would install, and man pages, are not here.
            to.write(re.sub(r"^Documentation=.*\n", "", f.read(), flags=re.M)
                     .replace("/usr/bin/locod", shutil.which("true")))
        done = subprocess.run(["systemd-analyze", "verify", path],
                              capture_output=True, text=True,
                              timeout=60 * SCALE)
        ours = [line for line in (done.stdout + done.stderr).splitlines()
                if "locod.service" in line]
        check(not ours, "\n".join(ours))
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", path],
            capture_output=True, text=True, timeout=60 * SCALE)
        found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
        if not found:
            raise Skipped("systemd-analyze security --offline is not known")
        check(float(found[1]) <= EXPOSURE_MAX, found[0])


@test("the daemon tells systemd that it is ready, lives and stops", 120)
def notifies():
    with Swarm(peers=1, rounds=100000) as s, \
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(s.path("notify"))
        heard.settimeout(60 * SCALE)
        peer = s.peer().start("--run", s.yaml, env={
            "NOTIFY_SOCKET": s.path("notify"), "WATCHDOG_USEC": "1000000"})

        def until(word):
            while True:
                text = heard.recv(4096).decode()
                if word in text:
                    return text

        until("READY=1")
        check(peer.status(), "it is ready but does not answer")
        until("WATCHDOG=1")
        until("STATUS=training, round")
        until("WATCHDOG=1")
        peer.signal(15)
        until("STOPPING=1")
        peer.wait_exit(0)
