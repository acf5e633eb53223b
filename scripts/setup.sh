# Sourced: brings what a build or the tests need, by apt, and only what is missing. Debian 12 and later, Ubuntu 22.04
# and later. When everything is there nothing is asked of the network.
# shellcheck shell=bash

RUST_MIN_MINOR=91 # `rust-version` of Cargo.toml

# What it takes to build jbpf-prof: a file or command that shows that it is there, and the package that brings it.
# libbpf-sys builds libelf from source for the binary: hence autoconf to gawk. build.rs uses that of the machine.
BUILD_NEEDS="clang:clang make:make cc:gcc pkg-config:pkg-config autoreconf:autoconf automake:automake
    autopoint:autopoint flex:flex bison:bison gawk:gawk /usr/include/libelf.h:libelf-dev /usr/include/zlib.h:zlib1g-dev
    /usr/include/stdio.h:libc6-dev
    /usr/include/linux/bpf.h:linux-libc-dev /etc/ssl/certs/ca-certificates.crt:ca-certificates"
JDK_NEEDS="javac:default-jdk-headless"
# The tests: other machines' code, containers, other libcs.
TEST_NEEDS="aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu
    /usr/aarch64-linux-gnu/lib/libc.a:libc6-dev-arm64-cross musl-gcc:musl-tools
    /usr/lib32/libc.a:libc6-dev-i386 runc:runc podman:podman mmdebstrap:mmdebstrap tmux:tmux
    g++:g++ readelf:binutils /usr/bin/python3:python3 node:nodejs npm:npm chromium:chromium go:golang-go setpriv:util-linux dwz:dwz openssl:openssl
    /usr/lib/debug/.build-id:libc6-dbg
    /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring"
# A release: packages and JSON.
RELEASE_NEEDS="dpkg-deb:dpkg rpmbuild:rpm jq:jq openssl:openssl gzip:gzip xz:xz-utils git:git"
# vmtest: guests and their images.
VM_NEEDS="qemu-system-x86_64:qemu-system-x86 /usr/sbin/mke2fs:e2fsprogs /usr/sbin/depmod:kmod"

apt_updated=
apt_update() {
    [ -z "$apt_updated" ] || return 0
    have apt-get || die "this machine has no apt-get; docs/dependencies.md lists what to install by hand"
    say "asking apt what there is"
    quietly as_root apt-get update || die "apt-get update failed"
    apt_updated=yes
}

apt_install() {
    apt_update
    say "installing $*"
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
        die "apt-get could not install $*"
}

# Installs the packages of those needs ("command-or-file:package ...") whose command or file is missing.
ensure() {
    local need probe missing=()
    for need in "$@"; do
        probe=${need%%:*}
        case $probe in
        /*) [ -e "$probe" ] || missing+=("${need#*:}") ;;
        *) have "$probe" || missing+=("${need#*:}") ;;
        esac
    done
    [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
}

# The minor version of a rustc 1.x, or 0.
rust_minor() {
    local version
    version=$("$1" --version 2>/dev/null) || version=
    [[ $version =~ ^rustc\ 1\.([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

# The candidate version of a package, as apt sees it; empty if there is none.
candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([^(].*\)/\1/p'
}

# Whether a package's candidate is Rust that is new enough.
candidate_will_do() {
    local version
    version=$(candidate "$1")
    version=${version#*:}
    [[ $version =~ ^1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge "$RUST_MIN_MINOR" ]
}

# Puts a Rust that is new enough first in PATH, if the machine has one.
find_rust() {
    local dir
    for dir in "" "$HOME/.cargo/bin" /usr/lib/rust-1.*/bin /usr/bin; do
        if [ -x "${dir:+$dir/}cargo" ] || { [ -z "$dir" ] && have cargo; }; then
            if [ "$(rust_minor "${dir:+$dir/}rustc")" -ge "$RUST_MIN_MINOR" ]; then
                [ -z "$dir" ] || PATH=$dir:$PATH
                return 0
            fi
        fi
    done
    return 1
}

# Installs Rust from the distribution: its newest compiler, or its rustup, which brings the stable one.
install_rust() {
    apt_update
    local versioned
    versioned=$(apt-cache search --names-only '^rustc-1\.[0-9]+$' | sed -n 's/^rustc-1\.\([0-9]*\) .*/\1/p' |
        sort -n | tail -n 1)
    if candidate_will_do rustc-web; then
        apt_install rustc-web cargo-web
    elif candidate_will_do rustc; then
        apt_install rustc cargo
    elif [ "${versioned:-0}" -ge "$RUST_MIN_MINOR" ]; then
        apt_install "rustc-1.$versioned" "cargo-1.$versioned"
    elif [ -n "$(candidate rustup)" ]; then
        apt_install rustup
        quietly rustup default stable || die "rustup could not bring the stable compiler"
    else
        die "no Rust 1.$RUST_MIN_MINOR or newer can be had from apt here: install it with rustup, then run this again"
    fi
    hash -r
}

# Everything that a build needs.
setup_build() {
    # shellcheck disable=SC2086 # a list
    ensure $BUILD_NEEDS
    find_rust || { install_rust && find_rust; } || die "the Rust that was installed is not found"
    export PATH
}

# Everything that the demo needs beside the build.
setup_jdk() {
    # shellcheck disable=SC2086
    ensure $JDK_NEEDS
}

# clippy and rustfmt for the compiler in use, from where it came.
setup_rust_tools() {
    if cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1; then
        return 0
    fi
    local owner minor
    owner=$(dpkg -S "$(readlink -f "$(command -v rustc)")" 2>/dev/null | head -n 1)
    minor=$(rust_minor rustc)
    case ${owner%%:*} in
    rustc-web) apt_install rust-web-clippy rustfmt-web ;;
    rustc-1.*) apt_install "rust-1.$minor-clippy" "rustfmt-1.$minor" ;;
    rustc) apt_install rust-clippy rustfmt ;;
    *)
        if have rustup; then
            quietly rustup component add clippy rustfmt
        else
            die "this Rust has no clippy and rustfmt"
        fi
        ;;
    esac
}

# Everything that the tests need.
setup_tests() {
    setup_build
    setup_jdk
    # shellcheck disable=SC2086
    ensure $TEST_NEEDS
    # What gcc -m32 needs. Not gcc-multilib: that conflicts with all cross compilers, for the sake of /usr/include/asm.
    local gcc
    gcc=$(gcc -dumpversion | cut -d . -f 1)
    [ "$(uname -m)" != x86_64 ] || ensure "/usr/lib/gcc/x86_64-linux-gnu/$gcc/32/libgcc.a:gcc-$gcc-multilib"
    setup_rust_tools
}

# Everything that vmtest needs beside what the tests need.
setup_vm() {
    # shellcheck disable=SC2086
    ensure $VM_NEEDS
}

# A compiler for the other architecture: sets CROSS_CARGO and CROSS_RUSTC, or CROSS_WHY to why there is none. It is the
# compiler in use if it has the target, else Debian's, whose standard library for arm64 is a package.
AARCH64=aarch64-unknown-linux-gnu
setup_cross() {
    CROSS_CARGO=$(command -v cargo) CROSS_RUSTC=$(command -v rustc) CROSS_WHY=
    has_aarch64 "$CROSS_RUSTC" && return 0
    if has_aarch64 /usr/bin/rustc && [ "$(rust_minor /usr/bin/rustc)" -ge "$RUST_MIN_MINOR" ]; then
        CROSS_CARGO=/usr/bin/cargo CROSS_RUSTC=/usr/bin/rustc
        return 0
    fi
    if have rustup && timeout 120 rustup target add "$AARCH64" >/dev/null 2>&1; then
        return 0
    fi
    if [ "$(. /etc/os-release && echo "$ID")" != debian ]; then
        CROSS_WHY="no standard library for $AARCH64: rustup target add $AARCH64"
        return 0
    fi
    if ! dpkg --print-foreign-architectures | grep -qx arm64; then
        say "adding the architecture arm64 to dpkg, for its Rust standard library"
        as_root dpkg --add-architecture arm64
        apt_updated=
    fi
    apt_update
    if candidate_will_do rustc-web && candidate_will_do libstd-rust-web-dev:arm64; then
        apt_install rustc-web cargo-web libstd-rust-web-dev:arm64
        CROSS_CARGO=/usr/bin/cargo CROSS_RUSTC=/usr/bin/rustc
    else
        CROSS_WHY="apt has no libstd-rust-web-dev:arm64 that is new enough, and rustup could not bring the target"
    fi
}

has_aarch64() {
    [ -x "$1" ] && [ -d "$("$1" --print sysroot)/lib/rustlib/$AARCH64/lib" ]
}
