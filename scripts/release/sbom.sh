# Sourced by release.sh: the bill of materials, CycloneDX 1.5.
# shellcheck shell=bash

sbom() {
    local crates=$WORK/sbom-crates
    linked_crates | cut -f 1-3 >"$crates"
    jq --null-input --rawfile crates "$crates" --rawfile lock Cargo.lock --arg version "$VERSION" --arg commit "$COMMIT" \
        --arg time "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" \
        --argjson libraries "$(vendored_libraries)" '
        # The checksum of each crate of a registry, by "NAME@VERSION".
        ([$lock | scan("name = \"(.+)\"\nversion = \"(.+)\"\nsource = .*\nchecksum = \"(.+)\"")
            | { key: "\(.[0])@\(.[1])", value: .[2] }] | from_entries) as $checksums
        | [$crates | split("\n")[] | select(. != "") | split("\t") | { name: .[0], version: .[1], license: .[2] }] as $crates
        | {
            bomFormat: "CycloneDX",
            specVersion: "1.5",
            version: 1,
            metadata: {
                timestamp: $time,
                component: {
                    type: "application", "bom-ref": "pkg:cargo/jbpf-prof@\($version)", name: "jbpf-prof", version: $version,
                    licenses: [{ expression: "Apache-2.0 OR MIT" }], purl: "pkg:cargo/jbpf-prof@\($version)",
                    properties: [{ name: "commit", value: $commit }]
                }
            },
            components: ([$crates[] | select(.name != "jbpf-prof") | "\(.name)@\(.version)" as $id | {
                type: "library", "bom-ref": "pkg:cargo/\($id)", name, version, purl: "pkg:cargo/\($id | @uri | gsub("%40"; "@"))"
            } + (if .license == "" then {} else { licenses: [{ expression: (.license | gsub("/"; " OR ")) }] } end)
              + (if $checksums[$id] then { hashes: [{ alg: "SHA-256", content: $checksums[$id] }] } else {} end)]
              + $libraries)
        }'
}

# The C libraries in the crate libbpf-sys, with the versions that their own sources name.
vendored_libraries() {
    local crate libbpf elfutils zlib
    crate=$(linked_crates | awk -F '\t' '$1 == "libbpf-sys" { print $4 }')
    libbpf=$(linked_crates | sed -n 's/^libbpf-sys\t[^+]*+v\([^\t]*\)\t.*/\1/p')
    elfutils=$(sed -n 's/^AC_INIT(\[elfutils\],\[\([^]]*\)\].*/\1/p' "$crate/elfutils/configure.ac")
    zlib=$(sed -n 's/^#define ZLIB_VERSION "\(.*\)"/\1/p' "$crate/zlib/zlib.h")
    case "$libbpf/$elfutils/$zlib" in
    /* | *//* | */) die "libbpf-sys does not say which versions of libraries it contains" ;;
    esac
    jq --null-input --arg libbpf "$libbpf" --arg elfutils "$elfutils" --arg zlib "$zlib" '
        def library($name; $version; $license): {
            type: "library", "bom-ref": "pkg:generic/\($name)@\($version)", name: $name, version: $version,
            licenses: [{ expression: $license }], purl: "pkg:generic/\($name)@\($version)"
        };
        [library("libbpf"; $libbpf; "LGPL-2.1-only OR BSD-2-Clause"),
         library("elfutils"; $elfutils; "GPL-2.0-or-later OR LGPL-3.0-or-later"),
         library("zlib"; $zlib; "Zlib")]'
}
