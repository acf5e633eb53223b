#!/bin/sh
# Runs every fuzz target for SECONDS each (default 10), on stable Rust and without cargo-fuzz: libFuzzer comes with
# the crate libfuzzer-sys (a C++ compiler is needed), coverage from LLVM's own pass. All targets are in one binary.
# Seeds are real inputs. Inputs that fail stay in fuzz/artifacts, and inputs with new coverage in fuzz/target/corpus.
#   fuzz/run.sh [SECONDS [TARGET...]]
# To run one input again: FUZZ_TARGET=TARGET fuzz/target/HOST/release/fuzz FILE
set -eu
cd "$(dirname "$0")"
seconds=${1:-10}
[ $# -eq 0 ] || shift
# A unit test compares these files with the table of targets (src/fuzz_seeds.rs).
names=
for file in targets/*.rs; do
	name=$(basename "$file" .rs)
	[ "$name" = mod ] || names="$names $name"
done
# shellcheck disable=SC2086 # a list
[ $# -gt 0 ] || set -- $names
# A build takes minutes: a wrong name is refused before.
for target in "$@"; do
	case "$names " in
	*" $target "*) ;;
	*)
		echo "fuzz: there is no target $target; the targets are:$names" >&2
		exit 2
		;;
	esac
done
host=$(rustc -vV | sed -n 's/^host: //p')
# A run of seconds is over before an optimized build is.
level=1
[ "$seconds" -ge 10 ] || level=0

# Flags in the environment take the place of those in .cargo/config.toml, and a named target keeps them away from
# build scripts.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=16" \
	cargo build --release --quiet --target "$host" --config "profile.release.package.jbpf-prof.opt-level=$level"

mkdir -p artifacts
fuzz_one() {
	target=$1
	corpus=target/corpus/$target
	mkdir -p "$corpus"
	seeds=
	[ ! -d "seeds/$target" ] || seeds=seeds/$target
	# No input may need more than 512 MiB, or seconds, of which a machine that stands still takes one.
	if ! FUZZ_TARGET=$target "target/$host/release/fuzz" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=512 \
		-max_len=65536 -print_final_stats=1 -verbosity=0 -artifact_prefix="artifacts/$target-" "$corpus" \
		${seeds:+"$seeds"} >"target/$target.log" 2>&1; then
		cat "target/$target.log" >&2
		echo "fuzz $target: FAILED, input in fuzz/artifacts" >&2
		return 1
	fi
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "target/$target.log")
	# A target that did not run has proved nothing.
	[ "${runs:-0}" -gt 100 ] || { cat "target/$target.log" >&2; echo "fuzz $target: did not run" >&2; return 1; }
	echo "fuzz $target: $runs inputs in $seconds s, nothing found"
}

# Two at a time; each is one thread.
failed=
while [ $# -gt 0 ]; do
	fuzz_one "$1" &
	first=$!
	if [ $# -gt 1 ]; then
		fuzz_one "$2" || failed=yes
		shift
	fi
	shift
	wait "$first" || failed=yes
done
[ -z "$failed" ]
