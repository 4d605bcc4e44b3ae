#!/usr/bin/env bash
# Checks and measures Trireme on this machine's GPU, without a network and without installing anything.
#
#   scripts/gpu_check.sh [--phase facts|ops|models|speed|serve|peers|all] [--build DIR] [--again] [--rehearse]
#
# Builds for this GPU's architecture first, unless --build names a build folder. Each phase takes less than 9
# minutes and writes a line of JSON for each result into $OUT (default: results/) as soon as it is known; called
# again it goes on where it stopped, with --again from the start. In the end all lines are in gpu.json there, and
# the tables in gpu.md. Exit code: 0 all well, 1 something failed or differs, 2 bad input, 3 call it again to go on.
#   --rehearse   everything on the CPU with tiny shapes: tries the script, measures nothing
# The phase serve needs 19 GB where temporary files lie ($TMPDIR), and asks vLLM too where a program vllm is found.
# A folder ./offline-bundle made by scripts/offline_bundle.sh is used where it lies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

phase=all
build=
options=()
rehearse=no
while [ $# -gt 0 ]; do
  case "$1" in
    --phase | --build)
      [ $# -ge 2 ] || { echo "gpu_check.sh: $1 needs a value" >&2 && exit 2; }
      if [ "$1" = --phase ]; then phase=$2; else build=$2; fi
      shift
      ;;
    --again) options+=(--again) ;;
    --rehearse) rehearse=yes && options+=(--rehearse) ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "gpu_check.sh: unknown argument \"$1\" (see --help)" >&2 && exit 2 ;;
  esac
  shift
done
case "$phase" in
  facts | ops | models | speed | serve | peers) phases=("$phase") ;;
  all) phases=(facts ops models speed serve peers) ;;
  *) echo "gpu_check.sh: no phase \"$phase\": facts, ops, models, speed, serve, peers or all" >&2 && exit 2 ;;
esac
out=${OUT:-results}
mkdir -p "$out"

# The architecture as CMake calls it: 9.0 -> 90a-real, with Hopper's own instructions.
architecture() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d ' .')
  [ "$capability" = 90 ] && capability=90a
  echo "$capability-real"
}

# Into build/gpu; what takes longer than a phase may goes on with the next call.
build_here() {
  local configure=(-S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release
    -DTRIREME_CUDA=ON -DTRIREME_TESTS=ON "-DCMAKE_CUDA_ARCHITECTURES=$(architecture)")
  configure+=("${offline_options[@]}")
  command -v nvcc >/dev/null || configure+=(-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc)
  echo "== building build/gpu ($(architecture), $(nproc) jobs)"
  if ! timeout 530 cmake "${configure[@]}" >"$out/configure.log" 2>&1; then
    tail -n 20 "$out/configure.log" >&2
    exit 1
  fi
  local code=0
  timeout 530 ninja -C build/gpu -j "$(nproc)" trireme gpu_ops gpu_models >"$out/build.log" 2>&1 || code=$?
  [ $code != 124 ] || { echo "gpu_check.sh: the build needs another call" >&2 && exit 3; }
  [ $code = 0 ] || { grep -E -A 20 "FAILED|rror" "$out/build.log" | head -n 60 >&2 && exit 1; }
}
offline_options=()
if [ -d offline-bundle ]; then
  . scripts/lib/offline_prefix.sh
  use_offline_prefix "$PWD/offline-bundle"
fi
if [ -z "$build" ]; then
  [ "$rehearse" = no ] || { echo "gpu_check.sh: --rehearse needs --build" >&2 && exit 2; }
  build_here
  build=build/gpu
fi

worst=0
for name in "${phases[@]}"; do
  echo "== $name"
  code=0
  timeout --kill-after=10 535 python3 -B "scripts/gpu_check/$name.py" --build "$build" --out "$out" "${options[@]}" || code=$?
  [ $code -lt 124 ] || code=3 # cut off: what was done is there
  [ $code = 0 ] || echo "$name: exit code $code"
  [ $code -le $worst ] || worst=$code
done
python3 -B scripts/gpu_check/merge.py "$out"
python3 -B scripts/gpu_check/page.py --results "$out/gpu.json" --page "$out/gpu.md"
echo "== tables: $out/gpu.md"
sed -n '/^## Ceilings/,$p' "$out/gpu.md"
exit $worst
