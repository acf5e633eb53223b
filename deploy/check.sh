#!/usr/bin/env bash
# Builds the kustomize base and its overlay and checks them against the schemas of Kubernetes, offline:
# `kubernetes-validate`, which carries them, comes from PyPI into $JBPF_PROF_CACHE/kubernetes-validate (default: ~/.cache/jbpf-prof) the first time. Needs
# kubectl or kustomize, and python3.
#
#   deploy/check.sh             the newest version of Kubernetes that is known
#   deploy/check.sh 1.30 1.34   these
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

if have kubectl; then
    build=(kubectl kustomize)
elif have kustomize; then
    build=(kustomize build)
else
    die "this needs kubectl or kustomize"
fi
schemas=$CACHE/kubernetes-validate
[ -x "$schemas/bin/kubernetes-validate" ] || {
    quietly python3 -m venv "$schemas"
    quietly "$schemas/bin/pip" install kubernetes-validate
}
built=$(mktemp)
trap 'rm -f "$built"' EXIT
for made in deploy/base deploy/annotations; do
    "${build[@]}" "$made" >"$built"
    for version in "${@:-}"; do
        "$schemas/bin/kubernetes-validate" --strict ${version:+--kubernetes-version "$version"} "$built"
    done
done
