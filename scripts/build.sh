# Sourced: builds the product, and says where its binaries are and what they must be.
# shellcheck shell=bash

# The machine's own target triple.
host_triple() { rustc -vV | sed -n 's/^host: //p'; }

target_directory() { echo "${CARGO_TARGET_DIR:-$REPO/target}"; }

# What demo.sh and the tests run.
build_quick() { (cd "$REPO" && cargo build --profile quick --locked); }
quick_binary() { echo "$(target_directory)/$(host_triple)/quick/jbpf-prof"; }

# What users get, for a triple.
build_release() { (cd "$REPO" && cargo build --release --locked); }
release_binary() { echo "$(target_directory)/$1/release/jbpf-prof"; }

# Cargo for the other architecture, after setup_cross.
cross() { RUSTC=$CROSS_RUSTC "$CROSS_CARGO" "$@" --locked --target "$AARCH64" --package jbpf-prof; }

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

# Fails if the profiler's package for crates.io lacks a file that the build of this binary has read. `exclude` of Cargo.toml
# could name too much. The agent's crates are packages of their own.
package_is_complete() (
    cd "$REPO" || return 1
    local read missing
    # Directories stand for their files.
    read=$(tr ' ' '\n' <"$1.d" | sed -n "s|^$REPO/||p" | grep -v '^target/\|^jvm-symbols-agent\(/\|$\)\|^\.git/') || return 1
    # shellcheck disable=SC2086 # a list
    read=$(git ls-files --cached --others --exclude-standard -- $read | sort)
    grep -qx 'bpf/profiler.bpf.c' <<<"$read" || { echo "$1.d does not name the files of the build"; return 1; }
    missing=$(comm -23 - <(cargo package --list --locked --offline --allow-dirty --quiet -p jbpf-prof | sort) <<<"$read")
    [ -z "$missing" ] || { echo "the package of jbpf-prof lacks:"; echo "$missing"; return 1; }
)
