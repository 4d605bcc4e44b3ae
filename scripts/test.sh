#!/usr/bin/env bash
# Builds everything and runs the tests; the last lines are ctest's.
#
#   scripts/test.sh [--all] [--no-install]
#
# --all adds the same tests under AddressSanitizer and UndefinedBehaviorSanitizer, static analysis and the
# long suites. With CI=true warnings are errors. Missing packages are installed first, or listed with
# --no-install.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=no
install=()
for argument in "$@"; do
  case "$argument" in
    --all) all=yes ;;
    --no-install) install=(--no-install) ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "test.sh: unknown argument \"$argument\" (see --help)" >&2 && exit 2 ;;
  esac
done

scripts/install_deps.sh test "${install[@]}"

options=(-DTRIREME_TESTS=ON)
[ "${CI:-}" != true ] || options+=(-DTRIREME_WERROR=ON)
presets=(release)
selection=(-LE long)
if [ "$all" = yes ]; then
  presets+=(debug)
  selection=()
fi

rm -rf build/tests && mkdir -p build/tests
for preset in "${presets[@]}"; do
  echo "== building $preset"
  cmake --preset "$preset" "${options[@]}" >build/tests/configure.log 2>&1 || {
    cat build/tests/configure.log >&2
    exit 2
  }
  cmake --build --preset "$preset"
  # One ctest over all build folders, so that one summary tells everything.
  echo "subdirs(\"$PWD/build/$preset\")" >>build/tests/CTestTestfile.cmake
done

echo "== testing"
exec ctest --test-dir build/tests --output-on-failure --no-tests=error -j "$(nproc)" "${selection[@]}" </dev/null
