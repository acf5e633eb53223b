#!/usr/bin/env bash
# Passes what every change of jbpf-prof must pass: lints, documentation, unit tests without root, the demo, end-to-end tests as
# root, a check build for AArch64, and guests with other kernels in QEMU.
#
#   ./test.sh               all of that
#   ./test.sh --full        also: each kernel with each JDK, the fuzz targets by time, the binary of AArch64, the files of a release
#   ./test.sh NAME ...      only these steps: see `./test.sh --list`
#
# Installs through apt what is missing. Each step's output is in target/test/NAME.log. What is skipped is said, with the
# reason; with CI=true skipping what this machine could do is a failure.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
# What users set for themselves changes what tests read, what JVMs do, and where files go that others are to reach.
export LC_ALL=C.UTF-8
unset TMPDIR LD_BIND_NOW JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
# A machine that builds once has no use for what makes the next build quicker, and that is gigabytes.
[ "${CI:-}" != true ] || export CARGO_INCREMENTAL=0
. scripts/common.sh
. scripts/setup.sh
. scripts/build.sh
. scripts/tally.sh

# Since Go 1.25 the first `go tool pprof` builds that tool: one cache for all users and steps.
GO_CACHE=$LOGS/go

STEPS="scripts fmt build unit demo end-to-end clippy doc vmtest"
FULL="scripts fmt build unit demo end-to-end clippy doc fuzz release vmtest"
# Compilers, which run while end-to-end tests wait, on CPU time that nobody else wants.
BESIDE="clippy doc"

step_scripts() {
    local scripts=(demo.sh test.sh .ci/run bench/*.sh deploy/*.sh deploy/github-action/*.sh scripts/*.sh scripts/release/*.sh) file
    for file in "${scripts[@]}"; do
        bash -n "$file" || return 1
    done
    if have shellcheck; then
        shellcheck --shell=bash --external-sources --exclude=SC1091 "${scripts[@]}" || return 1
    fi
    if grep -rniE --include='*.rs' '"skip(s|ped)?\b' src tests jvm-symbols-agent | grep -v '"SKIP: '; then
        echo 'scripts/tally.sh counts lines that begin with "SKIP: "; these do not'
        return 1
    fi
}

step_fmt() { cargo fmt --all --check; }

# For AArch64, so that this shows that the source compiles there, too. The build compiles it for this machine, and only a few
# lines are of one architecture. With --full for both.
step_clippy() {
    lint clippy --all-targets -- -D warnings && { [ -z "$full" ] || cargo clippy "${LINT[@]}" --all-targets -- -D warnings; }
}

step_doc() { RUSTDOCFLAGS="-D warnings" lint doc --no-deps --document-private-items; }

# In the profile of the tests, whose build scripts and procedural macros are there.
LINT=(--profile quick --workspace --locked)

# A command of cargo that only checks, for AArch64. Nothing is linked, so libbpf and libelf for that architecture, which take
# longer than all the rest, are not needed.
lint() {
    [ -n "${CROSS_CARGO:-}" ] || setup_lints
    if [ -n "$CROSS_WHY" ]; then
        echo "SKIP: check for aarch64: $CROSS_WHY"
        cargo "$1" "${LINT[@]}" "${@:2}"
        return
    fi
    local PATH=$PATH
    PATH=$(dirname "$CROSS_CARGO"):$PATH
    cargo "$1" "${LINT[@]}" --target "$AARCH64" --config "target.$AARCH64.bpf.rustc-link-lib=[]" "${@:2}"
}

# Finds the compiler for AArch64, with its own lints.
setup_lints() {
    setup_cross
    if [ -z "$CROSS_WHY" ] && [ ! -x "$(dirname "$CROSS_CARGO")/cargo-clippy" ]; then
        CROSS_WHY="the compiler that has the target has no clippy"
    fi
}

# The binary and all programs of tests, in one profile.
step_build() {
    build_quick && binaries | grep . || return 1
    check_static "$(quick_binary)" && package_is_complete "$(quick_binary)"
}

# Unit tests, and tests of the source and of files, as a user who may do nothing.
step_unit() {
    local all package binary rc=0 nobody=()
    all=$(binaries) || return 1
    if [ "$(id -u)" = 0 ]; then
        nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all)
        if ! "${nobody[@]}" test -r "$REPO/Cargo.toml"; then
            echo "user 65534 cannot read $REPO: the tests run as root without capabilities instead"
            nobody=(setpriv --bounding-set=-all --inh-caps=-all)
        fi
        mkdir -p "$GO_CACHE" && chown -R 65534 "$GO_CACHE" || return 1
    fi
    while read -r package binary; do
        case $(test_name "$binary") in end_to_end | harness) continue ;; esac
        echo "--- $binary"
        (cd "$package" && ${nobody[@]+"${nobody[@]}"} env -u CARGO_TARGET_DIR HOME=/nonexistent "GOCACHE=$GO_CACHE" \
            "$binary" --show-output) || rc=1
    done <<<"$all"
    return "$rc"
}

# What a newcomer runs first.
step_demo() {
    ./demo.sh --duration 3 --all -o "$LOGS/demo.folded" || return 1
    # Time that is on the Java shop itself, in whole stacks.
    grep -q '^java;.*;thread_native_entry;.*;call_stub;.*;Shop\.[a-z]*_.*_\[j\]' "$LOGS/demo.folded"
}

# Real programs, as root: as many tests at a time as there are CPUs, then those that change the machine, one by one.
step_end-to-end() {
    if [ -n "$roots" ]; then
        wait "$roots" || { cat "$LOGS/jdk-roots.log" && echo "SKIP: JDK root file systems: see above"; }
    else
        scripts/jdk-roots.sh || echo "SKIP: JDK root file systems: see above"
    fi
    local rc=0 alone=alone::
    end_to_end --test-threads="$(nproc)" --skip "$alone" || rc=1
    end_to_end --test-threads=1 "$alone" || rc=1
    return "$rc"
}

# The end-to-end tests with these arguments. libtest prints how long a test took only with its unstable options.
end_to_end() {
    [ -n "$end_to_end" ] || return 1
    (cd "${end_to_end% *}" && as_root env "PATH=$PATH" "JBPF_PROF_CACHE=$CACHE" "GOCACHE=$GO_CACHE" "CI=${CI:-}" RUSTC_BOOTSTRAP=1 \
        "${end_to_end#* }" --show-output -Z unstable-options --report-time "$@")
}

# A release's binaries as users get them, and its files, used as a user would.
step_release() {
    setup_cross
    if [ -n "$CROSS_WHY" ]; then
        echo "SKIP: a release needs a cross build for aarch64: $CROSS_WHY"
        return 0
    fi
    # Whether it builds, needs no other file and finds the right names is what is asked of it, and is no matter of speed.
    build_release && CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cross build --release || return 1
    local binary
    for binary in "$(release_binary "$(host_triple)")" "$(release_binary "$AARCH64")"; do
        check_static "$binary" || return 1
    done
    readelf --file-header "$(release_binary "$AARCH64")" | grep -q 'Machine: *AArch64' || return 1
    installation && packages || return 1
    as_root env "PATH=$PATH" "JBPF_PROF_CACHE=$CACHE" scripts/release/check.sh "$(release_binary "$(host_triple)")" \
        "$(release_binary "$AARCH64")"
}

# In the target directory of the build, an installation is a copy.
installation() {
    local root=$LOGS/cargo-install
    cargo install --path . --locked --offline --quiet --no-track --force --target "$(host_triple)" --target-dir "$(target_directory)" \
        --root "$root" && "$root/bin/jbpf-prof" --version && rm -r "$root"
}

# The packages for crates.io.
packages() {
    # Cargo keeps what it unpacked and built of these packages, also after they have changed.
    local packages=$LOGS/packages
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/jvm-symbols-* "$packages"
    # A build of each package would verify it. The profiler's takes minutes, so its list of files is compared instead.
    local package=(cargo package --locked --offline --quiet --allow-dirty --target-dir "$packages" -p jvm-symbols-log -p jvm-symbols-agent)
    "${package[@]}" && "${package[@]}" -p jbpf-prof --no-verify && rm -r "$packages"
}

step_fuzz() { fuzz/run.sh 30; }

# Guests with other kernels: docs/vmtest.md. The harness itself, broken on purpose, only with --full.
step_vmtest() {
    setup_vm
    build_quick || return 1
    local package binary rc=0 settings vmtest
    settings=("PATH=$PATH:/usr/sbin:/sbin" "JBPF_PROF_CACHE=$CACHE" "JBPF_PROF_BINARY=$(quick_binary)")
    read -r package binary < <(binaries harness) || return 1
    vmtest=$(dirname "$(quick_binary)")/vmtest
    as_root env "${settings[@]}" "$vmtest" ${full:+--full} || rc=1
    if [ -n "$full" ]; then
        (cd "$package" && as_root env "${settings[@]}" "$binary" --ignored) || rc=1
    fi
    return "$rc"
}

full=
chosen=
compilers=
trap '[ -z "$compilers" ] || kill "$compilers" 2>/dev/null' EXIT
for arg in "$@"; do
    case $arg in
    --full) full=yes ;;
    --list)
        tr ' ' '\n' <<<"$STEPS $FULL" | sort -u
        exit 0
        ;;
    -*) die "unknown switch $arg" ;;
    *) [[ " $STEPS $FULL " == *" $arg "* ]] && chosen="$chosen $arg" || die "no step is called $arg: see ./test.sh --list" ;;
    esac
done
if [ -z "$chosen" ]; then
    chosen=$STEPS
    [ -z "$full" ] || chosen=$FULL
fi

machine
setup_tests
# Root file systems with JDKs take minutes, mostly of the network. The steps before those that profile are builds: these run
# meanwhile. Not through sudo, which may ask for a password.
roots=
if [[ " $chosen " == *" end-to-end "* ]] && [ "$(id -u)" = 0 ]; then
    scripts/jdk-roots.sh >"$LOGS/jdk-roots.log" 2>&1 &
    roots=$!
fi
beside=
if [[ " $chosen " == *" end-to-end "* ]]; then
    for name in $BESIDE; do [[ " $chosen " != *" $name "* ]] || beside="$beside $name"; done
fi
for name in $chosen; do
    [[ " $beside " != *" $name "* ]] || continue
    if [ "$name" = end-to-end ]; then
        # First what may ask for a password, and what needs cargo, which works for one command at a time.
        [ -z "$beside" ] || setup_lints
        end_to_end=$(binaries end_to_end)
        (
            # A subshell in the background ignores Ctrl-C, and its children do not.
            trap - INT
            chrt --idle --pid 0 "$BASHPID"
            for name in $beside; do run_step "$name"; done
        ) &
        compilers=$!
    fi
    [ ! -t 1 ] || printf '%s ...\r' "$name"
    run_step "$name"
    tally_step "$name"
    if [ "$name" = end-to-end ]; then
        wait "$compilers"
        compilers=
        for name in $beside; do tally_step "$name"; done
    fi
done
summary
