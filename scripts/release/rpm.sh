# Sourced by check.sh: the life of a .rpm by dnf. No registry that tests may use has an RPM distribution. So $ROOT is a root
# file system of Debian, and dnf has a repository of its own: an older version, the new one, and an empty package in the
# place of the distribution's shell. Needs root, deb.sh, $WORK and $VERSION.
# shellcheck shell=bash

# older_rpm RPM: makes a package of an older version with other default settings in the directory $WORK/older.
older_rpm() (
    . "$REPO/scripts/release/packages.sh"
    DIST=$WORK/older VERSION=0.0.1 LEVEL=1
    WORK=$WORK/older-rpm
    mkdir -p "$WORK/tree-x86_64" "$WORK/common/completions"
    cd "$WORK/tree-x86_64"
    rpm2cpio "$1" | cpio --extract --make-directories --quiet
    echo '# Settings of an older version.' >etc/jbpf-prof/settings.toml
    mv usr/share/zsh/site-functions/_jbpf-prof "$WORK/common/completions/"
    cd "$REPO"
    export SOURCE_DATE_EPOCH=1700000000
    rpm_package x86_64
    rm -r "$WORK"
)

# The scripts of packages need a shell; dnf asks for the package of the shell.
shell_rpm() {
    cat >"$WORK/shell.spec" <<'END'
Name: shell-of-the-root
Version: 1
Release: 1
Summary: The shell of the root file system
License: MIT
BuildArch: noarch
Provides: /bin/sh
%description
The shell of the root file system.
%files
END
    quietly rpmbuild -bb --define "_topdir $WORK/shell" --define "_dbpath $WORK/shell/db" --define "_rpmdir $WORK/repository" \
        "$WORK/shell.spec"
    rm -r "$WORK/shell"
}

# dnf with the repository $WORK/repository alone.
dnf_in_root() {
    : >"$WORK/dnf.conf"
    quietly createrepo_c --quiet "$WORK/repository"
    quietly dnf --installroot "$ROOT" --releasever 1 --config "$WORK/dnf.conf" --setopt reposdir=/nonexistent \
        --setopt "cachedir=$WORK/dnf" --repofrompath "local,file://$WORK/repository" --repo local --nogpgcheck --refresh \
        --assumeyes "$@"
}

# life_of_rpm RPM: installs an older version, upgrades with changed settings, profiles a JVM, removes.
life_of_rpm() {
    local settings=$ROOT/etc/jbpf-prof/settings.toml left
    mkdir "$WORK/repository"
    shell_rpm
    older_rpm "$1"
    mv "$WORK/older"/*.rpm "$WORK/repository/"

    dnf_in_root install jbpf-prof
    [ "$(rpm --root "$ROOT" --query --queryformat '%{VERSION}' jbpf-prof)" = 0.0.1 ]
    echo 'frequency = 7' >"$settings"
    cp "$1" "$WORK/repository/"
    dnf_in_root upgrade jbpf-prof
    [ "$(in_root jbpf-prof -V)" = "jbpf-prof $VERSION" ]
    [ "$(cat "$settings")" = 'frequency = 7' ] || die "the upgrade replaced changed settings"
    cmp "$settings.rpmnew" "$REPO/deploy/packages/settings.toml"
    # `rpm --verify` prints the files that differ.
    rpm --root "$ROOT" --verify jbpf-prof >"$WORK/differs" || :
    refused grep -v ' c /etc/jbpf-prof/settings.toml$' "$WORK/differs"
    profile_a_jvm

    dnf_in_root remove jbpf-prof
    [ "$(cat "$settings.rpmsave")" = 'frequency = 7' ]
    rm "$settings.rpmsave" "$settings.rpmnew"
    left=$(find "$ROOT" -xdev -name '*jbpf-prof*' -not -type d)
    [ -z "$left" ] || die "the removal left $left"
}
