#!/usr/bin/env bash
# Runs the quick suites N times beside busy processes, each suite once a run, and lists what failed how often.
#
#   scripts/test_stability.sh N [--busy PROCESSES] [--jobs N] [--only REGEX]
#
# --busy: processes that compute without a pause, at the same time (default: 4)
# --jobs: suites at the same time (default: one more than cores). Suites disturb each other as busy processes do, so
#         --busy 0 --jobs J with J = cores + 5 is the same load in a third of the time
# --only: suites whose name matches
# Logs of failed runs are in build/stability. Exit code 1 where a run failed or ran no suite. Build first:
# scripts/test.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs= busy=4 jobs=$(($(nproc) + 1)) only=.
while [ $# -gt 0 ]; do
  case "$1" in
    --busy | --jobs | --only)
      [ $# -ge 2 ] || { echo "test_stability.sh: $1 needs a value" >&2 && exit 2; }
      declare "${1#--}=$2"
      shift
      ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *[!0-9]*) echo "test_stability.sh: unknown argument \"$1\" (see --help)" >&2 && exit 2 ;;
    *) runs=$1 ;;
  esac
  shift
done
[[ "$runs" =~ ^[1-9][0-9]*$ && "$busy" =~ ^[0-9]+$ && "$jobs" =~ ^[1-9][0-9]*$ ]] ||
  { echo "test_stability.sh: give a number of runs, and whole numbers to --busy and --jobs (see --help)" >&2 && exit 2; }
[ -e build/release/CTestTestfile.cmake ] ||
  { echo "test_stability.sh: build/release has no tests; run scripts/test.sh first" >&2 && exit 2; }

rm -rf build/stability && mkdir -p build/stability
pids=()
trap '[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null' EXIT
for ((i = 0; i < busy; i++)); do
  while :; do :; done &
  pids+=($!)
done
failed=build/stability/failed.txt bad=
: >"$failed"
for ((run = 1; run <= runs; run++)); do
  log=build/stability/run-$run.log begin=$SECONDS
  code=0
  ctest --test-dir build/release -LE long -R "$only" -j "$jobs" --no-tests=error --timeout 1800 \
    --output-on-failure </dev/null >"$log" 2>&1 || code=$?
  count=$(sed -n '/tests FAILED:$/,$s/^\t *[0-9]* - \(.*\) ([^()]*).*$/\1/p' "$log" | tee -a "$failed" | wc -l)
  echo "run $run of $runs: $count failed, $((SECONDS - begin)) s; code $code"
  if [ "$code" = 0 ]; then rm "$log"; else bad=yes; fi
done
echo
sort "$failed" | uniq -c | sort -rn
echo "$runs runs, $jobs suites at a time, beside $busy busy processes: $(wc -l <"$failed") failures of $(sort -u "$failed" | wc -l) suites"
[ -z "$bad" ]
