#!/usr/bin/env bash
# Builds Trireme: build/<preset>/trireme.
#
#   scripts/build.sh [release|sanitize|cuda] [--no-install] [cmake arguments, such as -DTRIREME_WERROR=ON]
#
# release is the default; sanitize (clang) adds AddressSanitizer and UndefinedBehaviorSanitizer. Missing
# packages are installed first (scripts/install_deps.sh), or listed with --no-install. -DTRIREME_ISA=native builds the
# CPU kernels for this machine's processor alone, which is faster; without it the program runs as fast on others.
# With CI=true warnings are errors. Exit code 2: no configuration, no packages, no space.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release
install=()
arguments=()
for argument in "$@"; do
  case "$argument" in
    release | sanitize | cuda) preset=$argument ;;
    --no-install) install=(--no-install) ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) arguments+=("$argument") ;;
    *) echo "build.sh: unknown argument \"$argument\" (see --help)" >&2 && exit 2 ;;
  esac
done

. scripts/lib/parts.sh

purpose=build
[ "$preset" != sanitize ] || purpose=fuzz
[ -e "build/$preset/CMakeCache.txt" ] || need_space . 1000 "a build"
scripts/install_deps.sh $purpose "${install[@]}"
[ "${CI:-}" != true ] || arguments=(-DTRIREME_WERROR=ON "${arguments[@]}")
cmake --preset "$preset" -DTRIREME_ISA=all "${arguments[@]}" || exit 2
part "building $preset/trireme" cmake --build --preset "$preset" --target trireme
echo "built build/$preset/trireme"
