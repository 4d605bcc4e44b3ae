#!/usr/bin/env bash
# Collects what a build needs beside a C++ compiler, CMake and Ninja, for a host without a network: the
# distribution's packages, as they are, with the libraries that these load.
#
#   scripts/offline_bundle.sh [DIR]      default: offline-bundle
#
# Run it on a Debian or Ubuntu machine that has the packages (scripts/install_deps.sh test) and is no newer than the
# host they are for. Copy DIR beside the sources there: scripts/gpu_check.sh unpacks and uses it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/packages.sh

case "${1:-}" in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
  -*) echo "offline_bundle.sh: unknown argument \"$1\" (see --help)" >&2 && exit 2 ;;
esac
bundle=${1:-offline-bundle}
readonly kMaxMiB=40
# Left out: what every host has that can build anything, what only helps, and mpirun: one GPU needs one rank.
readonly kLeftOut="g++ cmake ccache openmpi-bin"
# Libraries that belong to the compiler and the C library.
readonly kBase='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libutil|libresolv|libgcc_s|libstdc\+\+|libgomp|libanl)\.so'

command -v apt-get >/dev/null || { echo "offline_bundle.sh: this system has no apt-get" >&2 && exit 2; }
rm -rf "$bundle"
mkdir -p "$bundle/debs" "$bundle/work"

wanted=(libgtest-dev googletest)
while IFS='|' read -r name _ for _; do
  [ "$for" = build ] && [[ " $kLeftOut " != *" $name "* ]] && wanted+=("$name")
done < <(trireme_packages)

# package_of FILE: the installed package that has the file, by either name of a merged /usr.
package_of() {
  dpkg -S "$1" 2>/dev/null | cut -d: -f1 | head -n 1 || true
}

# fetch PACKAGE...: into debs, and unpacked into work, where what they load is looked up.
fetch() {
  (cd "$bundle/debs" && apt-get -q download "$@" >/dev/null 2>download.log) || {
    cat "$bundle/debs/download.log" >&2
    exit 1
  }
  rm -f "$bundle/debs/download.log"
  python3 -B scripts/lib/unpack_debs.py "$bundle/work" "$bundle"/debs/*.deb
}

have=" "
while [ ${#wanted[@]} -gt 0 ]; do
  # A -dev package names the library package of exactly its version.
  for ((i = 0; i < ${#wanted[@]}; ++i)); do
    name=${wanted[i]}
    have+="$name "
    case "$name" in
      *-dev | pkg-config | pkgconf)
        while read -r other; do
          [[ $have == *" $other "* ]] || wanted+=("$other") have+="$other "
        done < <(apt-cache show --no-all-versions "$name" | sed -n 's/^Depends: //p' | tr ',' '\n' |
          sed -nE 's/^ *([a-z0-9.+-]+) \(= .*/\1/p; s/^ *(pkgconf[a-z-]*)( .*|$)/\1/p')
        ;;
    esac
  done
  mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)
  fetch "${wanted[@]}"
  wanted=()
  while read -r library; do
    [[ $library =~ $kBase ]] && continue
    find "$bundle/work" -name "$library" | grep -q . && continue
    path=$(ldconfig -p | sed -n "s/^\t$library .*x86-64.* => //p" | head -n 1)
    [ -n "$path" ] || continue
    name=$(package_of "$path")
    [ -n "$name" ] || name=$(package_of "${path#/usr}")
    [ -n "$name" ] || name=$(package_of "$(readlink -f "$path")")
    [ -z "$name" ] || [[ $have == *" $name "* ]] || wanted+=("$name") have+="$name "
  done < <(find "$bundle/work" -name '*.so*' -type f -path '*/lib/*' -not -path '*/openmpi3/*' -not -path '*/lib/*/*/*' \
    -exec readelf -d {} + 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)
done
rm -rf "$bundle/work"

mib=$((($(du -sb "$bundle/debs" | cut -f1) + 1048575) / 1048576))
[ "$mib" -le $kMaxMiB ] || { echo "offline_bundle.sh: $bundle has $mib MiB, more than $kMaxMiB" >&2 && exit 1; }
echo "$bundle: $(find "$bundle/debs" -name '*.deb' | wc -l) packages, $mib MiB. Left out: $kLeftOut."
echo "On the host, with the sources and this folder beside each other:"
echo "  scripts/gpu_check.sh --call 1 --out DIR"
