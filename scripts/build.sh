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

# Fails if the profiler's package for crates.io lacks a file that the release build has read. `exclude` of Cargo.toml could
# name too much. The agent's crates are packages of their own.
package_is_complete() (
    cd "$REPO" || return 1
    local binary read missing
    binary=$(release_binary "$(host_triple)")
    # Directories stand for their files.
    read=$(tr ' ' '\n' <"$binary.d" | sed -n "s|^$REPO/||p" | grep -v '^target/\|^jvm-symbols-agent\(/\|$\)\|^\.git/') || return 1
    # shellcheck disable=SC2086 # a list
    read=$(git ls-files --cached --others --exclude-standard -- $read | sort)
    grep -qx 'bpf/profiler.bpf.c' <<<"$read" || { echo "$binary.d does not name the files of the build"; return 1; }
    missing=$(comm -23 - <(cargo package --list --locked --offline --allow-dirty --quiet -p jbpf-prof | sort) <<<"$read")
    [ -z "$missing" ] || { echo "the package of jbpf-prof lacks:"; echo "$missing"; return 1; }
)
