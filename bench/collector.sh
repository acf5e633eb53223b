#!/usr/bin/env bash
# Builds an OpenTelemetry Collector with its own builder, from Go modules, and has the daemon push to it: see
# tests/end_to_end/daemon/collector.rs. Needs root, Go, and the network the first time; the Collector stays in
# $JBPF_PROF_CACHE/collector (default: ~/.cache/jbpf-prof).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

# The newest whose modules could all be had when this was written: of 0.164.0 some are refused by the module proxy.
VERSION=0.159.0
collector=$CACHE/collector/otelcol-$VERSION
if [ ! -x "$collector" ]; then
    say "building the Collector $VERSION"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cat >"$work/manifest.yaml" <<MANIFEST
dist: {name: otelcol, output_path: $work/out}
receivers: [{gomod: go.opentelemetry.io/collector/receiver/otlpreceiver v$VERSION}]
exporters: [{gomod: go.opentelemetry.io/collector/exporter/debugexporter v$VERSION}]
MANIFEST
    GOBIN=$work go install "go.opentelemetry.io/collector/cmd/builder@v$VERSION"
    "$work/builder" --config "$work/manifest.yaml"
    mkdir -p "$CACHE/collector"
    mv "$work/out/otelcol" "$collector"
fi
JBPF_PROF_COLLECTOR=$collector exec cargo test --locked -p jbpf-prof-tests --test end_to_end -- \
    --ignored --nocapture a_real_collector
