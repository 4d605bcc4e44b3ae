#!/usr/bin/env bash
# Runs in a fresh clone of HEAD what CI runs (.ci/run), before a push; takes CI's time.
#
#   scripts/before_push.sh [--without-cuda] [--cold]
#
# --without-cuda: as on a machine without a CUDA toolkit (needs root and a toolkit in /usr/local/cuda)
# --cold:         with an empty compiler cache
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

without_cuda="" cold=""
for argument in "$@"; do
  case "$argument" in
    --without-cuda) without_cuda=yes ;;
    --cold) cold=yes ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "before_push.sh: unknown argument \"$argument\" (see --help)" >&2 && exit 2 ;;
  esac
done

clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone -q . "$clone/trireme"
prefix=()
if [ -n "$without_cuda" ]; then
  # A mount namespace of its own. An empty folder replaces the toolkit, and a copy without nvcc each
  # other folder of PATH that has one, such as a script there that starts the toolkit's.
  # shellcheck disable=SC2016  # for the inner shell
  prefix=(unshare --mount bash -c 'hidden=$1; shift
    mkdir "$hidden" "$hidden/empty"
    mount --bind "$hidden/empty" "$(realpath /usr/local/cuda)" || exit 2
    while nvcc=$(type -P nvcc); do
      folder=$(realpath "$(dirname "$nvcc")")
      copy=$(mktemp -d "$hidden/XXXXXX")
      cp -a "$folder/." "$copy" && rm "$copy/nvcc" && mount --bind "$copy" "$folder" || exit 2
      hash -r
    done
    exec "$@"' hide "$clone/hidden")
fi
[ -z "$cold" ] || export CCACHE_DIR="$clone/ccache"
[ -z "$(git status --porcelain)" ] || echo "before_push.sh: changes that are not committed are not tested" >&2
cd "$clone/trireme"
echo "== CI of commit $(git rev-parse --short=8 HEAD)"
"${prefix[@]}" env CI=true bash .ci/run </dev/null
