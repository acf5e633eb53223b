#!/usr/bin/env bash
# Builds the kustomize base, its overlay and the Helm chart, and checks them against the schemas of Kubernetes. Also checks
# that the chart's defaults and the base are the same. `kubernetes-validate`, which carries the schemas, comes from PyPI,
# and Helm from the proxy of Go modules, into $JBPF_PROF_CACHE (default: ~/.cache/jbpf-prof) the first time. Needs kubectl
# or kustomize, python3, and Go for Helm.
#
#   deploy/check.sh             the newest version of Kubernetes that is known
#   deploy/check.sh 1.30 1.34   these
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

HELM_VERSION=v3.22.0

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
helm=$(command -v helm) || helm=$CACHE/helm/helm
[ -x "$helm" ] || quietly env "GOBIN=$CACHE/helm" go install "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
chart=deploy/helm/jbpf-prof
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

validate() {
    local version
    for version in "${versions[@]}"; do
        "$schemas/bin/kubernetes-validate" --strict ${version:+--kubernetes-version "$version"} "$1"
    done
}

# A helm that Go built takes Kubernetes 1.20 for the cluster's version.
template() { "$helm" template jbpf-prof "$chart" --namespace jbpf-prof --kube-version 1.34 "$@"; }

versions=("${@:-}")
for made in deploy/base deploy/annotations; do
    "${build[@]}" "$made" >"$work/${made##*/}.yaml"
    validate "$work/${made##*/}.yaml"
done

"$helm" lint --strict "$chart"
template --set image.tag=latest >"$work/chart.yaml"
template --set agentAnnotation.enabled=true --set networkPolicy.enabled=true --set existingSecret=tokens \
    --set-json 'sinks=[{"type":"pyroscope","url":"https://pyroscope:4040","token-file":"/etc/jbpf-prof-secret/token"}]' \
    >"$work/chart-all.yaml"
validate "$work/chart.yaml"
validate "$work/chart-all.yaml"
# A PodMonitor is no object of Kubernetes itself.
template --set podMonitor.enabled=true | grep -q '^kind: PodMonitor$'
for wrong in settings.directory=relative image.repository= metricsPort=0 unknown=1; do
    if template --set "$wrong" >"$work/wrong" 2>&1; then
        die "the schema of the values accepts $wrong"
    fi
done
"$schemas/bin/python" deploy/compare.py "$work/base.yaml" "$work/chart.yaml"
