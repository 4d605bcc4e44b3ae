#!/usr/bin/env bash
# Trains under every parallel layout of up to 8 ranks and compares each with one rank. Takes hours; a
# small seeded sample (its size is in tests/CMakeLists.txt) is part of scripts/test.sh --rest. With
# --publish docs/reference/layouts.md becomes what this run found.
#
#   scripts/test_layouts.sh [--publish] [--sample N] [--seed S] [--most RANKS] [--low-precision N]
#                           [--only TEXT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "${1:-}" != --help ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0; }
options=(--low-precision 50)
for argument in "$@"; do
  case "$argument" in
    --publish) options+=(--publish docs/reference/layouts.md) ;;
    *) options+=("$argument") ;;
  esac
done
command="scripts/test_layouts.sh$([ $# -eq 0 ] || printf ' %q' "$@")"
scripts/install_deps.sh test
cmake --preset release -DTRIREME_TESTS=ON >/dev/null
cmake --build --preset release --target layout_sweep
exec build/release/tests/layout_sweep --command "$command" \
  --commit "$(git describe --always --dirty 2>/dev/null || cat VERSION)" "${options[@]}"
