# Sourced by test.sh: runs steps, keeps their output, and says at the end what failed and why, and what took the time.
# shellcheck shell=bash

passed=0
failed=0
skipped=0
skips=()
left_out=()
failures=()
rows=()

LOGS=$(target_directory)/test
mkdir -p "$LOGS"

# Prints "PACKAGE_DIRECTORY TEST_BINARY" for each test binary that `cargo test ARGS` would run, after building them.
test_binaries() {
    local messages
    messages=$(cd "$REPO" && cargo test --no-run --profile quick --locked --message-format=json "$@" 2>"$LOGS/build-tests.err") || {
        cat "$LOGS/build-tests.err" >&2
        compiler_errors "$messages" >&2
        return 1
    }
    sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo\.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' \
        <<<"$messages"
}

# Those of the whole workspace, or the one with this name. Two builds, so that nothing is compiled twice: the agent's tests give
# features to what `build.rs` needs, and optimizing the profiler's unit tests would take longer than they run. One of these
# reads lines of its own program.
binaries() {
    local all package binary agent=(-p jvm-symbols-agent -p jvm-symbols-log)
    local own=profile.quick.package.jbpf-prof
    all=$(test_binaries --workspace --exclude jbpf-prof "${agent[@]/-p/--exclude}") || return 1
    [ $# -gt 0 ] || all+=$'\n'$(test_binaries -p jbpf-prof "${agent[@]}" --lib --test '*' --features jvm-symbols-log/reader \
        --config "$own.opt-level=0" --config "$own.debug='line-tables-only'") || return 1
    while read -r package binary; do
        [ $# -gt 0 ] && [ "$(test_name "$binary")" != "$1" ] || echo "$package $binary"
    done <<<"$all"
}

# The name of a test binary, which cargo calls NAME-HASH.
test_name() { basename "${1%-*}"; }

# The compiler's own words in cargo's messages, without a JSON parser at hand.
compiler_errors() {
    python3 -c '
import json, sys
for line in sys.stdin:
    try:
        print(json.loads(line)["message"]["rendered"])
    except (ValueError, KeyError, TypeError):
        pass' <<<"$1"
}

# What the results depend on beside the source.
machine() {
    local flags feature has=
    flags=" $(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo | head -n 1) "
    for feature in avx2 bmi2 sha_ni vaes avx512f fsrm; do
        [[ $flags != *" $feature "* ]] || has="$has $feature"
    done
    printf 'commit %s, %s, kernel %s\n%d CPUs: %s, with%s\n' "$(git -C "$REPO" describe --always --dirty 2>/dev/null)" \
        "$(. /etc/os-release && echo "$PRETTY_NAME")" "$(uname -r)" "$(nproc)" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "${has:- none of the features that tests ask for}"
    printf 'load %s, memory %s, disk %s\n\n' "$(cut -d ' ' -f 1-3 /proc/loadavg)" "$(awk '/^MemAvailable/ { printf "%.1f GB", $2 / 1e6 }' /proc/meminfo)" \
        "$(df -h --output=avail "$LOGS" | tail -n 1 | tr -d ' ')"
}

# Runs step_NAME with its output in a file. Another file gets the exit code, the seconds, and the seconds of CPU.
run_step() {
    local rc=0 start=$SECONDS TIMEFORMAT='%U %S'
    rm -f "$LOGS/$1.result"
    { time "step_$1" >"$LOGS/$1.log" 2>&1 || rc=$?; } 2>"$LOGS/cpu-$1"
    awk -v rc="$rc" -v took=$((SECONDS - start)) '{ printf "%d %d %.0f\n", rc, took, $1 + $2 }' "$LOGS/cpu-$1" >"$LOGS/$1.result"
    rm "$LOGS/cpu-$1"
}

# Says how a step went that has run. A step that runs tests counts as its tests, another as 1.
tally_step() {
    local log=$LOGS/$1.log rc=1 took=0 cpu=0 tests fails skip here=0
    # A step that was ended has no result.
    [ ! -e "$LOGS/$1.result" ] || read -r rc took cpu <"$LOGS/$1.result"
    tests=$(sum_of passed "$log")
    fails=$(sum_of failed "$log")
    while IFS= read -r skip; do
        skips+=("$1: $skip")
        here=$((here + 1))
    done < <(sed -n 's/^SKIP: //p' "$log")
    skipped=$((skipped + here))
    while IFS= read -r skip; do
        left_out+=("$1: $skip")
        here=$((here + 1))
    done < <(sed -n 's/^LEFT OUT: //p' "$log")
    if [ "$rc" = 0 ]; then
        if [ "$tests" -gt 0 ]; then
            passed=$((passed + tests - here))
        elif [ "$here" = 0 ]; then
            passed=$((passed + 1))
        fi
        rows+=("$(printf '%-12s ok     %5d s %6d s of CPU' "$1" "$took" "$cpu")")
        [ "$tests" = 0 ] || rows[-1]+=", $tests tests"
        [ "$here" = 0 ] || rows[-1]+=", $here of them skipped or left out"
    else
        passed=$((passed + tests))
        [ "$fails" -gt 0 ] || fails=1
        failed=$((failed + fails))
        rows+=("$(printf '%-12s FAILED %5d s %6d s of CPU' "$1" "$took" "$cpu"), $log")
        failures+=("$(reasons "$1" "$log")")
    fi
    printf '%s\n' "${rows[-1]}"
}

# What libtest says in a log about how many tests passed or failed.
sum_of() { sed -n "s/^test result: .* \([0-9]*\) $1; .*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'; }

# Each failed test of a step with its first message; for a step without tests its errors, or the end of its output.
reasons() {
    local found
    found=$(awk '
        /^(successes|failures):$/ { section = $1 }
        section == "failures:" && /^---- .* stdout ----$/ { name = $2; next }
        name != "" && /panicked at/ { print name; left = 8; name = ""; next }
        left > 0 && /^(note: |stack backtrace|$)/ { left = 0 }
        left > 0 { print "    " substr($0, 1, 400); left-- }
        /^FAILED: /' "$2")
    [ -n "$found" ] || found=$(grep -nE -A 8 '^(error|warning|fatal|.*: FAILED)' "$2" | head -n 40)
    [ -n "$found" ] || found=$(tail -n 15 "$2")
    printf '%s:\n%s\n' "$1" "$found"
}

# The reasons for what was skipped, left out or failed, the steps, the slowest tests, and the closing line. What a distribution
# does not bring, and setup.sh does not fetch, is left out: that is no failure anywhere.
summary() {
    if [ ${#skips[@]} -gt 0 ]; then
        printf '\nskipped:\n'
        printf '  %s\n' "${skips[@]}"
    fi
    if [ ${#left_out[@]} -gt 0 ]; then
        printf '\nleft out, for what this distribution does not bring:\n'
        printf '%s\n' "${left_out[@]}" | sort | uniq -c
    fi
    printf '\nthe slowest tests:\n'
    cat "$LOGS"/{unit,end-to-end}.log 2>/dev/null |
        sed -n 's/^test \(.*\) \.\.\. [a-z]* <\([0-9.]*\)s>$/\2 s  \1/p' | sort -k 1,1nr | head -n 10
    printf '\nsteps (%d s in all):\n' "$SECONDS"
    printf '%s\n' "${rows[@]}"
    printf '\ndisk: the build takes %s, %s are free\n' "$(du -sh "${LOGS%/test}" | cut -f 1)" \
        "$(df -h --output=avail "$LOGS" | tail -n 1 | tr -d ' ')"
    if [ ${#failures[@]} -gt 0 ]; then
        printf '\nfailed:\n'
        printf '%s\n' "${failures[@]}"
    fi
    printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    if [ "${CI:-}" = true ] && [ "$skipped" -gt 0 ]; then
        echo "CI=true: what was skipped here counts as failed"
        return 1
    fi
    [ "$failed" = 0 ]
}
