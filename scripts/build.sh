# Sourced: where cargo puts things, and what the product's binary must be.
# shellcheck shell=bash

# The machine's own target triple.
host_triple() { rustc -vV | sed -n 's/^host: //p'; }

# Where `cargo build --release` puts the binary for a triple.
release_binary() { echo "${CARGO_TARGET_DIR:-$REPO/target}/$1/release/jbpf-prof"; }

build_release() { (cd "$REPO" && cargo build --release --locked); }

# Fails unless the binary is one file that needs no other: no interpreter, no needed library.
check_static() {
    local headers dynamic
    headers=$(LC_ALL=C readelf --program-headers --wide "$1") || return 1
    dynamic=$(LC_ALL=C readelf --dynamic --wide "$1") || return 1
    if grep -qw INTERP <<<"$headers"; then
        echo "$1 asks for a dynamic loader"
        return 1
    fi
    if grep -q '(NEEDED)' <<<"$dynamic"; then
        echo "$1 needs libraries:"
        grep '(NEEDED)' <<<"$dynamic"
        return 1
    fi
    echo "$1 is static"
}
