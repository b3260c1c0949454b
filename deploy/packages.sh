# packages.sh - the one list of Debian packages, and how to get them.
#
# Sourced by quickstart.sh, join.sh and tests/run.sh:
#     . deploy/packages.sh
#     packages_need build text     (groups, see below; any number)
# It asks dpkg what is missing and installs only that, with apt-get, as root
# or through sudo. Returns 1 after one sentence when it cannot; a machine
# that has everything is not touched and needs no root.
#
# Groups: build  to compile and run loco
#         package  to pack what was built (cpack -G DEB)
#         wheel  to make the Python wheel and the tarball, on Debian 11 as well:
#                libraries to link; cmake and ninja come from PyPI
#         wheel:arm64  the same for 64-bit Arm, on another machine: cross compiler,
#                libraries of arm64, and qemu, in which loco writes its pages
#         image  besides `wheel`, to make the container's tarball in a Debian 12
#         text   the English prose of the quick start (public domain)
#         test   to run every test; minisign signs what upgrades test; ccache, as one build of the tests has most
#                of the objects of another
#         cross  to run the kernels' tests for 64-bit Arm in qemu-user;
#                without it they are skipped
#         judges other people's programs that judge what we serve and pack:
#                a browser, Prometheus, lintian, docker-compose; only --full gets them
#         bench  what tests/bench/allreduce.sh measures beside us

packages_linked="libuv1-dev libsodium-dev libssl-dev libmsgpack-dev \
libcurl4-openssl-dev libyaml-dev libjansson-dev libmicrohttpd-dev \
libnatpmp-dev libpcre2-dev libqrencode-dev"
packages_any_arch="uthash-dev libjs-chart.js"
packages_libraries="$packages_linked $packages_any_arch"

packages_list() {
    case $1 in
    build)
        echo gcc libc6-dev cmake ninja-build pkg-config "$packages_libraries"
        ;;
    package) echo dpkg-dev file ;;
    wheel)
        echo gcc libc6-dev pkg-config binutils python3-venv "$packages_libraries"
        ;;
    wheel:arm64)
        echo gcc-aarch64-linux-gnu pkg-config python3-venv qemu-user libc6-dev:arm64 \
            "$packages_any_arch"
        for packages_library in $packages_linked; do
            echo "$packages_library:arm64"
        done
        ;;
    image) echo cmake ninja-build patchelf ca-certificates ;;
    text) echo sword-comm-tdavid libsword-utils ;;
    test)
        echo libcmocka-dev python3 python3-venv g++ clang libclang-rt-14-dev clang-format \
            ccache curl iproute2 minisign nftables miniupnpd-nftables groff-base zsh fish python3-numpy dpkg-dev file \
            zbar-tools
        ;;
    judges)
        echo chromium-headless-shell prometheus lintian adduser docker-compose
        ;;
    cross) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ;;
    bench) echo openmpi-bin libopenmpi-dev python3-torch ;;
    *)
        echo "packages: no group is called '$1'" >&2
        return 1
        ;;
    esac
}

# Is the package here? NAME is of this machine's architecture or of any (all),
# whatever others dpkg has.
packages_has() {
    packages_arch=${1#*:}
    [ "$packages_arch" != "$1" ] || packages_arch=$(dpkg --print-architecture)
    dpkg-query -W -f '${db:Status-Status} ${Architecture}\n' "$1" 2>/dev/null |
        grep -q -x -e "installed $packages_arch" -e 'installed all'
}

# The packages of the given groups that are not installed.
packages_missing() {
    for packages_group; do
        for package in $(packages_list "$packages_group"); do
            packages_has "$package" || echo "$package"
        done
    done
}

packages_need() {
    for packages_group; do
        packages_list "$packages_group" >/dev/null || return 1
    done
    if ! command -v dpkg >/dev/null 2>&1; then
        echo "packages: this is not Debian; install what" \
            "deploy/packages.sh lists by hand" >&2
        return 0
    fi
    packages_wanted=$(packages_missing "$@")
    [ -n "$packages_wanted" ] || return 0
    # shellcheck disable=SC2086,SC2116 # one name a line becomes one line
    packages_wanted=$(echo $packages_wanted)
    packages_root=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "packages: missing $packages_wanted; run this once as root:" \
                "apt-get install --no-install-recommends $packages_wanted" >&2
            return 1
        fi
        packages_root=sudo
    fi
    echo "installing from Debian: $packages_wanted" >&2
    for packages_group; do
        case $packages_group in
        *:*) packages_add_arch "${packages_group#*:}" || return 1 ;;
        esac
    done
    # shellcheck disable=SC2086 # a list of names
    packages_apt install -y -qq --no-install-recommends $packages_wanted &&
        return 0
    # An old or empty package index is the usual reason: refresh it once.
    # shellcheck disable=SC2086
    packages_apt update -qq &&
        packages_apt install -y -qq --no-install-recommends \
            $packages_wanted && return 0
    echo "packages: apt-get could not install: $packages_wanted;" \
        "check the network and /etc/apt/sources.list, then try again" >&2
    return 1
}

# Lets apt know the packages of another architecture, too.
packages_add_arch() {
    ! dpkg --print-foreign-architectures | grep -q -x "$1" || return 0
    echo "adding the architecture $1 to dpkg's" >&2
    $packages_root dpkg --add-architecture "$1" && packages_apt update -qq
}

# Quiet while all is well; the end of apt-get's output when it fails.
packages_apt() {
    packages_log=$(mktemp) || return 1
    packages_status=0
    $packages_root env DEBIAN_FRONTEND=noninteractive apt-get \
        -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@" \
        >"$packages_log" 2>&1 </dev/null || packages_status=$?
    [ "$packages_status" -eq 0 ] || tail -n 5 "$packages_log" >&2
    rm -f "$packages_log"
    return "$packages_status"
}
