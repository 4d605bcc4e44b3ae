#!/usr/bin/env bash
# Trains under every parallel layout of up to 8 ranks, compares each with one rank and writes
# docs/layouts.md. Takes hours; a sample is part of scripts/test.sh --all.
#
#   scripts/test_layouts.sh [--sample N] [--seed S] [--most RANKS] [--low-precision N] [--only TEXT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "${1:-}" != --help ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 0; }
scripts/install_deps.sh test
cmake --preset release -DTRIREME_TESTS=ON >/dev/null
cmake --build --preset release --target layout_sweep
exec build/release/tests/layout_sweep --low-precision 50 --publish docs/layouts.md \
  --commit "$(git describe --always --dirty 2>/dev/null || cat VERSION)" "$@"
