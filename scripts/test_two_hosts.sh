#!/usr/bin/env bash
# Trains over two network namespaces of this machine, with a virtual cable between them and a host name each:
# what two hosts are to the ranks, on one. Compares losses with one process, kills and stops ranks, cuts the cable.
#
#   scripts/test_two_hosts.sh [BINARY]
#
# BINARY is the program to test (default: build/release/trireme). Needs root and iproute2; exits with 77 and a reason
# where namespaces are not permitted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
  -*) echo "test_two_hosts.sh: unknown argument \"$1\" (see --help)" >&2 && exit 2 ;;
esac
TRIREME=$(realpath -- "${1:-build/release/trireme}")
export TRIREME

skip() {
  echo "test_two_hosts.sh: skipped: $1" >&2
  exit 77
}
[ "$(id -u)" = 0 ] || skip "network namespaces are made by root"
command -v ip >/dev/null || skip "no ip command (iproute2)"
[ -x "$TRIREME" ] || { echo "test_two_hosts.sh: no program at $TRIREME; build it first" >&2 && exit 2; }

export TRIREME_HOST_A="trireme-a-$$" TRIREME_HOST_B="trireme-b-$$"
ends=("tra$$" "trb$$")
cleanup() {
  ip netns del "$TRIREME_HOST_A" 2>/dev/null || true
  ip netns del "$TRIREME_HOST_B" 2>/dev/null || true
}
trap cleanup EXIT

error=$(ip netns add "$TRIREME_HOST_A" 2>&1 && ip netns add "$TRIREME_HOST_B" 2>&1) ||
  skip "no network namespace can be made here: $error"
error=$(ip link add "${ends[0]}" netns "$TRIREME_HOST_A" type veth peer name "${ends[1]}" netns "$TRIREME_HOST_B" 2>&1) ||
  skip "no virtual cable can be made here: $error"
unshare --uts --pid --fork --mount-proc true 2>/dev/null || skip "no namespaces for host names and processes here"

export TRIREME_CABLE="${ends[1]}" TRIREME_ADDRESS_A=192.0.2.1 TRIREME_ADDRESS_B=192.0.2.2
ip -n "$TRIREME_HOST_A" addr add "$TRIREME_ADDRESS_A/24" dev "${ends[0]}"
ip -n "$TRIREME_HOST_B" addr add "$TRIREME_ADDRESS_B/24" dev "${ends[1]}"
ip -n "$TRIREME_HOST_A" link set lo up
ip -n "$TRIREME_HOST_B" link set lo up
ip -n "$TRIREME_HOST_A" link set "${ends[0]}" up
ip -n "$TRIREME_HOST_B" link set "${ends[1]}" up
python3 -B tests/e2e/two_hosts.py
