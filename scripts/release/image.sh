# Sourced by release.sh: the container image, as an OCI layout for both architectures in one archive.
# shellcheck shell=bash

# Stores standard input as a blob, and prints its descriptor: MEDIA_TYPE.
blob() {
    local file=$WORK/blob sum
    cat >"$file"
    sum=$(sha256sum "$file")
    sum=${sum%% *}
    jq --null-input --compact-output --arg type "$1" --arg sum "$sum" --argjson size "$(stat -c %s "$file")" \
        '{ mediaType: $type, digest: "sha256:\($sum)", size: $size }'
    mv "$file" "$layout/blobs/sha256/$sum"
}

# The descriptor of the image for one architecture.
image_of() {
    local root=$WORK/image-$1 arch=arm64 diff layer config
    [ "$1" != x86_64 ] || arch=amd64
    mkdir -p "$root/licenses"
    install -m 755 "$WORK/bin/$1" "$root/jbpf-prof"
    cp LICENSE-APACHE LICENSE-MIT "$WORK/THIRD-PARTY-LICENSES.txt" "$root/licenses/"
    plain_tar --directory "$root" jbpf-prof licenses >"$WORK/layer"
    diff=$(sha256sum "$WORK/layer")
    layer=$(gzip "-${LEVEL}n" <"$WORK/layer" | blob application/vnd.oci.image.layer.v1.tar+gzip)
    # The same as deploy/Containerfile, which says why.
    config=$(jq --null-input --compact-output --arg arch "$arch" --arg diff "sha256:${diff%% *}" --arg time "$time" \
        --argjson labels "$labels" '{
            created: $time, architecture: $arch, os: "linux",
            config: { User: "0:0", Entrypoint: ["/jbpf-prof"], Cmd: ["daemon"], Labels: $labels },
            rootfs: { type: "layers", diff_ids: [$diff] },
            history: [{ created: $time, created_by: "scripts/release.sh" }]
        }' | blob application/vnd.oci.image.config.v1+json)
    jq --null-input --compact-output --argjson config "$config" --argjson layer "$layer" '{
            schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json", config: $config, layers: [$layer]
        }' | blob application/vnd.oci.image.manifest.v1+json |
        jq --compact-output --arg arch "$arch" '. + { platform: { architecture: $arch, os: "linux" } }'
}

# jbpf-prof-VERSION-oci.tar
image() {
    local layout=$WORK/layout time labels manifests index
    time=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    labels=$(jq --null-input --arg version "$VERSION" --arg commit "$COMMIT" --arg time "$time" '{
            "org.opencontainers.image.title": "jbpf-prof",
            "org.opencontainers.image.description": "An eBPF whole-system profiler with first-class Java",
            "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
            "org.opencontainers.image.version": $version,
            "org.opencontainers.image.revision": $commit,
            "org.opencontainers.image.created": $time
        }')
    mkdir -p "$layout/blobs/sha256"
    manifests=$(for arch in $ARCHES; do image_of "$arch"; done | jq --slurp --compact-output .)
    index=$(jq --null-input --compact-output --argjson manifests "$manifests" --argjson labels "$labels" '{
            schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json", manifests: $manifests,
            annotations: $labels
        }' | blob application/vnd.oci.image.index.v1+json)
    # One entry, the index of both architectures: tools choose the architecture of their machine.
    jq --null-input --compact-output --argjson index "$index" --arg name "localhost/jbpf-prof:$VERSION" '{
            schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json",
            manifests: [$index + { annotations: {
                "org.opencontainers.image.ref.name": $name, "io.containerd.image.name": $name } }]
        }' >"$layout/index.json"
    echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
    plain_tar --directory "$layout" blobs index.json oci-layout >"$DIST/jbpf-prof-$VERSION-oci.tar"
}
