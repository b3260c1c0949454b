#!/bin/sh
# wheel.sh - the wheel is made in a Debian 11 and used on Debian 11, 12 and 13.
#
# use: sh tests/wheel.sh [--arch aarch64] [FOLDER]
#
# FOLDER is where the wheel is to be kept. With --arch it is that for 64-bit Arm:
# cross-built, and used on Debian of arm64 under qemu-user.
#
# In each: a fresh virtual environment, `pip install` of the one file, and two
# peers of deploy/python/examples/bigram.py that make a run of four rounds and
# end with the same numbers. A table says how long each took. What it needs, and
# what it keeps where, is in debian.sh.
set -eu
cd "$(dirname "$0")/.."
arch=$(uname -m)
[ "${1:-}" != --arch ] || { arch=$2; shift 2; }
name=wheel
files="*_$arch.whl"
packages=ca-certificates,python3,python3-venv
. tests/debian.sh
debian_begin "$@"
debian_emulate "$arch"

# What one machine does with it: seconds of the installation and of the run.
USE='
cd /tmp
python3 -m venv v
began=$(date +%s)
v/bin/pip install -q --disable-pip-version-check /out/*.whl
installed=$(date +%s)
PATH=/tmp/v/bin:$PATH
export PYTHONUNBUFFERED=1
seq 1 60000 >text
loco data pack text --out data >/dev/null
example=/root/loco/deploy/python/examples/bigram.py
id=$(python3 "$example" --create data run.yaml | tail -n 1)
LOCO_STATE=/tmp/a python3 "$example" --run run.yaml --listen 127.0.0.1:7700 >one 2>&1 &
trap "kill $! 2>/dev/null || true; loco drain --state /tmp/a >/dev/null 2>&1 || true; wait" EXIT
LOCO_STATE=/tmp/b timeout 900 python3 "$example" --join "loco://127.0.0.1:7700/$id" \
    --listen 127.0.0.1:0 >two 2>&1 || { cat two; exit 1; }
wait
[ "$(grep "^end " one)" = "$(grep "^end " two)" ] && grep -q "^end " one ||
    { tail -n 3 one two; exit 1; }
. /etc/os-release
echo "| Debian $VERSION_ID on $(uname -m) | Python $(python3 -c "import sys; print(sys.version.split()[0])") |" \
    "$((installed - began)) s | $(($(date +%s) - installed)) s | $(tail -n 1 two) |"
'

[ -n "$(ls "$out"/*_"$arch".whl 2>/dev/null)" ] ||
    debian_in bullseye "apt-get update -qq; cd /root/loco; sh deploy/wheel.sh --arch $arch /out"
ls -l "$out"/*_"$arch".whl
echo "| system | with | pip install | four rounds | the end of both |"
echo "|---|---|---|---|---|"
failed=0
for release in bullseye bookworm trixie; do
    debian_in "$release$debian_other" "$USE" || { echo "| $release | failed |"; failed=1; }
done
exit $failed
