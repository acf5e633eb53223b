#!/usr/bin/env bash
# Runs a command under the profiler, and writes a page for each run: PROFILES/run-1.html and so on. Settings are in the
# environment: COMMAND, RUNS, OPTIONS, PROFILES, BINARY (action.yml says what they mean). A run whose command fails ends
# the script with the exit code of the command.
set -euo pipefail

as_root=() as_user=()
if [ "$(id -u)" != 0 ]; then
    as_root=(sudo -E env "PATH=$PATH")
    # The command is not run as root.
    as_user=(sudo -E -u "$(id -un)" env "PATH=$PATH")
fi
read -ra options <<<"$OPTIONS"
mkdir -p "$PROFILES"
rm -f "$PROFILES"/run-*.html
# The exit code of jbpf-prof says nothing about the command, so the command's shell leaves its own in this file.
status_file=$(mktemp)
finish() {
    rm -f "$status_file"
    [ "$(id -u)" = 0 ] || sudo chown -R "$(id -u):$(id -g)" "$PROFILES"
}
trap finish EXIT
for ((run = 1; run <= RUNS; run++)); do
    : >"$status_file"
    # shellcheck disable=SC2016 # The inner shell expands these.
    "${as_root[@]}" "$BINARY" "${options[@]}" -o "$PROFILES/run-$run.html" -- \
        "${as_user[@]}" bash -c 'bash -c "$1"; echo $? >"$2"' bash "$COMMAND" "$status_file"
    status=$(<"$status_file")
    if [ "$status" != 0 ]; then
        echo "::error::the command ended with exit code ${status:-unknown} in run $run of $RUNS: nothing is compared"
        exit "${status:-1}"
    fi
done
