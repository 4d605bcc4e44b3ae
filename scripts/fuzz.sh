#!/usr/bin/env bash
# Gives everything that reads files of others arbitrary bytes, under both sanitizers: five minutes a target.
#
#   scripts/fuzz.sh [--seconds N] [--no-install] [NAME...]      NAME: safetensors, config, ... (tests/fuzz)
#
# Inputs that reach new code are kept in build/sanitize/tests/fuzz/corpus and used again; one that breaks something
# is written to build/sanitize/tests/fuzz/found, and build/sanitize/tests/fuzz/fuzz_NAME FILE runs it alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=300
install=()
names=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds=${2:?fuzz.sh: --seconds needs a number} && shift ;;
    --no-install) install=(--no-install) ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "fuzz.sh: unknown argument \"$1\" (see --help)" >&2 && exit 2 ;;
    *) names+=("$1") ;;
  esac
  shift
done
for name in "${names[@]}"; do
  [ -f "tests/fuzz/fuzz_$name.cpp" ] || {
    echo "fuzz.sh: no target \"$name\"; there are: $(cd tests/fuzz && echo fuzz_*.cpp | sed 's/fuzz_//g; s/\.cpp//g')" >&2
    exit 2
  }
done

scripts/install_deps.sh fuzz "${install[@]}"
cmake --preset sanitize -DTRIREME_FUZZ_SECONDS="$seconds" >/dev/null
cmake --build --preset sanitize --target fuzzers
pattern=$(IFS='|' && echo "${names[*]:-.*}")
exec ctest --test-dir build/sanitize --output-on-failure --no-tests=error -j "$(nproc)" -R "^fuzz/($pattern)\$" </dev/null
