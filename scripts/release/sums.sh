# Sourced by release.sh: checksums, provenance, signature.
# shellcheck shell=bash

# An in-toto statement (SLSA provenance 1.0): which commit and which tools made which files.
provenance() {
    (cd "$DIST" && find . -maxdepth 1 -type f ! -name '*.provenance.json' -printf '%f\n' | sort | xargs sha256sum) |
        jq --raw-input '{ name: .[66:], digest: { sha256: .[:64] } }' |
        jq --slurp --arg version "$VERSION" --arg commit "$COMMIT" --arg epoch "$SOURCE_DATE_EPOCH" \
            --arg rustc "$(rustc --version)" --arg clang "$(clang --version | head -n 1)" '{
            _type: "https://in-toto.io/Statement/v1",
            subject: .,
            predicateType: "https://slsa.dev/provenance/v1",
            predicate: {
                buildDefinition: {
                    buildType: "scripts/release.sh",
                    externalParameters: { version: $version, SOURCE_DATE_EPOCH: $epoch },
                    resolvedDependencies: [{ name: "jbpf-prof", digest: { gitCommit: $commit } }],
                    internalParameters: { rustc: $rustc, clang: $clang }
                },
                runDetails: { builder: { id: "scripts/release.sh" } }
            }
        }'
}

checksums() { (cd "$DIST" && find . -maxdepth 1 -type f -printf '%f\n' | sort | xargs sha256sum >"$WORK/sums" && mv "$WORK/sums" SHA256SUMS); }

# SHA256SUMS.sig, and the public key with which users compare.
sign() {
    if [ -z "${JBPF_PROF_SIGNING_KEY:-}" ]; then
        say "not signed: JBPF_PROF_SIGNING_KEY names no key"
        return 0
    fi
    openssl dgst -sha256 -sign "$JBPF_PROF_SIGNING_KEY" -out "$DIST/SHA256SUMS.sig" "$DIST/SHA256SUMS"
    openssl pkey -in "$JBPF_PROF_SIGNING_KEY" -pubout -out "$DIST/jbpf-prof.pub"
}
