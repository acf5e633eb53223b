# Sourced by release.sh: the files of archives and packages.
# shellcheck shell=bash

# A tar archive on standard output that depends on the names and contents of files only.
plain_tar() {
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu --create \
        "$@"
}

# What all architectures share, made by the binary of this machine.
common_files() {
    local own common=$WORK/common
    own=$WORK/bin/$(uname -m)
    mkdir -p "$common"/{completions,man,doc}
    "$own" completions bash >"$common/completions/jbpf-prof.bash"
    "$own" completions zsh >"$common/completions/_jbpf-prof"
    "$own" completions fish >"$common/completions/jbpf-prof.fish"
    "$own" man "$common/man"
    cp -r README.md CHANGELOG.md SECURITY.md LICENSE-APACHE LICENSE-MIT docs "$common/doc/"
    cp "$WORK/THIRD-PARTY-LICENSES.txt" "$common/doc/"
    find "$common" -type f -exec chmod 644 {} +
}

# jbpf-prof-VERSION-ARCH-linux.tar.gz
archive() {
    local name=jbpf-prof-$VERSION-$1-linux root=$WORK/archive-$1
    mkdir -p "$root/$name"
    cp -r "$WORK/common"/{completions,man} "$WORK/common/doc"/* "$root/$name/"
    install -m 755 "$WORK/bin/$1" "$root/$name/jbpf-prof"
    install -m 644 deploy/systemd/jbpf-prof.service deploy/packages/settings.toml "$root/$name/"
    plain_tar --directory "$root" "$name" | gzip "-${LEVEL}n" >"$DIST/$name.tar.gz"
}

# jbpf-prof-VERSION.tgz, as `helm package` names the chart, but with the same bytes each time.
chart() {
    local version
    for version in $(sed -n 's/^\(appV\|v\)ersion: //p' deploy/helm/jbpf-prof/Chart.yaml); do
        [ "$version" = "$VERSION" ] || die "deploy/helm/jbpf-prof/Chart.yaml has version $version, not $VERSION"
    done
    plain_tar --directory deploy/helm jbpf-prof | gzip "-${LEVEL}n" >"$DIST/jbpf-prof-$VERSION.tgz"
}

# $WORK/tree-ARCH: what a package installs, as far as .deb and .rpm agree.
package_tree() {
    local tree=$WORK/tree-$1 page
    mkdir -p "$tree"/usr/share/doc "$tree/usr/share/man/man1"
    install -D -m 755 "$WORK/bin/$1" "$tree/usr/bin/jbpf-prof"
    install -D -m 644 deploy/systemd/jbpf-prof.service "$tree/usr/lib/systemd/system/jbpf-prof.service"
    install -D -m 644 deploy/packages/settings.toml "$tree/etc/jbpf-prof/settings.toml"
    install -D -m 644 "$WORK/common/completions/jbpf-prof.bash" "$tree/usr/share/bash-completion/completions/jbpf-prof"
    install -D -m 644 "$WORK/common/completions/jbpf-prof.fish" "$tree/usr/share/fish/vendor_completions.d/jbpf-prof.fish"
    cp -r "$WORK/common/doc" "$tree/usr/share/doc/jbpf-prof"
    for page in "$WORK/common/man"/*.1; do
        gzip -9n <"$page" >"$tree/usr/share/man/man1/${page##*/}.gz"
    done
}
