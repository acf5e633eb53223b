#!/usr/bin/env bash
# Compares the profiles in PROFILES with those in BASE, writes PROFILES/diff.{html,json,md} and the job's summary, and sets
# the output `verdict`. Settings are in the environment: BASE, PROFILES, FAIL_ABOVE, PER, BINARY (action.yml says what they
# mean). A change is no failure here: the action fails after it has kept the profiles.
set -euo pipefail
shopt -s nullglob

before=() after=("$PROFILES"/run-*.html)
[ -z "$BASE" ] || before=("$BASE"/run-*.html)
say() { echo "$1" >>"$GITHUB_STEP_SUMMARY"; }
verdict() { echo "verdict=$1" >>"$GITHUB_OUTPUT"; }

if [ "${#before[@]}" = 0 ]; then
    say "### CPU profile: not compared, because there is no profile of a base"
    verdict "not compared"
    exit 0
fi
rc=0
"$BINARY" diff --fail-above "$FAIL_ABOVE" ${PER:+--per "$PER"} -o "$PROFILES/diff.html" -o "$PROFILES/diff.json" \
    -o "$PROFILES/diff.md" "${before[@]}" -- "${after[@]}" || rc=$?
case $rc in
0) verdict unchanged ;;
5) verdict changed ;;
*) exit "$rc" ;;
esac
cat "$PROFILES/diff.md" >>"$GITHUB_STEP_SUMMARY"
