#!/usr/bin/env bash
# Checks and measures Trireme on this machine's GPU, without a network and without installing anything.
#
#   scripts/gpu_check.sh --call 1|2|3 --out DIR [--seen ROWS]... [--only REGEX]
#       [--seconds N] [--build DIR] [--rehearse]
#   scripts/gpu_check.sh --merge DIR...
#
# A call takes less than 10 minutes and leaves four files in DIR, which is emptied of them first:
# rows.jsonl (a line of JSON for each result, as soon as it is known), gpu.json, gpu.md (tables) and
# logs.tar.gz. The calls are
#   1   facts, every op, ceilings, training, decoding, 8-bit floats
#   2   PyTorch beside it, where a step's time goes, sanitizer and profiler, tiny models; and, for
#       the next call, weights in a folder for temporary files (19 GB)
#   3   serving
# each in the order of its worth. Rows that a file of an earlier call has (--seen) are not made
# again. Exit code: 0 all well, 1 something failed or differs, 2 bad input, 3 out of time.
#   --only       makes the rows whose "PHASE ID" the expression matches, such as 'speed train .*7b'
#   --seconds    of this call, where fewer than 575 are left: the rows that do not fit are left out
#   --build      programs of this build folder, else of gpu-bundle.tar.xz (scripts/gpu_bundle.sh)
#                where it lies here, else built here: for that a folder offline-bundle
#                (scripts/offline_bundle.sh) is used
#   --rehearse   everything on the CPU with tiny shapes: tries the script, measures nothing
#   --merge      adds the rows of calls to docs/reference/results/gpu.json and renews
#                docs/reference/performance-gpu.md
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly kMaxSeconds=575 # of a call

seconds=$kMaxSeconds
call=
out=
build=
options=()
merge=no
folders=()
rehearse=no
while [ $# -gt 0 ]; do
  case "$1" in
    --call | --out | --build | --seen | --only | --seconds)
      [ $# -ge 2 ] || { echo "gpu_check.sh: $1 needs a value" >&2 && exit 2; }
      case "$1" in
        --call) call=$2 ;;
        --out) out=$2 ;;
        --build) build=$2 ;;
        --seen) options+=(--seen "$2") ;;
        --only) options+=(--only "$2") ;;
        --seconds) seconds=$2 ;;
      esac
      shift
      ;;
    --rehearse) rehearse=yes && options+=(--rehearse) ;;
    --merge) merge=yes ;;
    -h | --help) sed -n '2,24s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "gpu_check.sh: unknown argument \"$1\" (see --help)" >&2 && exit 2 ;;
    *) folders+=("$1") ;;
  esac
  shift
done
if [ $merge = yes ]; then
  [ ${#folders[@]} -gt 0 ] || { echo "gpu_check.sh: --merge needs the folders of calls" >&2 && exit 2; }
  python3 -B scripts/gpu_check/merge.py "${folders[@]}" --into docs/reference/results/gpu.json
  python3 -B scripts/gpu_check/page.py
  exit
fi
[ ${#folders[@]} -eq 0 ] || { echo "gpu_check.sh: unknown argument \"${folders[0]}\" (see --help)" >&2 && exit 2; }
case "$call" in
  1 | 2 | 3) ;;
  *) echo "gpu_check.sh: --call 1, 2 or 3 is needed, got \"$call\"" >&2 && exit 2 ;;
esac
if ! [[ $seconds =~ ^[0-9]{1,3}$ ]] || ((10#$seconds < 45 || 10#$seconds > kMaxSeconds)); then
  echo "gpu_check.sh: --seconds is 45 to $kMaxSeconds, got \"$seconds\"" >&2 && exit 2
fi
seconds=$((10#$seconds))
[ -n "$out" ] || { echo "gpu_check.sh: --out DIR is needed" >&2 && exit 2; }
mkdir -p "$out"
out=$(realpath "$out")

# The architecture as CMake calls it: 9.0 -> 90a-real, with Hopper's own instructions.
architecture() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d ' .')
  [ "$capability" = 90 ] && capability=90a
  echo "$capability-real"
}

# Into build/gpu-bundle, once. Fails where its program does not start here.
unpack_bundle() {
  local folder=build/gpu-bundle
  if [ ! -f $folder/complete ] || [ gpu-bundle.tar.xz -nt $folder/complete ]; then
    rm -rf $folder
    mkdir -p $folder
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' gpu-bundle.tar.xz $folder || return 1
    touch $folder/complete
  fi
  LD_LIBRARY_PATH=$folder/lib $folder/trireme --version
}

# Into build/gpu. What takes longer than a call may goes on with the next one on this machine.
build_here() {
  local log=$out/build.log
  if [ ! -d offline-bundle ] && ! command -v mpicc >/dev/null; then
    echo "gpu_check.sh: there is no gpu-bundle.tar.xz (scripts/gpu_bundle.sh), and to build here a folder offline-bundle" \
      "(scripts/offline_bundle.sh): make one of them on a machine like this one with packages, and carry it here" >&2
    exit 2
  fi
  offline_options=()
  if [ -d offline-bundle ]; then
    . scripts/lib/offline_prefix.sh
    use_offline_prefix "$PWD/offline-bundle"
  fi
  local configure=(-S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release
    -DTRIREME_CUDA=ON -DTRIREME_TESTS=ON "-DCMAKE_CUDA_ARCHITECTURES=$(architecture)")
  configure+=("${offline_options[@]}")
  mapfile -t -O ${#configure[@]} configure < <(python3 -B scripts/gpu_check/libraries.py --cmake | grep '^-D')
  command -v nvcc >/dev/null || configure+=(-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc)
  echo "== building build/gpu ($(architecture), $(nproc) jobs)"
  if ! timeout $((seconds - SECONDS)) cmake "${configure[@]}" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    exit 1
  fi
  local code=0
  timeout $((seconds - SECONDS)) ninja -C build/gpu -j "$(nproc)" trireme gpu_ops gpu_models >>"$log" 2>&1 || code=$?
  [ $code != 124 ] || { echo "gpu_check.sh: the build needs another call on this machine" >&2 && exit 3; }
  [ $code = 0 ] || { grep -E -A 20 "FAILED|rror" "$log" | head -n 60 >&2 && exit 1; }
  rm -f "$log"
}
if [ -z "$build" ]; then
  [ "$rehearse" = no ] || { echo "gpu_check.sh: --rehearse needs --build" >&2 && exit 2; }
  if [ -f gpu-bundle.tar.xz ] && unpack_bundle; then
    build=build/gpu-bundle
  else
    build_here
    build=build/gpu
  fi
fi

code=0
left=$((seconds - SECONDS))
[ $left -ge 30 ] || { echo "gpu_check.sh: too little of the $seconds s is left for a row" >&2 && exit 3; }
timeout --kill-after=5 "$left" python3 -B scripts/gpu_check/check.py --call "$call" --build "$build" --out "$out" \
  --seconds $((left - 15)) "${options[@]}" || code=$?
[ $code -lt 124 ] || code=3 # cut off: the rows are there
[ ! -f "$out/gpu.md" ] || sed -n '/^## Ceilings/,$p' "$out/gpu.md"
exit $code
