# Sourced by release.sh: builds the binaries without a trace of where they were built.
# shellcheck shell=bash

# A target directory of its own: other flags than those of daily builds would compile everything again there.
build_binaries() {
    setup_cross
    [ -z "$CROSS_WHY" ] || die "no compiler for AArch64: $CROSS_WHY"
    local target=${CARGO_TARGET_DIR:-$REPO/target}/release-build arch triple cargo rustc registry
    registry=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
    mkdir -p "$WORK/bin"
    for arch in $ARCHES; do
        say "building for $arch"
        triple=$arch-unknown-linux-gnu cargo=cargo rustc=rustc
        [ "$triple" = "$(host_triple)" ] || cargo=$CROSS_CARGO rustc=$CROSS_RUSTC
        # cargo adds these flags to those of .cargo/config.toml. C compilers name files in assertions.
        JBPF_PROF_COMMIT=$(git rev-parse --short=12 HEAD) RUSTC=$rustc CARGO_INCREMENTAL=0 \
            CFLAGS="${CFLAGS:-} -ffile-prefix-map=$target=/target -ffile-prefix-map=$registry=/cargo" \
            "$cargo" build --release --locked --bin jbpf-prof --target "$triple" --target-dir "$target" \
            --config "target.$triple.rustflags=[\"--remap-path-prefix=$REPO=/jbpf-prof\", \
                \"--remap-path-prefix=$target=/target\", \"--remap-path-prefix=$registry=/cargo\"]"
        cp "$target/$triple/release/jbpf-prof" "$WORK/bin/$arch"
    done
}
