#!/usr/bin/env bash
# Builds everything and runs the tests; the last lines say what failed, was unstable (it failed, then passed
# alone), or was skipped and why.
#
#   scripts/test.sh [--all] [--no-install]
#
# --all adds the same tests under AddressSanitizer and UndefinedBehaviorSanitizer, static analysis, the long
# suites, 10 seconds of every fuzz target, and the CUDA backend where its toolkit is installed. With CI=true
# warnings are errors. Missing packages are installed first, or listed with --no-install.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=no
install=()
for argument in "$@"; do
  case "$argument" in
    --all) all=yes ;;
    --no-install) install=(--no-install) ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "test.sh: unknown argument \"$argument\" (see --help)" >&2 && exit 2 ;;
  esac
done

scripts/install_deps.sh test "${install[@]}"
[ "$all" = no ] || scripts/install_deps.sh fuzz "${install[@]}"

options=(-DTRIREME_TESTS=ON -DTRIREME_MPI=ON -DTRIREME_SERVING=ON -DTRIREME_TRAINING=ON)  # whatever was built here before
[ "${CI:-}" != true ] || options+=(-DTRIREME_WERROR=ON)
presets=(release)
selection=(-LE long)
cuda=(-DTRIREME_CUDA=OFF)
if [ "$all" = yes ]; then
  presets+=(sanitize)
  selection=()
  # With a toolkit the program is built with the CUDA backend, for two generations of GPUs: it runs here
  # whether or not there is one.
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    cuda=(-DTRIREME_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=80-real;90a-real")
    export PATH="$PATH:/usr/local/cuda/bin"
  else
    echo "== no CUDA toolkit: the CUDA sources are tested on the emulator only"
  fi
fi

rm -rf build/tests && mkdir -p build/tests
for preset in "${presets[@]}"; do
  echo "== building $preset"
  backend=(-DTRIREME_CUDA=OFF)  # the sanitizers and the driver do not go together
  [ "$preset" != release ] || backend=("${cuda[@]}")
  cmake --preset "$preset" "${options[@]}" "${backend[@]}" >build/tests/configure.log 2>&1 || {
    cat build/tests/configure.log >&2
    exit 2
  }
  targets=(all)
  [ "$all" = no ] || targets+=(long_tests)
  cmake --build --preset "$preset" --target "${targets[@]}"
  # One ctest over all build folders, so that one summary tells everything.
  echo "subdirs(\"$PWD/build/$preset\")" >>build/tests/CTestTestfile.cmake
done

echo "== testing"
exec python3 -B scripts/lib/run_suites.py build/tests -j "$(nproc)" "${selection[@]}"
