# Sourced by release.sh: .deb by dpkg-deb and .rpm by rpmbuild, the tools that read them.
# shellcheck shell=bash

# A file of deploy/packages with its placeholders replaced.
filled() {
    sed -e "s|@VERSION@|$VERSION|" -e "s|@DEB_ARCH@|${deb_arch:-}|" -e "s|@SIZE@|${size:-}|" -e "s|@TREE@|${tree:-}|" -e "s|@LEVEL@|$LEVEL|" \
        -e "s|@DATE@|$(date --utc --date="@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')|" \
        "deploy/packages/$1"
}

deb() {
    local tree=$WORK/deb-$1 deb_arch=arm64 size
    [ "$1" != x86_64 ] || deb_arch=amd64
    cp -r "$WORK/tree-$1" "$tree"
    install -D -m 644 "$WORK/common/completions/_jbpf-prof" "$tree/usr/share/zsh/vendor-completions/_jbpf-prof"
    local doc=$tree/usr/share/doc/jbpf-prof
    # Debian has one name for the changes, and one for the license.
    gzip -9n <"$doc/CHANGELOG.md" >"$doc/changelog.gz"
    sed -e '1,2d; s/^$/./; s/^/ /' LICENSE-MIT >"$WORK/mit"
    sed -e "/@MIT@/{ r $WORK/mit" -e 'd }' deploy/packages/copyright >"$doc/copyright"
    rm "$doc/CHANGELOG.md" "$doc/LICENSE-MIT" "$doc/LICENSE-APACHE"
    install -D -m 644 deploy/packages/lintian-overrides "$tree/usr/share/lintian/overrides/jbpf-prof"
    size=$(du -sk --apparent-size "$tree" | cut -f 1)
    mkdir "$tree/DEBIAN"
    filled control >"$tree/DEBIAN/control"
    echo /etc/jbpf-prof/settings.toml >"$tree/DEBIAN/conffiles"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    install -m 755 deploy/packages/{postinst,prerm,postrm} "$tree/DEBIAN/"
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    quietly dpkg-deb --root-owner-group -Zxz "-z$LEVEL" --build "$tree" "$DIST/jbpf-prof_${VERSION}_$deb_arch.deb"
}

rpm_package() {
    local tree=$WORK/rpm-$1 top=$WORK/rpmbuild-$1
    cp -r "$WORK/tree-$1" "$tree"
    install -D -m 644 "$WORK/common/completions/_jbpf-prof" "$tree/usr/share/zsh/site-functions/_jbpf-prof"
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    mkdir -p "$top"
    filled jbpf-prof.spec >"$top/jbpf-prof.spec"
    quietly rpmbuild -bb --target "$1-linux" --define "_topdir $top" --define "_dbpath $top/db" \
        --define "_rpmdir $DIST" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        "$top/jbpf-prof.spec"
}
