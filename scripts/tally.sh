# Sourced by test.sh: runs steps, keeps their output, and counts what passed, failed and was skipped.
# shellcheck shell=bash

passed=0
failed=0
skipped=0
skips=()
left_out=()

# Prints "PACKAGE_DIRECTORY TEST_BINARY" for each test binary that `cargo test ARGS` would run, after building them.
test_binaries() {
    local messages
    messages=$(cargo test --no-run --locked --message-format=json "$@" 2>"$LOGS/build-tests.err") || {
        cat "$LOGS/build-tests.err" >&2
        compiler_errors "$messages" >&2
        return 1
    }
    sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo\.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' \
        <<<"$messages"
}

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

LOGS=${CARGO_TARGET_DIR:-$REPO/target}/test
mkdir -p "$LOGS"

# Runs step_NAME with its output in a file; says how it went, and how long each of its files of tests took. A step that
# runs tests counts as its tests, another as 1.
run_step() {
    local log=$LOGS/$1.log start=$SECONDS rc=0 tests fails skip
    printf '%-12s ' "$1"
    "step_$1" >"$log" 2>&1 || rc=$?
    tests=$(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$log" | paste -sd+ | sum)
    fails=$(sed -n 's/^test result: .* \([0-9]*\) failed; .*/\1/p' "$log" | paste -sd+ | sum)
    local here=0
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
        printf 'ok      %4d s' $((SECONDS - start))
        [ "$tests" = 0 ] || printf '   %d tests' "$tests"
        [ "$here" = 0 ] || printf ', %d of them skipped or left out' "$here"
        printf '\n'
        sed -n 's/^TOOK: /             /p' "$log" | sort -k 1,1nr
    else
        passed=$((passed + tests))
        [ "$fails" -gt 0 ] || fails=1
        failed=$((failed + fails))
        printf 'FAILED  %4d s   %s\n' $((SECONDS - start)) "$log"
        # Which tests failed and what they said comes first: a reader may see only a part of this.
        grep -nE '^(error|test .* FAILED)' "$log" | head -n 40 || true
        grep -nE -A 6 '^thread .* panicked' "$log" | head -n 120 || true
        tail -n 20 "$log"
    fi
}

# The value of a sum like 1+2+3 on standard input; 0 for nothing.
sum() {
    local terms
    IFS= read -r terms || true
    echo $((${terms:-0}))
}

# The reasons for what was skipped or left out, what the build takes of the disk, and the closing line. What a
# distribution does not bring, and setup.sh does not fetch, is left out: that is no failure anywhere.
summary() {
    local skip
    if [ ${#skips[@]} -gt 0 ]; then
        printf '\nskipped:\n'
        for skip in "${skips[@]}"; do printf '  %s\n' "$skip"; done
    fi
    if [ ${#left_out[@]} -gt 0 ]; then
        printf '\nleft out, for what this distribution does not bring:\n'
        printf '%s\n' "${left_out[@]}" | sort | uniq -c
    fi
    printf '\ndisk: the build takes %s, %s are free\n' "$(du -sh "${LOGS%/test}" | cut -f 1)" \
        "$(df -h --output=avail "$LOGS" | tail -n 1 | tr -d ' ')"
    printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    if [ "${CI:-}" = true ] && [ "$skipped" -gt 0 ]; then
        echo "CI=true: what was skipped here counts as failed"
        return 1
    fi
    [ "$failed" = 0 ]
}
