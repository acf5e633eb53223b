#!/usr/bin/env bash
# Passes the life of a .deb in fresh root file systems of Debian and Ubuntu: installation by apt, upgrade with changed
# settings, a profile of a JVM, removal, purge. Each root file system takes about a minute, so no other test calls this
# script. Needs root and mmdebstrap. The packages come from the mirror that apt's own sources name, Ubuntu's also from the
# directory beside Debian's.
#
#   scripts/release/roots.sh DEB                    bookworm, trixie, jammy, noble, as far as there is a mirror
#   scripts/release/roots.sh DEB bookworm noble     these
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C.UTF-8
. scripts/common.sh
. scripts/setup.sh
. scripts/mirror.sh
. scripts/release/deb.sh

DEB=$(realpath "${1:?usage: scripts/release/roots.sh DEB [SUITE ...]}")
VERSION=$(dpkg-deb --field "$DEB" Version)
shift
WORK=$(mktemp -d)
ROOT=
trap leave EXIT
leave() {
    local at
    for at in "$ROOT/proc" "$ROOT/sys"; do
        ! mountpoint -q "$at" || umount --lazy "$at"
    done
    rm -rf --one-file-system "$WORK"
}
refused() { if "$@" >/dev/null 2>&1; then die "this must fail: $*"; fi; }

ensure mmdebstrap:mmdebstrap mountpoint:util-linux
setup_jdk
[ $# -gt 0 ] || set -- bookworm trixie jammy noble
for suite in "$@"; do
    case $suite in
    jammy | noble)
        components="main universe" keys=$REPO/vmtest/ubuntu-archive-2018.asc from=$(mirror Ubuntu)
        from=${from:-$(mirror_beside Ubuntu Debian)}
        ;;
    *) components=main keys=/usr/share/keyrings from=$(mirror Debian) ;;
    esac
    if [ -z "$from" ]; then
        say "$suite: left out, because apt's sources name no mirror"
        continue
    fi
    ROOT=$WORK/$suite
    start=$SECONDS
    # The JRE's postinst wants a directory for manual pages.
    echo "deb $from $suite $components" | quietly mmdebstrap --variant=apt --include=default-jre-headless \
        --keyring="$keys" --aptopt='APT::Install-Recommends "false"' \
        --setup-hook='mkdir -p "$1/usr/share/man/man1"' "$suite" "$ROOT" -
    life_of_deb "$DEB"
    rm -rf --one-file-system "$ROOT"
    rm "$WORK/older.deb"
    say "$suite: ok, $((SECONDS - start)) s"
done
