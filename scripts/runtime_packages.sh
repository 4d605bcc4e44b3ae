#!/usr/bin/env bash
# Prints the Debian packages that own the libraries a program is linked with, one a line: what an image
# without compilers must install (scripts/Dockerfile).
#
#   scripts/runtime_packages.sh build/release/trireme
set -euo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 0 ;;
  "" | -*) echo "runtime_packages.sh: expected one program (see --help)" >&2 && exit 2 ;;
esac
program=$1
libraries=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
found=$(ldd "$program")

# owner FILE: the package that installed it. With merged /usr dpkg may know a file by its old path.
owner() {
  local file
  file=$(realpath "$1")
  { dpkg-query -S "$file" || dpkg-query -S "${file#/usr}"; } 2>/dev/null | head -n 1 | cut -d: -f1
}

for library in $libraries; do
  file=$(awk -v name="$library" '$1 == name && $3 != "not" { print $3 }' <<<"$found")
  [ -n "$file" ] || file=$(awk -v name="$library" 'index($1, "/") && $1 ~ name "$" { print $1 }' <<<"$found")
  package=$([ -z "$file" ] || owner "$file")
  if [ -z "$package" ]; then
    echo "runtime_packages.sh: no package owns $library, which $program needs" >&2
    exit 1
  fi
  echo "$package"
done | sort -u
