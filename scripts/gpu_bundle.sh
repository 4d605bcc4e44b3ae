#!/usr/bin/env bash
# Packs the programs that scripts/gpu_check.sh runs, for a host with a GPU and without a network,
# packages or time to build: built for Hopper (90a), stripped, with the libraries that a bare host
# lacks.
#
#   scripts/gpu_bundle.sh [--build DIR] [FILE]      default: gpu-bundle.tar.xz, from
#   build/gpu-bundle-build
#
# Needs the CUDA toolkit (no GPU), the headers of cuDNN and NCCL, and the packages of
# scripts/install_deps.sh test. Run it on a distribution whose C library is no newer than the
# host's. Copy FILE beside the sources there. --build packs what a build folder has, without
# building.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly kMaxMiB=40
readonly kPrograms="trireme tests/cuda/gpu_ops tests/cuda/gpu_models"
# Libraries that every host has: the C library's and the compiler's.
readonly kBase='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libutil|libresolv|libgcc_s|libstdc\+\+|libanl)\.so'

build=
bundle=gpu-bundle.tar.xz
while [ $# -gt 0 ]; do
  case "$1" in
    --build)
      [ $# -ge 2 ] || { echo "gpu_bundle.sh: --build needs a value" >&2 && exit 2; }
      build=$2 && shift
      ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "gpu_bundle.sh: unknown argument \"$1\" (see --help)" >&2 && exit 2 ;;
    *) bundle=$1 ;;
  esac
  shift
done

if [ -z "$build" ]; then
  if [ -n "$(git status --porcelain --untracked-files=no 2>/dev/null)" ]; then
    echo "gpu_bundle.sh: there are changes that no commit has, and results name the commit of the programs: commit first" >&2
    exit 1
  fi
  build=build/gpu-bundle-build
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  mapfile -t headers < <(python3 -B scripts/gpu_check/libraries.py --cmake)
  for line in "${headers[@]}"; do
    [[ $line == -D* ]] || { echo "gpu_bundle.sh: ${line#\# } was found: attention or collectives would be missing" >&2 && exit 1; }
  done
  cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTRIREME_CUDA=ON -DTRIREME_TESTS=ON \
    "-DCMAKE_CUDA_COMPILER=$nvcc" -DCMAKE_CUDA_ARCHITECTURES=90a-real "${headers[@]}"
  ninja -C $build -j "${TRIREME_JOBS:-$(nproc)}" trireme gpu_ops gpu_models
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lib" "$work/tests/cuda"
for program in $kPrograms; do
  [ -x "$build/$program" ] || { echo "gpu_bundle.sh: $build has no $program" >&2 && exit 1; }
  strip -o "$work/$program" "$build/$program"
  while read -r name arrow path _; do
    [ "$arrow" = "=>" ] || continue
    [ "$path" != not ] || { echo "gpu_bundle.sh: $program needs $name, which is not here" >&2 && exit 1; }
    [[ $name =~ $kBase ]] || [ -e "$work/lib/$name" ] || strip -o "$work/lib/$name" "$path" 2>/dev/null || cp -L "$path" "$work/lib/$name"
  done < <(ldd "$build/$program")
done
if readelf -d "$build/trireme" | grep -q libgomp; then
  [ -e "$work/lib/libgomp.so.1" ] || { echo "gpu_bundle.sh: libgomp is missing" >&2 && exit 1; }
fi
tar -C "$work" -cf - . | xz -3 -T0 >"$bundle"
mib=$((($(stat -c %s "$bundle") + 1048575) / 1048576))
[ $mib -le $kMaxMiB ] || { echo "gpu_bundle.sh: $bundle has $mib MiB, more than $kMaxMiB" >&2 && exit 1; }
echo "$bundle: $mib MiB, unpacked $(du -sm "$work" | cut -f1) MiB, $(find "$work/lib" -type f | wc -l) libraries."
echo "On the host, with the sources beside it:  scripts/gpu_check.sh --call 1 --out DIR"
