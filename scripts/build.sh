#!/usr/bin/env bash
# Builds Trireme: build/<preset>/trireme.
#
#   scripts/build.sh [release|sanitize|cuda] [--no-install] [cmake arguments, such as -DTRIREME_WERROR=ON]
#
# release is the default; sanitize (clang) adds AddressSanitizer and UndefinedBehaviorSanitizer. Missing
# packages are installed first (scripts/install_deps.sh), or listed with --no-install.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release
install=()
arguments=()
for argument in "$@"; do
  case "$argument" in
    release | sanitize | cuda) preset=$argument ;;
    --no-install) install=(--no-install) ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) arguments+=("$argument") ;;
    *) echo "build.sh: unknown argument \"$argument\" (see --help)" >&2 && exit 2 ;;
  esac
done

purpose=build
[ "$preset" != sanitize ] || purpose=fuzz
scripts/install_deps.sh $purpose "${install[@]}"
cmake --preset "$preset" "${arguments[@]}"
cmake --build --preset "$preset" --target trireme
echo "built build/$preset/trireme"
