#!/usr/bin/env bash
# Makes a release of two given binaries twice, and uses its files as a user would: checksums and signature, archive, .deb by
# dpkg and .rpm by dnf in a root file system of Debian, container image. Needs root.
#
#   scripts/release/check.sh X86_64 AARCH64
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C.UTF-8 JBPF_PROF_COMPRESSION=1
. scripts/common.sh
. scripts/setup.sh
. scripts/release/deb.sh
. scripts/release/rpm.sh

X86_64=$(realpath "$1") AARCH64_BINARY=$(realpath "$2")
VERSION=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
WORK=$(mktemp -d)
ROOT=$WORK/root
trap leave EXIT
leave() {
    local at
    for at in "$ROOT/proc" "$ROOT/sys" "$ROOT"; do
        ! mountpoint -q "$at" || umount --lazy "$at"
    done
    rm -rf --one-file-system "$WORK"
}
refused() { if "$@" >/dev/null 2>&1; then die "this must fail: $*"; fi; }

# shellcheck disable=SC2086 # a list
ensure $RELEASE_NEEDS podman:podman cpio:cpio dnf:dnf createrepo_c:createrepo-c javac:default-jdk-headless mountpoint:util-linux
[ "$(uname -m)" = x86_64 ] || die "this check runs on x86-64"

twice_the_same() {
    openssl ecparam -genkey -name prime256v1 -noout -out "$WORK/key.pem"
    mkdir "$WORK/other"
    # Another time zone, another directory for temporary files, another user's mask.
    (umask 077 && TZ=Pacific/Auckland TMPDIR=$WORK/other JBPF_PROF_DIST=$WORK/second \
        quietly scripts/release.sh "$VERSION" "$X86_64" "$AARCH64_BINARY") &
    JBPF_PROF_SIGNING_KEY=$WORK/key.pem JBPF_PROF_DIST=$WORK/dist \
        quietly scripts/release.sh "$VERSION" "$X86_64" "$AARCH64_BINARY"
    wait $!
    cd "$WORK/dist"
    [ "$(ls "$WORK/second")" = "$(ls --ignore='*.sig' --ignore='*.pub')" ] || die "the two releases have other files"
    for file in "$WORK"/second/*; do
        cmp "$file" "${file##*/}"
    done
}

# The commands of docs/install.md.
checksums_and_signature() {
    sha256sum --check --quiet SHA256SUMS
    openssl dgst -sha256 -verify jbpf-prof.pub -signature SHA256SUMS.sig SHA256SUMS
    [ "$(wc -l <SHA256SUMS)" -eq "$(find . -type f -name 'jbpf-prof[-_]*' | wc -l)" ]
    cp -r . "$WORK/forged"
    (
        cd "$WORK/forged"
        printf x >>"jbpf-prof-$VERSION-x86_64-linux.tar.gz"
        refused sha256sum --check --quiet SHA256SUMS
        sha256sum "jbpf-prof-$VERSION-x86_64-linux.tar.gz" >SHA256SUMS
        refused openssl dgst -sha256 -verify jbpf-prof.pub -signature SHA256SUMS.sig SHA256SUMS
    )
    rm -r "$WORK/forged"
}

# The files that users read about. The other parts, and `./test.sh build` for cargo, run README's commands.
documents() {
    local file files
    files=$(grep -ohE 'jbpf-prof[-_]VERSION[A-Za-z0-9._-]*\.(tar\.gz|tar|deb|rpm|tgz|json)' "$REPO/README.md" "$REPO/docs/install.md")
    [ "$(sort -u <<<"$files" | wc -l)" -ge 7 ] || die "README.md and docs/install.md name too few files"
    for file in $files; do
        [ -e "${file//VERSION/$VERSION}" ] || die "README.md or docs/install.md names $file, which the release does not have"
    done
}

bill_of_materials() {
    local name
    for name in libbpf elfutils zlib rustls blazesym jvm-symbols-log; do
        jq --exit-status --arg name "$name" '[.components[] | select(.name == $name and .version != "")] | length == 1' \
            "jbpf-prof-$VERSION.cdx.json" >/dev/null || die "the bill of materials lacks $name"
    done
    jq --exit-status '[.components[] | select(.licenses == null)] == []' "jbpf-prof-$VERSION.cdx.json" >/dev/null
    jq --exit-status --arg file "jbpf-prof-$VERSION-x86_64-linux.tar.gz" \
        '[.subject[] | select(.name == $file)] | length == 1' "jbpf-prof-$VERSION.provenance.json" >/dev/null
}

archive() {
    tar --extract --file "jbpf-prof-$VERSION-x86_64-linux.tar.gz" --directory "$WORK"
    local root=$WORK/jbpf-prof-$VERSION-x86_64-linux
    [ "$("$root/jbpf-prof" -V)" = "jbpf-prof $VERSION" ]
    cmp "$root/jbpf-prof" "$X86_64"
    "$root/jbpf-prof" --version | grep -q '^target: x86_64-unknown-linux-gnu$'
    bash -c '. "$1" && complete -p jbpf-prof' - "$root/completions/jbpf-prof.bash" >/dev/null
    ! have zsh || zsh -n "$root/completions/_jbpf-prof"
    ! have fish || fish --no-execute "$root/completions/jbpf-prof.fish"
    grep -q '^\.SH NAME' "$root/man/jbpf-prof-daemon.1"
    [ -s "$root/docs/getting-started.md" ] && grep -q 'elfutils/COPYING-LGPLV3' "$root/THIRD-PARTY-LICENSES.txt"
    tar --extract --to-stdout --file "jbpf-prof-$VERSION-aarch64-linux.tar.gz" \
        "jbpf-prof-$VERSION-aarch64-linux/jbpf-prof" | cmp - "$AARCH64_BINARY"
}

# $ROOT: a root file system of Debian. Nothing is written to that of other tests.
debian_root() {
    local lower=$CACHE/jdk-roots/21
    "$REPO/scripts/jdk-roots.sh" 21
    mkdir -p "$WORK"/{root,layers}
    # An overlay cannot stand on an overlay.
    mount -t tmpfs -o size=256m tmpfs "$WORK/layers"
    mkdir "$WORK/layers"/{upper,work}
    mount -t overlay -o "lowerdir=$lower,upperdir=$WORK/layers/upper,workdir=$WORK/layers/work" overlay "$ROOT"
    umount --lazy "$WORK/layers"
}

# Another profiler of this machine may still read files of processes that have ended.
leave_root() { umount --lazy "$ROOT"; }

deb() {
    debian_root
    life_of_deb "jbpf-prof_${VERSION}_amd64.deb"
    leave_root
    if have lintian; then
        lintian --fail-on error "jbpf-prof_${VERSION}_amd64.deb" 2>/dev/null
    fi
    [ "$(dpkg-deb --field "jbpf-prof_${VERSION}_arm64.deb" Architecture)" = arm64 ]
}

rpm_package() {
    local file=jbpf-prof-$VERSION-1.x86_64.rpm root=$WORK/rpm-root
    [ "$(rpm -qp --queryformat '%{VERSION} %{ARCH} %{LICENSE}' "$file")" = "$VERSION x86_64 Apache-2.0 OR MIT" ]
    [ "$(rpm -qp --queryformat '%{ARCH}' "jbpf-prof-$VERSION-1.aarch64.rpm")" = aarch64 ]
    [ "$(rpm -qp --configfiles "$file")" = /etc/jbpf-prof/settings.toml ]
    mkdir "$root"
    (cd "$root" && rpm2cpio "$WORK/dist/$file" | cpio --extract --make-directories --quiet)
    [ "$("$root/usr/bin/jbpf-prof" -V)" = "jbpf-prof $VERSION" ]
    cmp "$root/usr/bin/jbpf-prof" "$X86_64"
    rm -r "$root"
    debian_root
    life_of_rpm "$WORK/dist/$file"
    leave_root
    if have rpmlint; then
        rpmlint --config "$REPO/deploy/packages/rpmlint.toml" "$file" >"$WORK/rpmlint" || { cat "$WORK/rpmlint"; return 1; }
    fi
}

image() {
    local name=localhost/jbpf-prof:$VERSION store=$WORK/podman
    # A store of its own, which leaves the images of this machine alone.
    pod() { podman --root "$store/root" --runroot "$store/run" --storage-driver vfs --runtime runc "$@"; }
    run_image() {
        pod run --rm --read-only --network none --no-hosts --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
            --pids-limit 0 "$@"
    }
    jvm_in_container() { run_image --interactive --rootfs "$ROOT" "$@"; }
    # The chart has the capabilities of the kustomize base: deploy/check.sh compares both.
    profile_by_image() {
        local capability capabilities=()
        for capability in $(sed -n 's/^ *add: \[\(.*\)\]/\1/p' "$REPO/deploy/base/daemonset.yaml" | tr -d '",'); do
            capabilities+=(--cap-add "$capability")
        done
        [ ${#capabilities[@]} -gt 4 ] || die "deploy/base/daemonset.yaml names no capabilities"
        run_image --pid host --cap-drop all "${capabilities[@]}" --security-opt no-new-privileges \
            --security-opt seccomp=unconfined --security-opt apparmor=unconfined --volume "$ROOT/shop:/out" "$name" \
            --duration 2 --all --output /out/profile.folded
    }
    quietly pod load --input "jbpf-prof-$VERSION-oci.tar"
    [ "$(pod image inspect --format '{{ .Architecture }} {{ index .Labels "org.opencontainers.image.version" }}' "$name")" = \
        "amd64 $VERSION" ]
    [ "$(run_image "$name" -V)" = "jbpf-prof $VERSION" ]
    run_image --privileged --pid host "$name" doctor | grep '^verdict .*jbpf-prof works here$'
    debian_root
    with_shop jvm_in_container profile_by_image
    leave_root
    pod rmi "$name" >/dev/null
    if have skopeo; then
        [ "$(skopeo inspect --override-arch arm64 "oci-archive:jbpf-prof-$VERSION-oci.tar" --format '{{ .Architecture }}')" = arm64 ]
    fi
}

chart() {
    local file=jbpf-prof-$VERSION.tgz helm
    tar --extract --to-stdout --file "$file" jbpf-prof/Chart.yaml | grep -qx "version: $VERSION"
    helm=$(command -v helm) || helm=$CACHE/helm/helm
    if [ -x "$helm" ]; then
        "$helm" template jbpf-prof "$file" --kube-version 1.34 | grep -q "image: \"jbpf-prof:$VERSION\""
    fi
}

for part in twice_the_same checksums_and_signature documents bill_of_materials archive deb rpm_package image chart; do
    start=$SECONDS
    "$part"
    say "$part: ok, $((SECONDS - start)) s"
done
