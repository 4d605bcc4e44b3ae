#!/usr/bin/env bash
# Builds the program and its tests, and runs the quick suites; the last lines say what failed, was unstable (it failed, then passed
# alone), or was skipped and why.
#
#   scripts/test.sh [--rest | --all] [--no-install]
#
# By itself: the quick suites, on kernels for this machine's instruction set.
# --rest: what else CI runs: the long suites, in seeded samples that differ from commit to commit; those of
#         other instruction sets; AddressSanitizer and UndefinedBehaviorSanitizer; static analysis; 10 seconds
#         of every fuzz target; the CUDA backend where its toolkit is installed.
# --all:  both, and whole suites instead of shares of them.
# With CI=true warnings are errors. Missing packages are installed first, or listed with --no-install.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/parts.sh

scope=quick
install=()
for argument in "$@"; do
  case "$argument" in
    --rest | --all) scope=${argument#--} ;;
    --no-install) install=(--no-install) ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "test.sh: unknown argument \"$argument\" (see --help)" >&2 && exit 2 ;;
  esac
done

[ -e build/release/tests ] || need_space . 3000 "a build with its tests"
scripts/install_deps.sh test "${install[@]}"
[ "$scope" = quick ] || scripts/install_deps.sh fuzz "${install[@]}"

# Whatever was built here before.
options=(-DTRIREME_TESTS=ON -DTRIREME_MPI=ON -DTRIREME_SERVING=ON -DTRIREME_TRAINING=ON -DTRIREME_FUZZ_SECONDS=10)
[ "${CI:-}" != true ] || options+=(-DTRIREME_WERROR=ON)
seed=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1)))
[ "$scope" != rest ] || seed=$((seed + 1))  # another share than that of the quick suites
options+=("-DTRIREME_TEST_SCOPE=$scope" "-DTRIREME_TEST_SEED=$seed")
release=(-DTRIREME_ISA=native -DTRIREME_CUDA=OFF)
targets=(all)
selection=(-LE long)
if [ "$scope" != quick ]; then
  targets+=(long_tests)
  [ "$scope" = all ] && selection=() || selection=(-L 'long|again|sanitized')
  release=(-DTRIREME_ISA=all -DTRIREME_CUDA=OFF)
  # With a toolkit the program is built with the CUDA backend, which runs here whether or not there is a GPU; in
  # CI for one generation of GPUs.
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    release=(-DTRIREME_ISA=all -DTRIREME_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90a-real)
    [ "$scope" != all ] || release[2]="-DCMAKE_CUDA_ARCHITECTURES=80-real;90a-real"
    export PATH="$PATH:/usr/local/cuda/bin"
  else
    echo "== no CUDA toolkit: the CUDA sources are tested on the emulator only"
  fi
fi

# build PRESET OPTION...: one ctest runs over all build folders, so that one summary has everything.
build() {
  local preset=$1
  shift
  cmake --preset "$preset" "${options[@]}" "$@" >build/tests/configure.log 2>&1 || {
    cat build/tests/configure.log >&2
    exit 2
  }
  part "building $preset, $scope" cmake --build --preset "$preset" --target "${targets[@]}"
  echo "subdirs(\"$PWD/build/$preset\")" >>build/tests/CTestTestfile.cmake
}

rm -rf build/tests && mkdir -p build/tests
build release "${release[@]}"
[ "$scope" = quick ] || build sanitize -DTRIREME_CUDA=OFF  # the sanitizers and the driver do not go together
part "testing, $scope" python3 -B scripts/lib/run_suites.py build/tests -j "$(($(nproc) + 1))" "${selection[@]}"
