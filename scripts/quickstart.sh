#!/usr/bin/env bash
# From a fresh clone to a trained model: installs what is missing, builds, makes tokens from text, trains,
# evaluates, draws the loss, and lets the model write.
#
#   scripts/quickstart.sh [--no-install] [--text PATH]... [--output DIR]
#
# --text takes your own text instead of this machine's licence texts and the repository's documents: files
# or folders (.txt or anything else that is UTF-8, .jsonl, .gz, .zst); give it as often as you like.
# --output is where everything goes (default: runs/quickstart, or the next free number behind it).
set -euo pipefail

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
refuse() {
  echo "quickstart.sh: $1" >&2
  exit 2
}

texts=()
output=
install=()
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) install=(--no-install) ;;
    --text | --output)
      [ $# -ge 2 ] || refuse "$1 needs a path"
      if [ "$1" = --text ]; then texts+=("$(realpath -m -- "$2")"); else output=$(realpath -m -- "$2"); fi
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    *) refuse "unknown argument \"$1\" (see --help)" ;;
  esac
  shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/documents.sh

for text in "${texts[@]}"; do
  [ -r "$text" ] || refuse "--text $text: no such file or folder"
done
if [ -z "$output" ]; then
  output=runs/quickstart
  for ((n = 2; ; n++)); do
    [ -e "$output" ] || break
    output=runs/quickstart-$n
  done
elif [ -n "$(ls -A "$output" 2>/dev/null)" ]; then
  refuse "--output $output is not empty; give another folder, or remove it"
fi

step() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }

list_texts() {
  if [ ${#texts[@]} -gt 0 ]; then
    find "${texts[@]}" -type f -size +0 -print0
  else
    find_own_texts
  fi | sort -z
}

bytes=$(list_texts | xargs -0 -r cat -- | wc -c)
[ "$bytes" -ge 1000 ] || refuse "the texts hold $bytes bytes; give at least 1000, a book rather than a page"

step "building"
scripts/build.sh "${install[@]}" -DTRIREME_ISA=native
trireme=build/release/trireme

step "making tokens"
list_texts | cut_into_documents "$output/text"
"$trireme" data prepare -i "$output/text" -o "$output/tokens" --tokenizer byte --append-eod

step "training configs/quickstart.json"
"$trireme" pretrain --config configs/quickstart.json --set output_dir="$output/run" \
  --set data.data_path="$output/tokens"

step "evaluating"
"$trireme" eval "$output/run"

step "writing"
"$trireme" generate "$output/run" --prompt "This program is " --max-new-tokens 400 --temperature 0.7

step "drawing"
"$trireme" report "$output/run"

cat <<END

Done in $SECONDS s. What there is now:
  $output/run                   the run: metrics.jsonl, train.log, resolved_config.json, checkpoints/
  $output/run/report.html       curves of loss and throughput, for a browser
  $output/tokens.bin and .idx   the tokens
  configs/quickstart.json       what was trained; copy it, change it, and start it with:
    $trireme pretrain --config COPY --set data.data_path=$output/tokens --set output_dir=runs/mine
Serve it, with a page for a browser at http://127.0.0.1:8000 (docs/guide/serving.md):
    $trireme serve --model $output/run
END
