#!/usr/bin/env bash
# Builds jbpf-prof and profiles this whole machine for ten seconds while a small Java shop is busy on it.
#
#   ./demo.sh                                 the picture goes to demo.svg
#   ./demo.sh --duration 30 --all -o my.svg   arguments replace those of the main job
#
# Installs through apt what is missing (with sudo unless you are root). The profiler itself needs root.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/common.sh
. scripts/setup.sh
. scripts/build.sh

[ $# -gt 0 ] || set -- --duration 10 --all
picture=
for arg in "$@"; do
    case $arg in -o* | --output*) picture=theirs ;; esac
done
[ -n "$picture" ] || set -- "$@" -o demo.svg

setup_build
setup_jdk
say "building jbpf-prof (the first time takes some minutes)"
build_quick
binary=$(quick_binary)

say "starting a small Java shop"
classes=$(target_directory)/demo
mkdir -p "$classes"
javac -d "$classes" tests/programs/Target.java tests/programs/Shop.java
# It ends with its standard input, so with this script, however that ends.
coproc SHOP { exec java -Xmx256m -cp "$classes" Shop; }
shop=$SHOP_PID
trap 'kill "$shop" 2>/dev/null || true' EXIT
read -r -t 60 line <&"${SHOP[0]}" && [ "$line" = ready ] || die "the shop did not start"

say "jbpf-prof $*"
trap : INT # Ctrl-C is for the profiler, which then writes what it has
rc=0
as_root "$binary" "$@" || rc=$?

if [ -z "$picture" ] && [ "$rc" = 0 ]; then
    [ "$(id -u)" = 0 ] || as_root chown --no-dereference "$(id -u):$(id -g)" demo.svg
    say "the picture: file://$PWD/demo.svg (open it in a browser; click on a frame to zoom, Ctrl-F to search)"
fi
exit "$rc"
