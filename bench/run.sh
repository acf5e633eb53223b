#!/usr/bin/env bash
# Builds jbpf-prof and runs the benchmark; see README.md. `JBPF_PROF` names another binary.
set -euo pipefail
bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -z "${JBPF_PROF:-}" ]; then
    (cd "$bench/.." && cargo build --release --locked --bin jbpf-prof)
    triple=$(rustc -vV | sed -n 's/^host: //p')
    JBPF_PROF=${CARGO_TARGET_DIR:-$bench/../target}/$triple/release/jbpf-prof
fi
export JBPF_PROF PYTHONDONTWRITEBYTECODE=1
cd "$bench"
exec python3 -m jbench "$@"
