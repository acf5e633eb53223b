# Sourced by release.sh: which crates are in the binary, and their licenses.
# shellcheck shell=bash

# "NAME VERSION LICENSE DIRECTORY" of each crate in the binary, separated by tabs.
linked_crates() {
    [ -s "$WORK/crates" ] || {
        local metadata=$WORK/metadata.json
        cargo metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu \
            --filter-platform aarch64-unknown-linux-gnu >"$metadata"
        for arch in $ARCHES; do
            cargo tree --locked --package jbpf-prof --edges normal,no-proc-macro --target "$arch-unknown-linux-gnu" \
                --prefix none --no-dedupe --format '{p}'
        done | awk '{ print $1 "@" substr($2, 2) }' | sort -u >"$WORK/linked"
        jq --raw-output --rawfile linked "$WORK/linked" '
            ($linked | split("\n")) as $linked
            | .packages[] | select("\(.name)@\(.version)" | IN($linked[]))
            | [.name, .version, .license // "", (.manifest_path | rtrimstr("/Cargo.toml"))] | @tsv' "$metadata" |
            sort >"$WORK/crates"
        [ "$(wc -l <"$WORK/crates")" -eq "$(wc -l <"$WORK/linked")" ] || die "cargo tree and cargo metadata differ"
    }
    cat "$WORK/crates"
}

# The text of each license with the crates that have exactly this text. A crate without a text has its declaration.
third_party_licenses() {
    local name version license directory file texts=$WORK/texts sum
    mkdir -p "$texts"
    cat <<'END'
The binary jbpf-prof contains the crates and libraries below. jbpf-prof itself is under Apache-2.0 OR MIT
(LICENSE-APACHE, LICENSE-MIT). Its BPF code is also available under GPL-2.0.

The binary also contains parts of the GNU C Library (LGPL-2.1-or-later), of the GCC runtime library (GPL-3.0-or-later
with the GCC Runtime Library Exception), and of Rust's standard library (MIT OR Apache-2.0). libbpf, libelf and zlib
come with the crate libbpf-sys. The source of jbpf-prof and its build instructions allow to link the binary again with
other versions of these libraries.
END
    while IFS=$'\t' read -r name version license directory; do
        printf '\n%s %s: %s' "$name" "$version" "$license"
        while IFS= read -r file; do
            sum=$(sha256sum "$file")
            sum=${sum%% *}
            [ -e "$texts/$sum" ] || cp "$file" "$texts/$sum"
            echo "$name $version (${file#"$directory"/})" >>"$texts/$sum.crates"
        done < <(license_files "$directory")
        [ -n "$(license_files "$directory")" ] || printf ' (the crate contains no text of its license)'
    done < <(linked_crates | grep -v '^jbpf-prof	\|^jvm-symbols-')
    printf '\n'
    # Sorted by the first crate.
    while IFS= read -r sum; do
        printf '\n%s\n' "--------------------------------------------------------------------------------"
        cat "$texts/$sum.crates"
        printf '%s\n\n' "--------------------------------------------------------------------------------"
        cat "$texts/$sum"
    done < <(cd "$texts" && for file in *.crates; do echo "$(head -n 1 "$file")	${file%.crates}"; done | sort | cut -f 2)
}

# The files with licenses of a crate, also of C libraries in it.
license_files() {
    find "$1" -maxdepth 2 -type f -regextype posix-extended \
        -iregex '.*/(licen[cs]e|copying|notice|copyright|unlicense)[^/]*' -not -name '*.rs' | sort
}
