#!/usr/bin/env bash
# Passes every test of jbpf-prof: formatting, lints, documentation, unit tests without root, the static binary, the demo,
# the other architecture, fuzz targets for some seconds, end-to-end tests as root, the same on other kernels in QEMU.
#
#   ./test.sh               all of it
#   ./test.sh --quick       without the other architecture, the release, the fuzz targets, other kernels (vmtest) and the JDKs that
#                           apt must fetch
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

STEPS="scripts fmt clippy doc unit build demo static cross release fuzz end-to-end vmtest"
QUICK="scripts fmt clippy doc unit build demo static end-to-end"

step_scripts() {
    local file
    for file in demo.sh test.sh .ci/run bench/*.sh deploy/*.sh deploy/github-action/*.sh scripts/*.sh scripts/release/*.sh; do
        bash -n "$file" || return 1
    done
    if have shellcheck; then
        shellcheck --shell=bash --external-sources --exclude=SC1091 demo.sh test.sh .ci/run bench/*.sh deploy/*.sh deploy/github-action/*.sh scripts/*.sh scripts/release/*.sh
    fi || return 1
    if grep -rniE --include='*.rs' '"skip(s|ped)?\b' src tests jvm-symbols-agent | grep -v '"SKIP: '; then
        echo 'scripts/tally.sh counts lines that begin with "SKIP: "; these do not'
        return 1
    fi
}

step_fmt() { cargo fmt --all --check; }

step_clippy() { cargo clippy --workspace --all-targets --locked -- -D warnings; }

step_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked; }

# Files of tests under tests/ that read only the source, the documents and golden files: they need no root and no release
# binary.
WITHOUT_ROOT="documents formats layers"

# Unit tests and the files above, as a user who may do nothing.
step_unit() {
    local binaries binary name files=() nobody=()
    for name in $WITHOUT_ROOT; do files+=(--test "$name"); done
    binaries=$(test_binaries --workspace --lib --bins && test_binaries -p jvm-symbols-log --features reader --test '*' &&
        test_binaries -p jbpf-prof "${files[@]}") || return 1
    [ -n "$binaries" ] || { echo "no unit tests were built"; return 1; }
    if [ "$(id -u)" = 0 ]; then
        nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all)
        if ! "${nobody[@]}" test -r "$REPO/Cargo.toml"; then
            echo "user 65534 cannot read $REPO: the tests run as root without capabilities instead"
            nobody=(setpriv --bounding-set=-all --inh-caps=-all)
        fi
        mkdir -p "$GO_CACHE" && chown -R 65534 "$GO_CACHE" || return 1
    fi
    while read -r package binary; do
        echo "--- $binary"
        (cd "$package" && ${nobody[@]+"${nobody[@]}"} env -u CARGO_TARGET_DIR HOME=/nonexistent "GOCACHE=$GO_CACHE" \
            "$binary" --show-output) || return 1
    done <<<"$binaries"
    cargo test --workspace --doc --locked
}

step_build() {
    build_release || return 1
    # In the target directory of the build, an installation is a copy.
    local root=$LOGS/cargo-install
    cargo install --path . --locked --offline --quiet --no-track --force --target "$(host_triple)" --target-dir "${CARGO_TARGET_DIR:-target}" \
        --root "$root" || return 1
    "$root/bin/jbpf-prof" --version && rm -r "$root" || return 1
    # Cargo keeps what it unpacked and built of these packages, also after they have changed.
    local packages=$LOGS/packages
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/jvm-symbols-* "$packages"
    # A build of each package would verify it. The profiler's takes minutes, so its list of files is compared instead.
    local package=(cargo package --locked --offline --quiet --allow-dirty --target-dir "$packages" -p jvm-symbols-log -p jvm-symbols-agent)
    "${package[@]}" && "${package[@]}" -p jbpf-prof --no-verify && package_is_complete && rm -r "$packages"
}

# What a newcomer runs first.
step_demo() {
    ./demo.sh --duration 3 --all -o "$LOGS/demo.folded" || return 1
    # Time that is on the Java shop itself, in whole stacks.
    grep -q '^java;.*;thread_native_entry;.*;call_stub;.*;Shop\.[a-z]*_.*_\[j\]' "$LOGS/demo.folded"
}

step_static() { check_static "$(release_binary "$(host_triple)")"; }

step_cross() {
    setup_cross
    if [ -n "$CROSS_WHY" ]; then
        echo "SKIP: cross build for aarch64: $CROSS_WHY"
        return 0
    fi
    build_cross --release || return 1
    check_static "$(release_binary "$AARCH64")" || return 1
    readelf --file-header "$(release_binary "$AARCH64")" | grep -q 'Machine: *AArch64'
}

# The files of a release, made of the binaries of the steps before, and used as a user would.
step_release() {
    setup_cross
    if [ -n "$CROSS_WHY" ]; then
        echo "SKIP: a release needs a cross build for aarch64: $CROSS_WHY"
        return 0
    fi
    build_release && build_cross --release || return 1
    as_root env "PATH=$PATH" "JBPF_PROF_CACHE=$CACHE" scripts/release/check.sh "$(release_binary "$(host_triple)")" \
        "$(release_binary "$AARCH64")"
}

step_fuzz() { fuzz/run.sh 3; }

# Files of tests that each look at one program of their own, by its pid, or wait most of their time: what another such
# file does meanwhile is no matter to them. The others look at the whole machine, or count what it has time for. Those that
# take longest come first, so that none is left to run alone at the end.
BESIDE="daemon diff debug_files hotspot vm jdks dead truth attach locks waits interpreted replay unwind options uprobes perf_maps symbols agent moved page thread_names capabilities wait_reasons found pauses alloc trace_context top events pprof jfr go chosen compat odd_jvms native_alloc"

# Everything else under tests/, as root: first what wants the machine for itself, one file after the other, then the rest, two
# at a time.
step_end-to-end() {
    local binaries package binary name rc=0 beside=()
    if [ -n "$roots" ]; then
        wait "$roots" || { cat "$LOGS/jdk-roots.log" && echo "SKIP: JDK root file systems: see above"; }
    elif [ -z "$quick" ]; then
        scripts/jdk-roots.sh || echo "SKIP: JDK root file systems: see above"
    fi
    binaries=$(test_binaries --test '*') || return 1
    build_release || return 1
    [ -n "$binaries" ] || { echo "no end-to-end tests were built"; return 1; }
    rm -f "$LOGS"/beside-*.log
    while read -r package binary; do
        name=$(test_name "$binary")
        [[ " $BESIDE $WITHOUT_ROOT " == *" $name "* ]] || end_to_end "$package" "$binary" || rc=1
    done <<<"$binaries"
    for name in $BESIDE; do
        while read -r package binary; do
            [ "$(test_name "$binary")" != "$name" ] || beside+=("$package" "$binary")
        done <<<"$binaries"
    done
    export -f end_to_end beside as_root have die test_name release_binary host_triple
    export REPO CACHE LOGS GO_CACHE
    printf '%s\0' "${beside[@]}" | xargs -0 -n 2 -P 2 bash -c 'beside "$@"' beside || rc=1
    cat "$LOGS"/beside-*.log
    return "$rc"
}

# One file of end-to-end tests: PACKAGE_DIRECTORY TEST_BINARY.
end_to_end() {
    local start=$SECONDS rc=0
    echo "--- $2"
    (cd "$1" && as_root env "PATH=$PATH" "JBPF_PROF_CACHE=$CACHE" "GOCACHE=$GO_CACHE" "CI=${CI:-}" \
        "JBPF_PROF_BINARY=$(release_binary "$(host_triple)")" "$2" --show-output --test-threads=1) || rc=$?
    echo "TOOK: $((SECONDS - start)) s $(test_name "$2")"
    return "$rc"
}

# The same with its output in a file of its own.
beside() { end_to_end "$@" >"$LOGS/beside-$(test_name "$2").log" 2>&1; }

# The name of a file of tests, of the binary that cargo makes of it: NAME-HASH.
test_name() { basename "${1%-*}"; }

# Guests with other kernels, each with two JDKs; then the harness itself, broken on purpose. docs/vmtest.md.
step_vmtest() {
    setup_vm
    build_release || return 1
    local binaries binary rc=0 settings
    binaries=$(test_binaries -p vmtest --test harness) || return 1
    settings=("PATH=$PATH:/usr/sbin:/sbin" "JBPF_PROF_CACHE=$CACHE" "JBPF_PROF_BINARY=$(release_binary "$(host_triple)")")
    as_root env "${settings[@]}" "${CARGO_TARGET_DIR:-$REPO/target}/$(host_triple)/debug/vmtest" || rc=1
    while read -r package binary; do
        echo "--- $binary"
        (cd "$package" && as_root env "${settings[@]}" "$binary" --ignored) || rc=1
    done <<<"$binaries"
    return "$rc"
}

quick=
chosen=
for arg in "$@"; do
    case $arg in
    --quick) quick=yes ;;
    --list)
        echo "$STEPS"
        exit 0
        ;;
    -*) die "unknown switch $arg" ;;
    *) [[ " $STEPS " == *" $arg "* ]] && chosen="$chosen $arg" || die "no step is called $arg; there are: $STEPS" ;;
    esac
done
if [ -z "$chosen" ] && [ -n "$quick" ]; then
    chosen=$QUICK
    for name in $STEPS; do
        [[ " $QUICK " == *" $name "* ]] || printf '%-12s left out by --quick\n' "$name"
    done
fi
[ -n "$chosen" ] || chosen=$STEPS

setup_tests
# Root file systems with JDKs take minutes, mostly of the network. The steps before those that profile are builds: these run
# meanwhile. Not through sudo, which may ask for a password.
roots=
if [[ " $chosen " == *" end-to-end "* ]] && [ -z "$quick" ] && [ "$(id -u)" = 0 ]; then
    scripts/jdk-roots.sh >"$LOGS/jdk-roots.log" 2>&1 &
    roots=$!
fi
for name in $chosen; do
    run_step "$name"
done
summary
