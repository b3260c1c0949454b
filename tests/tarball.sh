#!/bin/sh
# tarball.sh - the one file is made in a Debian 11, twice, and used on Debian
# 11, 12 and 13.
#
# use: sh tests/tarball.sh [--arch aarch64] [FOLDER]
#
# FOLDER is where the file is to be kept. With --arch the file for 64-bit Arm is
# cross-built and used on Debian of arm64 under qemu-user, with shorter rounds, as
# qemu computes about 100 times slower. mixed.sh then has both files in one run.
#
# Two builds in two folders must give one sha256. Then, in a Debian with nothing
# but its minbase (no compiler, no Python), a user without root installs it with
# deploy/install.sh, asks `loco doctor`, makes a run, trains four rounds as two
# peers of which one came with `loco join`, upgrades that one while it runs to a
# next version (a third build, signed), goes back, installs it again, and
# uninstalls: not a file or folder may be left. A table says how long each took, a
# second one what install.sh refuses. What it needs, and what it keeps where, is
# in debian.sh; and minisign.
set -eu
cd "$(dirname "$0")/.."
arch=$(uname -m)
[ "${1:-}" != --arch ] || { arch=$2; shift 2; }
name=tarball
files="loco-*-linux-$arch.tar.gz* next-*-$arch.tar.gz* published.tar"
packages=
limit_s=3600
. tests/debian.sh
debian_begin "$@"
debian_emulate "$arch"
period=10 rounds=300
[ -z "$debian_other" ] || period=2 rounds=40 # one takes about 10 s there
# There is no git in a minbase.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

BUILD='
cp -r /root/loco /srv/another
began=$(date +%s)
apt-get update -qq
cd /root/loco
sh deploy/tarball.sh --arch "$arch" /out/one
cd /srv/another
sh deploy/tarball.sh --arch "$arch" /out/two
echo "built twice in $(($(date +%s) - began)) s"
sha256sum /out/one/*.tar.gz /out/two/*.tar.gz
cmp /out/one/*.tar.gz /out/two/*.tar.gz || {
    mkdir /tmp/1 /tmp/2
    tar -C /tmp/1 -xzf /out/one/*.tar.gz
    tar -C /tmp/2 -xzf /out/two/*.tar.gz
    diff -rq /tmp/1 /tmp/2
    exit 1
}
mkdir /tmp/one
tar -C /tmp/one -xzf /out/one/*.tar.gz
echo "newest symbol that it asks of the system:" \
    "$($(ls /usr/bin/*readelf | head -n 1) -W --dyn-syms /tmp/one/*/bin/* /tmp/one/*/lib/*.so* | grep -o "GLIBC_[0-9.]*" | sort -uV | tail -n 1)"
mv /out/one/* /out/
sed -i "s/^\(project(loco VERSION [0-9]*\.[0-9]*\.\)[0-9]*/\19/" CMakeLists.txt
sh deploy/tarball.sh --arch "$arch" /out/next
for file in /out/next/*.gz; do mv "$file" "/out/next-${file##*/}"; done
'

USE='
now() { date +%s%N; }
took() { printf "%d.%02d s" $(($1 / 1000000000)) $(($1 / 10000000 % 100)); }
fail() { echo "$*" >&2; exit 1; }
# waits until FIELD of the daemon in DIR is as wanted: DIR FIELD TEST...
until_status() {
    dir=$1 field=$2
    shift 2
    tries=1800
    until value=$(loco status --state "$dir" --get "$field" 2>/dev/null) && test "$value" "$@" 2>/dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "$dir: $field is $value; $(tail -n 3 "$dir"/locod.log one 2>/dev/null)"
        sleep 0.1
    done
}
# The daemon that came with `loco join`.
start_second() {
    loco join "loco://127.0.0.1:17700/$id" --yes --listen 127.0.0.1:17701 >>two 2>&1 &
    second=$!
}
mkdir -p .local/state .config # the state stays; it is looked at below
everything() { find "$HOME" -path "$HOME/.local/state/loco" -prune -o -path "$HOME/work" -prune -o -print | sort; }
mkdir work
everything >/tmp/before
file=$(echo /out/loco-*-linux-*.tar.gz)
began=$(now)
sh /root-loco/install.sh "$file" >/tmp/said
installed=$(($(now) - began))
grep -q "^checked: " /tmp/said && grep -q "loco join" /tmp/said || fail "$(cat /tmp/said)"
PATH=$HOME/.local/bin:$PATH
export PATH
for program in loco locod; do
    [ "$(command -v $program)" = "$HOME/.local/bin/$program" ] || fail "$program is not linked"
done
began=$(now)
loco doctor >/tmp/doctor || fail "$(cat /tmp/doctor)"
doctor=$(($(now) - began))
cd work
seq 1 60000 >text
loco data pack text --out data --val-bytes 8192 --licence CC0-1.0 >/dev/null
printf "%s\n" "dim: 32" "layers: 2" "heads: 2" "kv_heads: 2" "ffn: 64" "vocab: 256" \
    "seq: 64" "tied: true" "rope_theta: 10000" "norm_eps: 1.0e-5" >model.yaml
id=$(loco run create --name tarball --model model.yaml --data data --sync opendiloco \
    --set round.min_peers=2 --set sync.period=$period --set stop.rounds=$rounds \
    --set inner.steps=$((period * rounds)) --set inner.batch=4 --set inner.micro_batch=4 \
    --set inner.warmup=4 --set sync.robust=off --set sync.audit=off \
    --set sync.rollback=0 --set eval.tokens=1024 --set sync.outer_lr=1 --set sync.outer_momentum=0 \
    --out data/run.yaml 2>created) || fail "$(cat created)"
locod --state a --run data/run.yaml --listen 127.0.0.1:17700 --control 127.0.0.1:0 --battery train >one 2>&1 &
first=$!
trap "kill $first 2>/dev/null || true; loco drain --state $HOME/.local/state/loco >/dev/null 2>&1 || true; wait" EXIT
until_status a round -ge 0
state=$HOME/.local/state/loco
began=$(now)
start_second
until_status "$state" run_id = "$id"
joined=$(($(now) - began))
until_status "$state" rounds_committed -ge 1
round=$(($(now) - began))
until_status "$state" rounds_committed -ge 4
four=$(($(now) - began))
tar -xf /out/published.tar
version=$(loco --version)
upgrade() {
    loco upgrade --list published/releases.json --key "$(sed -n 2p published/key.pub)" --yes >/tmp/upgrade 2>&1
}
began=$(now)
upgrade || fail "$(cat /tmp/upgrade)"
upgraded=$(($(now) - began))
[ "$(loco --version)" != "$version" ] || fail "the version is the same"
until_status "$state" version = "$(loco --version | cut -c6-)"
until_status "$state" rounds_committed -ge 2
loco upgrade --back >/tmp/upgrade 2>&1 || fail "$(cat /tmp/upgrade)"
until_status "$state" version = "${version#loco }"
until_status a state = finished
until_status "$state" state = finished
[ "$(loco status --state a --get params_hash)" = "$(loco status --state "$state" --get params_hash)" ] ||
    fail "the peers end with different models"
loco drain --state "$state" >/dev/null
loco drain --state a >/dev/null
wait $first || fail "$(tail -n 3 one)"
wait $second || fail "$(tail -n 3 two)"
trap - EXIT
cd ..
began=$(now)
sh /root-loco/install.sh "$file" >/tmp/said
again=$(($(now) - began))
[ "$(find .local/lib -mindepth 1 -maxdepth 1 -name "loco-*" | wc -l)" -eq 1 ] || fail "$(ls .local/lib)"
loco --version >/dev/null
began=$(now)
sh .local/lib/loco/install.sh --uninstall >/tmp/said
gone=$(($(now) - began))
everything | diff /tmp/before - || fail "this is left behind"
[ -f "$state/identity.key" ] || fail "the state went away"
. /etc/os-release
echo "| Debian $VERSION_ID on $(uname -m), glibc $(getconf GNU_LIBC_VERSION | cut -c7-) | $(took $installed) | $(took $doctor) |" \
    "$(took $joined) | $(took $round) | $(took $four) | $(took $upgraded) | $(took $again) | $(took $gone) |"
'

# What is refused: nothing may be written, and a sentence says why.
REFUSE='
mkdir bad
cd bad
good=$(echo /out/loco-*-linux-*.tar.gz)
base=${good##*/}
top=${base%.tar.gz}
fail() { echo "$*" >&2; exit 1; }
refused() {
    what=$1 words=$2
    shift 2
    find "$HOME" ! -path "$HOME/bad*" | sort >/tmp/before
    if sh /root-loco/install.sh "$@" >/tmp/said 2>/tmp/why; then fail "$what: was installed"; fi
    find "$HOME" ! -path "$HOME/bad*" | sort | diff /tmp/before - || fail "$what: something was written"
    grep -q "$words" /tmp/why || fail "$what: $(cat /tmp/why)"
    echo "| $what | $(sed "s/^install: //;s/[0-9a-f]\{56\}\>/../g" /tmp/why) |"
}
repacked() { # COMMAND in the folder of an unpacked copy
    rm -rf "$top"
    tar -xzf "$good"
    (cd "$top" && eval "$1")
    tar -czf "$base" "$top"
    rm -rf "$top"
}
cp "$good" "$base"
size=$(wc -c <"$base")
printf "altered!" | dd of="$base" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
cp "$good.sha256" .
refused "some bytes altered, FILE.sha256 beside" "was altered" "$base"
rm "$base.sha256"
refused "some bytes altered, no sum" "is damaged" "$base"
repacked "echo >>bin/loco"
cp "$good.sha256" .
refused "packed again with another bin/loco, FILE.sha256 beside" "was altered" "$base"
refused "the same, --sha256" "was altered" "$base" --sha256 "$(cut -c1-64 "$base.sha256")"
head -c $((size / 2)) "$good" >"$base"
refused "half a download, FILE.sha256 beside" "only a part" "$base"
rm "$base.sha256"
refused "half a download, no sum" "only a part" "$base"
other=aarch64
[ "$(uname -m)" != aarch64 ] || other=x86_64
repacked "sed -i \"s/^arch .*/arch $other/\" ABOUT"
refused "for another architecture (its ABOUT says so)" "is for $other" "$base"
repacked "sed -i \"s/^glibc .*/glibc 2.99/\" ABOUT"
refused "a system with an older glibc (ABOUT asks for 2.99)" "needs 2.99" "$base"
repacked "printf \"#!/bin/sh\nexit 1\n\" >bin/locod"
refused "programs that do not run here" "does not run here" "$base"
echo "not a tarball" | gzip >"$base"
refused "something else in gzip" "no archive\|not made by" "$base"
mkdir -p "$HOME/.local/bin"
echo mine >"$HOME/.local/bin/loco"
refused "another program at ~/.local/bin/loco" "move it away" "$good"
'

# Both run as the user; install.sh comes from these sources.
as_user() {
    debian_in "$1$debian_other" "mkdir /root-loco; cp /root/loco/deploy/install.sh /root-loco/
cat >/tmp/does <<'END_OF_DOES'
period=$period rounds=$rounds
$2
END_OF_DOES
useradd -m -s /bin/sh volunteer
su - volunteer -c 'sh -eu /tmp/does'"
}

[ -n "$(ls "$out"/loco-*-linux-"$arch".tar.gz 2>/dev/null)" ] || debian_in bullseye "arch=$arch $BUILD"
ls -l "$out"/loco-*-linux-"$arch".tar.gz
published=$debian_root/published
rm -rf "$published"
mkdir "$published"
for file in "$out"/next-*.tar.gz; do
    name=${file##*/}
    cp "$file" "$published/${name#next-}"
done
minisign -G -W -p "$published/key.pub" -s "$debian_root/key" -f >/dev/null
sh deploy/release.sh "$published" --key "$debian_root/key" >/dev/null
tar -C "$debian_root" -cf "$out/published.tar" published
echo "| system | install | doctor | join | first round | four rounds | upgrade of a running peer | install again | uninstall |"
echo "|---|---|---|---|---|---|---|---|---|"
failed=0
for release in bullseye bookworm trixie; do
    as_user "$release" "$USE" || { echo "| $release | failed |"; failed=1; }
done
echo
echo "| refused | the sentence |"
echo "|---|---|"
as_user bullseye "$REFUSE" || failed=1
exit $failed
