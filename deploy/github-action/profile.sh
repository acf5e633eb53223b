#!/usr/bin/env bash
# Runs a command under the profiler, and writes a page for each run: PROFILES/run-1.html and so on. Settings are in the
# environment: COMMAND, RUNS, OPTIONS, PROFILES, BINARY (action.yml says what they mean).
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
for ((run = 1; run <= RUNS; run++)); do
    "${as_root[@]}" "$BINARY" "${options[@]}" -o "$PROFILES/run-$run.html" -- "${as_user[@]}" bash -c "$COMMAND"
done
[ "$(id -u)" = 0 ] || sudo chown -R "$(id -u):$(id -g)" "$PROFILES"
