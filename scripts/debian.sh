# Programs and libraries out of the Debian archive that nothing installs: they are
# unpacked below .tools, once. Sourced by msrv, aarch64 and other-systems, which
# say with `skip` what they could not check where that cannot be had.
#
# It has package lists of its own, for as long as it fetches. So neither root is
# needed, nor lists that are up to date, nor a system that knows of other
# architectures.

want=1.85
self=${0##*/}
tools=$PWD/.tools
rust=$tools/rust-$want

skip() {
    echo "$self: not checked: $1"
    exit 0
}

# Has apt use lists in the current directory, of this system's architecture and those named.
use_own_lists() {
    mkdir -p apt/lists/partial apt/cache/archives/partial
    architectures=$(printf '"%s"; ' "$(dpkg --print-architecture)" "$@")
    cat >apt/apt.conf <<END_OF_CONF
APT::Architectures { $architectures};
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Dir::State "$PWD/apt";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$PWD/apt/cache";
END_OF_CONF
    export APT_CONFIG="$PWD/apt/apt.conf"
    # Some other archive of this system may be out of reach; what is missing shows later.
    apt-get -q update || true
}

# Prints those of the packages and of what they depend on that are not installed.
not_installed() {
    plan=$(apt-get -s install --no-upgrade --no-install-recommends "$@") || return 1
    echo "$plan" | awk '$1 == "Inst" { print $2 }'
}

# Prints those of what a package depends on, and of itself, whose names match $1.
closure() {
    apt-cache depends --recurse --important "$2" | grep '^[a-z]' | grep -e "$1"
}

# Makes $1/bin/$2 a script that runs the program $3, with its arguments $4...,
# and lets it find the libraries below $1. Bash, because dash drops variables
# whose names have a hyphen, and cargo has such ones for tests.
wrap() {
    wrapped=$1/bin/$2
    mkdir -p "$1/bin"
    cat >"$wrapped" <<'END_OF_WRAPPER'
#!/bin/bash
root=$(cd "$(dirname "$0")/.." && pwd)
for directory in "$root"/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu; do
    LD_LIBRARY_PATH=$directory${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
END_OF_WRAPPER
    shift 2
    echo "exec $* \"\$@\"" >>"$wrapped"
    chmod 755 "$wrapped"
}

# Fetches what is called $1 into $2: $3 downloads packages into the current
# directory; they are unpacked, and $4 finishes what is then in the directory $1.
fetch() {
    for program in apt-get apt-cache dpkg dpkg-deb; do
        command -v "$program" >/dev/null || skip "$1 can be fetched on Debian only"
    done
    mkdir -p "$tools"
    work=$(mktemp -d "$tools/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    echo "$self: fetching $1 from the Debian archive, once"
    (cd "$work" && "$3") >"$work/log" 2>&1 || skip "$1 could not be fetched: $(tail -n 1 "$work/log")"
    mkdir "$work/root"
    for package in "$work"/*.deb; do
        dpkg-deb -x "$package" "$work/root" || skip "the packages of $1 could not be unpacked"
    done
    "$4" "$work/root"
    rm -rf "$2"
    mkdir -p "$(dirname "$2")"
    mv "$work/root" "$2"
    rm -rf "$work"
}

# Prints the version of the wanted Rust in the archive.
rust_version() {
    found=$(apt-cache madison rustc-web | awk -v want="$want." 'index($3, want) == 1 { print $3; exit }')
    echo "${found:?no rustc-web $want in the package lists}"
}

download_rust() {
    use_own_lists
    version=$(rust_version) || return 1
    # Of the shared libraries of rustc and cargo those that are not installed.
    libraries=$(not_installed libcurl4 libgcc-s1 libhttp-parser2.9 libllvm19 libpcre3 libsqlite3-0 libssh2-1 \
        libssl3 libstdc++6 zlib1g) || return 1
    # shellcheck disable=SC2086
    apt-get -q download "rustc-web=$version" "cargo-web=$version" \
        "libstd-rust-web-dev=$version" "libstd-rust-web-$want=$version" $libraries
}

finish_rust() {
    for program in rustc rustdoc cargo; do
        # shellcheck disable=SC2016
        wrap "$1" "$program" '"$root/usr/bin/'"$program"'"'
    done
}

# Has the wanted Rust below .tools, in $rust/bin.
need_rust() {
    [ -x "$rust/bin/cargo" ] || fetch "Rust $want" "$rust" download_rust finish_rust
    case $("$rust/bin/rustc" --version 2>/dev/null) in
        *" $want."*) ;;
        *) skip "the toolchain in $rust does not run here; remove it to fetch it again" ;;
    esac
}
