#!/usr/bin/env bash
# Makes root file systems with the JDKs that this machine does not have, from Debian's suites: 8, 11, 21, 25. Each is a
# directory $JBPF_PROF_CACHE/jdk-roots/VERSION (default: ~/.cache/jbpf-prof), made once, about 250 MB. The tests start
# JVMs in them as containers. Needs root and mmdebstrap, and a Debian mirror: the one that apt's own sources name, or
# $JBPF_PROF_DEBIAN_MIRROR.
#
#   scripts/jdk-roots.sh            all of them
#   scripts/jdk-roots.sh 11 25      these
set -euo pipefail
. "$(dirname "$0")/common.sh"

# Which suite has which JDK: Debian keeps one or two in each.
suite_of() {
    case $1 in
    11) echo bullseye ;;
    21) echo trixie ;;
    8 | 25) echo sid ;;
    *) die "no JDK $1: there are 8, 11, 21, 25" ;;
    esac
}

mirror() {
    if [ -n "${JBPF_PROF_DEBIAN_MIRROR:-}" ]; then
        echo "$JBPF_PROF_DEBIAN_MIRROR"
    else
        apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
            sed -n 's/^Debian|Debian|//p' | head -n 1
    fi
}

make_root() {
    local version=$1 root=$CACHE/jdk-roots/$1 suite from
    suite=$(suite_of "$version")
    from=$(mirror)
    [ -n "$from" ] || die "apt's sources name no Debian mirror: set JBPF_PROF_DEBIAN_MIRROR"
    say "making a root file system with JDK $version from Debian $suite"
    mkdir -p "$CACHE/jdk-roots"
    as_root rm -rf --one-file-system "$root.new"
    # An old suite's Release file may be past its date: its packages are signed all the same.
    # The JRE's postinst wants a directory for manual pages; of those, as of jmods and sources, nothing is kept.
    quietly as_root mmdebstrap --variant=essential --include="openjdk-$version-jre-headless" \
        --keyring=/usr/share/keyrings \
        --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --setup-hook='mkdir -p "$1/usr/share/man/man1"' \
        --customize-hook='rm -rf "$1"/usr/lib/jvm/*/jmods "$1"/usr/lib/jvm/*/lib/src.zip "$1"/usr/share/doc \
            "$1"/usr/share/man "$1"/usr/share/locale' \
        "$suite" "$root.new" "$from"
    as_root test -e "$root.new/usr/bin/java"
    as_root mv "$root.new" "$root"
    say "$root: $(as_root du -sh "$root" | cut -f 1)"
}

[ $# -gt 0 ] || set -- 8 11 21 25
for version in "$@"; do
    [ -d "$CACHE/jdk-roots/$version" ] || make_root "$version"
done
