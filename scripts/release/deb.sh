# Sourced by check.sh and roots.sh: the life of a .deb in the root file system $ROOT, which has a JRE. Needs root, $WORK and
# $VERSION.
# shellcheck shell=bash

in_root() { chroot "$ROOT" env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# older_deb DEB: makes $WORK/older.deb, a package of an older version with other default settings.
older_deb() {
    dpkg-deb --raw-extract "$1" "$WORK/older"
    sed -i 's/^Version: .*/Version: 0.0.1/' "$WORK/older/DEBIAN/control"
    echo '# Settings of an older version.' >"$WORK/older/etc/jbpf-prof/settings.toml"
    (cd "$WORK/older" && sed -i '/settings.toml/d' DEBIAN/md5sums)
    quietly dpkg-deb --root-owner-group -Zgzip --build "$WORK/older" "$WORK/older.deb"
    rm -r "$WORK/older"
}

# The package manager keeps changed settings without a question.
install_deb() {
    if [ -x "$ROOT/usr/bin/apt-get" ]; then
        quietly in_root apt-get install --yes --option Dpkg::Options::=--force-confold "$1"
    else
        quietly in_root dpkg --force-confold --install "$1"
    fi
}

# with_shop JVM COMMAND: while JVM, a function, runs the classes of $ROOT/shop, COMMAND must write $ROOT/shop/profile.folded
# with methods of the shop.
with_shop() {
    mkdir "$ROOT/shop"
    javac --release 8 -Xlint:-options -d "$ROOT/shop" "$REPO"/tests/programs/{Target,Shop}.java
    # The shop ends with its standard input.
    coproc SHOP { "$1" java -Xmx256m -cp /shop Shop 2>/dev/null; }
    local shop=$SHOP_PID input=${SHOP[1]} line
    read -r -t 60 line <&"${SHOP[0]}" && [ "$line" = ready ] || die "the shop did not start"
    quietly "$2"
    exec {input}>&-
    wait "$shop" || :
    grep -q '^java;.*;Shop\.[a-z]*_.*_\[j\]' "$ROOT/shop/profile.folded" || die "the profile has no method of the shop"
    rm -r "$ROOT/shop"
}

# The installed profiler names the methods of a JVM of the root.
profile_a_jvm() {
    mount -t proc proc "$ROOT/proc"
    mount -t sysfs sysfs "$ROOT/sys"
    with_shop in_root profile_in_root
    umount --lazy "$ROOT/proc" "$ROOT/sys"
}
profile_in_root() { in_root jbpf-prof --duration 2 --all --output /shop/profile.folded; }

# life_of_deb DEB: installs an older version, upgrades with changed settings, profiles a JVM, removes, purges.
life_of_deb() {
    local settings=$ROOT/etc/jbpf-prof/settings.toml
    older_deb "$1"
    mkdir "$ROOT/packages"
    cp "$WORK/older.deb" "$ROOT/packages/"
    cp "$1" "$ROOT/packages/new.deb"

    install_deb /packages/older.deb
    echo 'frequency = 7' >"$settings"
    install_deb /packages/new.deb
    [ "$(in_root jbpf-prof -V)" = "jbpf-prof $VERSION" ]
    [ "$(cat "$settings")" = 'frequency = 7' ] || die "the upgrade replaced changed settings"
    in_root jbpf-prof daemon --check --config /etc/jbpf-prof/settings.toml | grep -qx 'the settings are valid'
    # `dpkg --verify` lists files that differ, with a c for settings.
    in_root dpkg --verify jbpf-prof >"$WORK/differs"
    refused grep -v ' c /etc/jbpf-prof/settings.toml$' "$WORK/differs"
    [ -f "$ROOT/usr/lib/systemd/system/jbpf-prof.service" ]
    [ ! -e "$ROOT/etc/systemd/system/multi-user.target.wants/jbpf-prof.service" ] || die "the service was enabled"
    profile_a_jvm
    mkdir -p "$ROOT/var/lib/jbpf-prof/windows"

    quietly in_root dpkg --remove jbpf-prof
    [ -f "$settings" ] && [ -d "$ROOT/var/lib/jbpf-prof" ] && [ ! -e "$ROOT/usr/bin/jbpf-prof" ]
    quietly in_root dpkg --purge jbpf-prof
    local left
    left=$(find "$ROOT" -xdev -name '*jbpf-prof*' -not -path "$ROOT/packages/*")
    [ -z "$left" ] || die "the purge left $left"
}
