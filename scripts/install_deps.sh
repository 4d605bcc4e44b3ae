#!/usr/bin/env bash
# Installs what is missing to build Trireme (and, with "test", to test it; with "fuzz", to fuzz it), after
# saying what and why.
#
#   scripts/install_deps.sh [build|test|fuzz] [--no-install]
#
# With --no-install, or where nothing may be installed, it lists what is missing and exits with 2.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/packages.sh
. scripts/lib/openai_client.sh

purpose=build
install=yes
for argument in "$@"; do
  case "$argument" in
    build | test | fuzz) purpose=$argument ;;
    --no-install) install=no ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "install_deps.sh: unknown argument \"$argument\" (see --help)" >&2 && exit 2 ;;
  esac
done

# What tests need beside packages.
finish() {
  [ "$purpose" != test ] || install_openai_client "$install"
  exit 0
}

missing=$(missing_packages "$purpose")
[ -n "$missing" ] || finish

debian=$(cut -d'|' -f1 <<<"$missing" | tr '\n' ' ')
fedora=$(cut -d'|' -f2 <<<"$missing" | grep -v '^-$' | sort -u | tr '\n' ' ')

# refuse REASON: what to type, for both families of distributions.
refuse() {
  {
    echo "trireme: missing packages, not installed: $1"
    echo "  Debian, Ubuntu:  apt-get install --no-install-recommends $debian"
    echo "  Fedora:          dnf install $fedora"
  } >&2
  exit 2
}

[ "$install" = yes ] || refuse "--no-install was given"
command -v apt-get >/dev/null || refuse "this system has no apt-get"
as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || refuse "this needs root, and there is no sudo"
  # Without a terminal nobody can type a password.
  [ -t 0 ] || sudo -n true 2>/dev/null || refuse "this needs root"
  as_root=(sudo)
fi

echo "Installing with ${as_root[*]:+sudo }apt-get:"
while IFS='|' read -r name _ why; do printf '  %-22s %s\n' "$name" "$why"; done <<<"$missing"

export DEBIAN_FRONTEND=noninteractive
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# run STEP...: apt-get, whose output is shown where it fails.
run() {
  "${apt[@]}" "$@" </dev/null >"$log" 2>&1 && return
  cat "$log" >&2
  refuse "apt-get $1 failed (its output is above)"
}
# The lists of packages may be absent (a fresh image) or old; by new ones some have other names.
run update
debian=$(missing_packages "$purpose" | cut -d'|' -f1 | tr '\n' ' ')
# shellcheck disable=SC2086  # a list of words
run install -y --no-install-recommends $debian
finish
