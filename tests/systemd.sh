#!/bin/sh
# systemd.sh - the Debian package and install.sh's user units, under a systemd
# that runs.
#
# use: sh tests/systemd.sh [system] [user]          (default: both)
#
# A Debian 12 with systemd is booted by systemd-nspawn, with this machine's
# network, and a peer outside of it begins a run on loopback. `system`: the
# package of build/ as a system service: join, reload, restart in place,
# watchdog, stop, reboot, upgrade, removal, purge. `user`: install.sh and its
# units for a user without root: upgrades to releases that come up, end at once
# and hang, each made of the programs of build/, the timer, uninstall. A table
# says what was tried, and how long it took.
#
# Needs root, a build (LOCO_BUILD, default build), minisign, systemd-nspawn and
# what debian.sh needs. LOCO_CGROUP=v1 boots with the older hierarchy of control
# groups. Skipped, by name, where no systemd can be booted. LOCO_SYSTEMD_KEEP=1
# keeps what is booted when a check fails.
set -eu
cd "$(dirname "$0")/.."
name=systemd
files=
packages=systemd-sysv,dbus,dbus-user-session,libpam-systemd,adduser,ca-certificates
debian_kind=systemd
. tests/debian.sh
build=$(cd "${LOCO_BUILD:-build}" && pwd)
peer_port=17720
port=17721
tree=
nspawn=
peer=

skip() {
    echo "systemd: skipped: $*"
    exit 0
}

fail() {
    echo "systemd: $*" >&2
    [ -z "$nspawn" ] || inside 'journalctl --no-pager -n 60 | grep -v -e " round " -e pam_unix' >&2 || true
    [ -z "$peer" ] || tail -n 3 "$tree.run/log" >&2
    exit 1
}

# ---- the machine that is booted ---------------------------------------------
unified=1
[ "${LOCO_CGROUP:-v2}" = v2 ] || unified=0

boot() {
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=$unified systemd-nspawn --boot --keep-unit \
        --register=no --directory "$tree" >>"$tree.log" 2>&1 </dev/null &
    nspawn=$!
    first=
    tries=300
    until [ -n "$first" ] && [ "$(inside 'systemctl is-system-running' 2>/dev/null)" = running ]; do
        kill -0 $nspawn 2>/dev/null && [ $tries -gt 0 ] ||
            skip "no systemd boots here: $(tail -n 1 "$tree.log")"
        tries=$((tries - 1))
        sleep 0.2
        first=$(pgrep -P $nspawn) || first=
    done
}

halt() {
    inside 'systemctl poweroff' || kill -KILL "$nspawn"
    wait "$nspawn" || true
    nspawn=
}

# A shell command as its root, and as its user, who need not be logged in.
inside() {
    nsenter -t "$first" -m -u -i -n -p -- env -i HOME=/root C="$1" \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -c 'cd; eval "$C"'
}

as_user() {
    nsenter -t "$first" -m -u -i -n -p -- runuser -u volunteer -- env -i HOME=/home/volunteer C="$1" \
        XDG_RUNTIME_DIR=/run/user/1000 PATH=/home/volunteer/.local/bin:/usr/bin:/bin \
        sh -c 'cd; eval "$C"'
}

# Until the condition holds there: inside|as_user SECONDS CONDITION
wait_for() {
    $1 "limit=\$((\$(date +%s) + $2)); until $3; do [ \$(date +%s) -lt \$limit ] || exit 1; sleep 0.2; done" ||
        fail "not within $2 s: $3"
}

end() {
    status=$?
    trap - EXIT
    if [ $status -ne 0 ] && [ -n "${LOCO_SYSTEMD_KEEP:-}" ]; then
        echo "kept: $tree, nspawn $nspawn, peer $peer" >&2
        exit $status
    fi
    [ -z "$nspawn" ] || halt
    [ -z "$peer" ] || { kill -CONT $peer; kill $peer; wait $peer || true; }
    [ -z "$tree" ] || rm -rf --one-file-system "$tree" "$tree.run" "$tree.log" "$tree.published" \
        "/run/systemd/nspawn/propagate/${tree##*/}"
    exit $status
}

# ---- the table --------------------------------------------------------------
now() { date +%s%N; }
row() { # WHAT SEEN
    took=$(($(now) - began))
    printf '| %s | %s | %d.%d |\n' "$1" "$2" $((took / 1000000000)) $((took / 100000000 % 10))
    began=$(now)
}

unit=locod
prop() { # NAME [as_user]: of the unit
    ${2:-inside} "systemctl ${2:+--user} show $unit -P $1"
}

same() { # WHAT GOT WANTED
    [ "$2" = "$3" ] || fail "$1 is $2, not $3"
}

# ---- what is needed ---------------------------------------------------------
begin() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, to boot a system"
    command -v systemd-nspawn >/dev/null ||
        apt-get install -y -qq --no-install-recommends systemd-container >/dev/null ||
        skip "no systemd-nspawn (apt-get install systemd-container)"
    command -v minisign >/dev/null || skip "no minisign"
    debian_begin
    debian_base bookworm
    tree=$debian_root/systemd.$$
    trap end EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    mkdir "$tree" "$tree.run"
    tar -C "$tree" -xf "$debian_tar"
    cp /etc/resolv.conf "$tree/etc/resolv.conf"
    echo force-unsafe-io >"$tree/etc/dpkg/dpkg.cfg.d/unsafe"
    (cd "$build" && cpack -G DEB -B "$tree.run" >"$tree.run/cpack.log" 2>&1) ||
        fail "cpack: $(tail -n 2 "$tree.run/cpack.log")"
    mkdir "$tree/srv/loco"
    mv "$tree.run"/loco_*.deb "$tree/srv/loco/loco.deb"
    cp deploy/install.sh "$tree/srv/loco/"
}

# A run without an end, and its first peer.
found() {
    (
        cd "$tree.run"
        seq 1 60000 >text
        "$build/loco" data pack text --out data --val-bytes 8192 --licence CC0-1.0 >/dev/null
        printf '%s\n' 'dim: 32' 'layers: 2' 'heads: 2' 'kv_heads: 2' 'ffn: 64' 'vocab: 256' \
            'seq: 64' 'tied: true' 'rope_theta: 10000' 'norm_eps: 1.0e-5' >model.yaml
        "$build/loco" run create --name systemd --model model.yaml --data data --sync opendiloco \
            --set round.min_peers=2 --set sync.period=100 --set stop.rounds=100000 \
            --set inner.steps=10000000 --set inner.batch=4 --set inner.micro_batch=4 \
            --set inner.warmup=4 --set sync.robust=off --set sync.audit=off \
            --set sync.rollback=0 --out data/run.yaml 2>created >id
    ) || fail "$(cat "$tree.run/created")"
    uri=loco://127.0.0.1:$peer_port/$(cat "$tree.run/id")
    LOCO_LAN=off nice "$build/locod" --state "$tree.run/state" --run "$tree.run/data/run.yaml" \
        --listen 127.0.0.1:$peer_port --control 127.0.0.1:0 --battery train --mapping off \
        --cpu-percent 20 >"$tree.run/log" 2>&1 &
    peer=$!
}

# ---- the package ------------------------------------------------------------
state=/var/lib/loco
yaml=/etc/loco/locod.yaml
training="loco status --state $state --get state 2>/dev/null | grep -q -e training -e averaging"
journal='journalctl -u locod --no-pager -o cat'

system_starts() {
    inside 'apt-get update -qq; apt-get install -y -qq --no-install-recommends /srv/loco/loco.deb' \
        >"$tree.run/apt" 2>&1 || fail "$(tail -n 3 "$tree.run/apt")"
    same "after the install the service" "$(prop ActiveState),$(prop UnitFileState)" inactive,disabled
    row "apt-get install ./loco.deb" "disabled, nothing runs"

    inside 'systemctl start locod' 2>/dev/null && fail "it starts without a run"
    inside "$journal | grep -q 'give one of --run'" || fail "it does not say why"
    sleep 0.5
    same "without a run" "$(prop ActiveState),$(prop NRestarts),$(prop ExecMainStatus)" failed,0,2
    row "start, and the settings name no run" "failed, exit code 2, a sentence, not started again"

    inside "loco config set join $uri --config $yaml; loco config set listen 127.0.0.1:$port --config $yaml
        loco config set cpu_percent 20 --config $yaml" \
        >/dev/null 2>&1
    inside 'systemctl reset-failed locod; systemctl enable -q --now locod'
    same "after enable --now it" "$(prop ActiveState)" active
    wait_for inside 60 "systemctl show locod -P StatusText | grep -q '^[ta][rv].*ing, .* 2 peers'"
    row "enable --now" "active; $(prop StatusText)"

    pid=$(prop MainPID)
    inside "grep -q 'NoNewPrivs:.1' /proc/$pid/status && grep -q 'CapEff:.0*$' /proc/$pid/status &&
        grep -q 'Seccomp:.2' /proc/$pid/status && [ \$(stat -c %U /proc/$pid) = loco ]" ||
        fail "the process is not confined"
    exposure=$(inside 'systemd-analyze security locod --no-pager | tail -n 1 | grep -o "[0-9.]* OK"') ||
        fail "systemd-analyze calls it exposed"
    row "confinement" "no capability, seccomp, user loco; systemd-analyze security: $exposure"
}

system_goes_on() {
    inside "loco config set log debug --config $yaml 2>/dev/null; systemctl reload locod"
    wait_for inside 20 "$journal -p info | grep -q 'log is debug now'"
    inside "loco config set log info --config $yaml 2>/dev/null; echo 'threadz: 1' >>$yaml; systemctl reload locod"
    wait_for inside 20 "$journal -p warning | grep -q 'stay as they are.*threadz'"
    inside "sed -i /threadz/d $yaml; systemctl reload locod; ! $journal -p warning | grep -q committed"
    same "after reloads the process" "$(prop MainPID),$(prop ActiveState)" "$pid,active"
    row "reload, and with a mistake in locod.yaml" \
        "log is debug now; the mistake is a warning of the journal, and the service stays active"

    kill -STOP $peer # so that the round in flight lasts
    inside "loco drain --restart --state $state >/dev/null 2>&1 &
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        systemctl show locod -P ActiveState; sleep 0.05; done" >"$tree.run/states"
    kill -CONT $peer
    wait_for inside 60 "$journal -n 400 | grep -q 'starting again' && $training"
    same "after drain --restart the process" "$(prop MainPID),$(prop NRestarts),$(prop ActiveState)" "$pid,0,active"
    row "loco drain --restart" "the same process; $(sort -u "$tree.run/states" | tr '\n' ' ')meanwhile, then active"

    inside 'mkdir -p /etc/systemd/system/locod.service.d
        printf "[Service]\nWatchdogSec=4s\nRestartSec=1s\n" >/etc/systemd/system/locod.service.d/t.conf
        systemctl daemon-reload; systemctl restart locod'
    wait_for inside 60 "$training"
    inside 'kill -STOP $(systemctl show locod -P MainPID)'
    wait_for inside 30 '[ $(systemctl show locod -P NRestarts) = 1 ]'
    wait_for inside 60 "$training"
    inside "$journal | grep -q 'Watchdog timeout'" || fail "somebody else has restarted it"
    row "kill -STOP, with WatchdogSec=4s" "killed by the watchdog, trains again"
    inside 'kill -KILL $(systemctl show locod -P MainPID)'
    wait_for inside 30 '[ $(systemctl show locod -P NRestarts) = 2 ]'
    wait_for inside 60 "$training"
    row "kill -KILL" "trains again"
}

system_ends() {
    inside 'systemctl stop locod'
    same "after stop it" "$(prop ActiveState),$(prop Result),$(prop ExecMainStatus)" inactive,success,0
    inside "$journal -n 30 | grep -q 'drained after round'" || fail "it did not drain"
    row "stop" "$(inside "$journal -n 30 | grep -o 'drained after round [0-9]*'"), exit code 0"
    inside 'systemctl start locod'
    wait_for inside 60 "$training"
    kill -STOP $peer
    inside 'systemctl stop locod'
    kill -CONT $peer
    same "after stop it" "$(prop ActiveState),$(prop Result),$(prop ExecMainStatus)" inactive,success,0
    row "stop, while the other peer stands still" "exit code 0"

    inside 'rm -r /etc/systemd/system/locod.service.d'
    halt
    boot
    wait_for inside 60 "$training"
    row "the machine boots again" "trains"
    pid=$(prop MainPID)
    inside 'dpkg -i /srv/loco/loco.deb' >"$tree.run/apt" 2>&1 || fail "$(tail -n 3 "$tree.run/apt")"
    wait_for inside 60 "$training && [ \$(systemctl show locod -P MainPID) != $pid ]"
    inside "$journal -n 100 | grep -q 'drained after round'" || fail "it did not drain"
    row "the package is upgraded while it trains" "drained, and trains as the new program"
    inside 'apt-get remove -y -qq loco' >"$tree.run/apt" 2>&1 || fail "$(tail -n 3 "$tree.run/apt")"
    inside "! grep -qsx locod /proc/[0-9]*/comm && test -f $state/identity.key && test -f $yaml &&
        $journal -n 30 | grep -q 'drained after round'" || fail "removal"
    row "apt-get remove" "drained; state and settings stay"
    inside 'apt-get purge -y -qq loco' >"$tree.run/apt" 2>&1 || fail "$(tail -n 3 "$tree.run/apt")"
    inside 'find / -xdev -regex ".*/locod?\(\..*\)?" -not -path "/proc/*" -not -path "/usr/share/*" -not -path "/var/lib/dpkg/*" \
        -not -path "/srv/*" -not -path "/usr/lib/*" -print; getent passwd loco; systemctl list-units --failed -q' \
        >"$tree.run/left" || true
    [ ! -s "$tree.run/left" ] || fail "is left: $(cat "$tree.run/left")"
    row "apt-get purge" "no file, user or failed unit is left"
}

# ---- a user's units ---------------------------------------------------------
ustate=/home/volunteer/.local/state/loco
utraining="loco status --get state 2>/dev/null | grep -q -e training -e averaging"

# Releases of the programs in build/, and lists of one each, in the order in
# which they are tried: an older list is refused.
publish() {
    mkdir "$tree.published"
    PYTHONPATH=tests/e2e LOCO_BUILD=$build python3 - "$tree.published" <<'END'
import os, sys
import release_tests as r
stubborn = ('#!/bin/sh\n[ "$1" != --version ] || exec echo locod %s\n'
            "trap '' TERM\nwhile :; do sleep 1; done\n")
p = r.Publisher(sys.argv[1])
first = p.folder
for n, (name, locod) in enumerate((("ends", r.ENDS), ("hangs", stubborn), ("cron", r.ENDS),
                                   ("good", None), ("timer", None), ("killed", None), ("hand", r.ENDS))):
    number = r.next_version(n + 1)
    p.folder = os.path.join(sys.argv[1], name)
    os.mkdir(p.folder)
    r.release(p.folder, number, locod=locod and locod % number)
    p.publish()
os.rmdir(first)
here = os.path.join(sys.argv[1], "here")
os.mkdir(here)
r.release(here, r.version())
with open(os.path.join(sys.argv[1], "key"), "w", encoding="ascii") as f:
    f.write(p.key)
END
    cp -r "$tree.published" "$tree/srv/published"
    key=$(cat "$tree.published/key")
}

# What an upgrade to that list must say, and how the unit is afterwards.
before=
upgrades() { # LIST EXIT WORDS [OPTION..]
    list=$1 want=$2 words=$3
    shift 3
    code=0
    as_user "$before loco upgrade --list /srv/published/$list/releases.json --key $key --yes $* 2>&1" >"$tree.run/said" ||
        code=$?
    same "exit code of the upgrade" "$code ($(tail -n 1 "$tree.run/said"))" "$want ($(tail -n 1 "$tree.run/said"))"
    grep -q "$words" "$tree.run/said" || fail "$(cat "$tree.run/said")"
    wait_for as_user 60 "$utraining"
    same "the unit" "$(prop ActiveState as_user)" active
    same "the unit's process" "$(prop MainPID as_user)" "$(as_user "cut -d' ' -f1 $ustate/lock")"
    same "the daemon's version" "$(as_user 'loco status --get version')" "$(as_user 'loco --version | cut -c6-')"
}

goes_back() {
    as_user 'loco upgrade --back' >/dev/null 2>&1 || fail "it does not go back"
    until_one_version
}

until_one_version() {
    wait_for as_user 60 '[ "$(loco status --get version 2>&1)" = "$(loco --version | cut -c6-)" ]'
    wait_for as_user 60 "$utraining"
    same "the unit" "$(prop ActiveState as_user)" active
    same "the unit's process" "$(prop MainPID as_user)" "$(as_user "cut -d' ' -f1 $ustate/lock")"
}

user_starts() {
    # The libraries that the programs of build/ need.
    inside 'apt-get update -qq; apt-get install -y -qq --no-install-recommends /srv/loco/loco.deb &&
        apt-get remove -y -qq loco; useradd -m -s /bin/sh -u 1000 volunteer; loginctl enable-linger volunteer' \
        >"$tree.run/apt" 2>&1 || fail "$(tail -n 3 "$tree.run/apt")"
    wait_for as_user 60 'systemctl --user is-system-running 2>/dev/null | grep -q running'
    row "loginctl enable-linger" "a systemd of the user runs"
    as_user 'find . ! -type d | sort >/tmp/before'
    as_user 'sh /srv/loco/install.sh /srv/published/here/*.tar.gz' >"$tree.run/said" 2>&1 || fail "$(cat "$tree.run/said")"
    as_user "loco config set join $uri; loco config set listen 127.0.0.1:$port;
        systemctl --user enable -q --now locod" >/dev/null 2>&1
    wait_for as_user 60 "$utraining"
    same "the unit" "$(prop ActiveState as_user)" active
    wait_for as_user 20 "systemctl --user show locod -P StatusText | grep -q '^[ta][rv].*ing, .* 2 peers'"
    row "install.sh, config set join, enable --now" "active; $(prop StatusText as_user)"
    inside 'systemctl stop user@1000; systemctl start user@1000'
    wait_for as_user 60 "$utraining"
    row "the user's systemd starts again" "trains, with nobody logged in"
}

user_upgrades() {
    back="did not come up, and the version before is in use again"
    upgrades ends 1 "$back"
    row "loco upgrade, to a locod that ends at once" "taken back; active"
    upgrades hangs 1 "$back" --patience 8
    took=$((($(now) - began) / 1000000000))
    [ $took -lt 60 ] || fail "it took $took s to end what hangs"
    row "loco upgrade --patience 8, to a locod that hangs and takes no SIGTERM" "taken back; active"
    before='unset XDG_RUNTIME_DIR;'
    upgrades cron 1 "$back"
    before=
    row "loco upgrade without XDG_RUNTIME_DIR, as cron has it, to a locod that ends" "taken back; active"
    pid=$(prop MainPID as_user)
    upgrades good 0 "^upgraded: "
    row "loco upgrade" "$(tail -n 1 "$tree.run/said"); the same process, active"
    goes_back
    same "the process" "$(prop MainPID as_user),$(prop NRestarts as_user)" "$pid,0"
    row "loco upgrade --back" "the same process, active"
}

user_by_timer() {
    as_user "loco config set upgrade_list /srv/published/timer/releases.json; loco config set upgrade_key $key
        systemctl --user enable -q --now loco-upgrade.timer" >/dev/null 2>&1
    as_user 'systemctl --user list-timers --no-legend | grep -q loco-upgrade.timer' || fail "no timer"
    as_user 'systemctl --user start loco-upgrade.service'
    same "the upgrade's unit" "$(as_user 'systemctl --user show loco-upgrade -P Result')" success
    until_one_version
    row "loco-upgrade.timer; its service started" "waits for its hour; loco $(as_user 'loco status --get version'), active"

    # Killed while the daemon drains: the next one ends it.
    goes_back
    as_user 'loco config set upgrade_list /srv/published/killed/releases.json' >/dev/null 2>&1
    as_user 'mkdir -p .config/systemd/user/loco-upgrade.service.d
        printf "[Service]\nRestartSec=1s\n" >.config/systemd/user/loco-upgrade.service.d/t.conf
        systemctl --user daemon-reload; systemctl --user start --no-block loco-upgrade.service'
    wait_for as_user 60 "[ \"\$(loco --version)\" != 'loco $(as_user 'loco status --get version')' ]"
    as_user 'kill -KILL $(systemctl --user show loco-upgrade -P MainPID)' || fail "there was nothing to kill"
    wait_for as_user 60 '[ "$(systemctl --user show loco-upgrade -P ActiveState)" = inactive ] &&
        [ "$(systemctl --user show loco-upgrade -P Result)" = success ]'
    inside 'journalctl -o cat --no-pager | grep -q "0.1.0 to .* was broken off"' || fail "the next one did not end it"
    until_one_version
    row "kill -KILL of the upgrade that it started" "started again by systemd; loco $(as_user 'loco status --get version'), active"
    as_user 'rm -r .config/systemd/user/loco-upgrade.service.d; systemctl --user daemon-reload'
}

user_ends() {
    goes_back
    unit=byhand
    as_user 'systemctl --user stop locod
        systemd-run --user -q --unit=byhand -p Type=notify -p Restart=on-failure $HOME/.local/bin/locod'
    wait_for as_user 60 "$utraining"
    upgrades hand 1 "$back"
    unit=locod
    row "the same of a daemon that systemd-run --user has started" "taken back; active"
    as_user 'systemctl --user stop byhand; systemctl --user start locod'
    as_user 'sh .local/lib/loco/install.sh --uninstall' >"$tree.run/said" 2>&1 || fail "$(cat "$tree.run/said")"
    inside '! grep -qsx locod /proc/[0-9]*/comm' || fail "it runs still"
    as_user "find . -path ./.local/state/loco -prune -o -path ./.config/loco -prune -o ! -type d -print | sort |
        diff /tmp/before - && systemctl --user list-units --failed -q && test -f $ustate/identity.key &&
        ! systemctl --user list-unit-files --no-legend | grep loco" >"$tree.run/left" ||
        fail "is left: $(cat "$tree.run/left")"
    row "install.sh --uninstall" "drained; state and settings stay, no other file or unit"
}

begin
found
[ $# -gt 0 ] || set -- system user
echo "| ${LOCO_CGROUP:-v2} | seen | seconds |"
echo "|---|---|---|"
boot
began=$(now)
for part; do
    case $part in
    system)
        system_starts
        system_goes_on
        system_ends
        ;;
    user)
        publish
        user_starts
        user_upgrades
        user_by_timer
        user_ends
        ;;
    *) fail "$part is no part: system, user" ;;
    esac
done
