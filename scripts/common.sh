# Sourced by the other scripts: talking, and doing what needs root. bash, `set -euo pipefail` assumed.
# shellcheck shell=bash

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${JBPF_PROF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/jbpf-prof}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root: directly, or by sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "this needs root, and there is no sudo: $*"
    fi
}

# Runs a command quietly; what it printed is shown only if it fails.
quietly() {
    local log
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        rm -f "$log"
    else
        local rc=$?
        cat "$log" >&2
        rm -f "$log"
        return "$rc"
    fi
}
