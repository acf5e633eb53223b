#!/usr/bin/env bash
# Makes a release under target/dist: archives, .deb and .rpm packages for x86-64 and AArch64, a container image, a bill of
# materials, provenance and checksums. The same binaries give the same bytes.
#
#   scripts/release.sh VERSION                  builds both binaries from a clean work tree
#   scripts/release.sh VERSION X86_64 AARCH64   packs these binaries, for tests
#
# SOURCE_DATE_EPOCH        the time of all files; default: the time of the commit
# JBPF_PROF_SIGNING_KEY    a private key (PEM, ECDSA) that signs SHA256SUMS; without a key nothing is signed
# JBPF_PROF_COMPRESSION    the level of compression, 1 to 9; default: 6. Tests take 1.
# JBPF_PROF_DIST           where the files go; default: target/dist
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8
umask 022
. scripts/common.sh
. scripts/setup.sh
. scripts/build.sh
. scripts/release/build.sh
. scripts/release/licenses.sh
. scripts/release/sbom.sh
. scripts/release/tree.sh
. scripts/release/packages.sh
. scripts/release/image.sh
. scripts/release/sums.sh

VERSION=${1:?usage: scripts/release.sh VERSION}
ARCHES="x86_64 aarch64"
LEVEL=${JBPF_PROF_COMPRESSION:-6}
DIST=${JBPF_PROF_DIST:-${CARGO_TARGET_DIR:-$REPO/target}/dist}

crate_version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
[ "$VERSION" = "$crate_version" ] || die "Cargo.toml has version $crate_version, not $VERSION"
setup_build
# shellcheck disable=SC2086 # a list
ensure $RELEASE_NEEDS
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
COMMIT=$(git rev-parse HEAD)
export SOURCE_DATE_EPOCH

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
rm -rf "$DIST"
mkdir -p "$DIST"
case $# in
1)
    [ -z "$(git status --porcelain)" ] || die "the work tree differs from its commit: commit or stash the changes first"
    build_binaries
    ;;
3) mkdir "$WORK/bin" && cp "$2" "$WORK/bin/x86_64" && cp "$3" "$WORK/bin/aarch64" ;;
*) die "usage: scripts/release.sh VERSION [X86_64 AARCH64]" ;;
esac
for arch in $ARCHES; do
    check_static "$WORK/bin/$arch" >&2
done

say "licenses, completions, man pages"
third_party_licenses >"$WORK/THIRD-PARTY-LICENSES.txt"
common_files
say "bill of materials"
sbom >"$DIST/jbpf-prof-$VERSION.cdx.json"
for arch in $ARCHES; do
    say "archive and packages for $arch"
    archive "$arch"
    package_tree "$arch"
    deb "$arch"
    rpm_package "$arch"
done
say "chart and container image"
chart
image
say "checksums and provenance"
provenance >"$DIST/jbpf-prof-$VERSION.provenance.json"
checksums
sign
(cd "$DIST" && ls -l)
