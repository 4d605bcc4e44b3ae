#!/usr/bin/env bash
# clang-tidy over every source of the product; scripts/test.sh --rest looks at a sample of them.
#
#   scripts/tidy.sh [--changed COMMIT] [FILE...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "${1:-}" != --help ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" && exit 0; }
scripts/install_deps.sh test
cmake --preset release -DTRIREME_TESTS=ON >/dev/null
exec python3 -B tests/house/check_tidy.py build/release "$@"
