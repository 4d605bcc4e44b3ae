# shellcheck shell=bash
# Parts of a long script: the time of each, and a message for a full disk. Sourced by the other scripts.

# part NAME COMMAND...: runs it, and appends "NAME <tab> seconds" to $TRIREME_MINUTES where that names a file. The exit
# code is the command's; after a failure says so if the disk is full.
part() {
  local name=$1 begin=$SECONDS code=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || code=$?
  printf '== %s: %d s\n' "$name" "$((SECONDS - begin))"
  [ -z "${TRIREME_MINUTES:-}" ] || printf '%s\t%d\n' "$name" "$((SECONDS - begin))" >>"$TRIREME_MINUTES"
  [ "$code" = 0 ] || name_full_disk . || code=2
  return "$code"
}

# free_mib FOLDER: free MiB of its file system.
free_mib() { df --output=avail -k -- "$1" | awk 'END { print int($1 / 1024) }'; }

# need_space FOLDER MIB WHAT: exits with 2 where less is free.
need_space() {
  local free
  free=$(free_mib "$1")
  [ "$free" -lt "$2" ] || return 0
  echo "trireme: $3 needs about $2 MiB; $(realpath -- "$1") has $free MiB free: free some, or clone elsewhere" >&2
  exit 2
}

# name_full_disk FOLDER: after a failure; returns 1 and says so where the disk is full.
name_full_disk() {
  local free
  free=$(free_mib "$1")
  [ "$free" -lt 64 ] || return 0
  echo "trireme: the disk is full: $(realpath -- "$1") has $free MiB free, which may have caused the errors above; free some" >&2
  return 1
}
