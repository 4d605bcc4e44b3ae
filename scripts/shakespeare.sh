#!/usr/bin/env bash
# Trains on a text whose first 90 % are for training and last 10 % for validation, split by bytes as nanoGPT
# splits tiny Shakespeare, and prints the validation loss in nats per character.
#
#   scripts/shakespeare.sh TEXT [small|large]     (default: small)
#
# small: configs/shakespeare-small.json, nanoGPT's CPU setting; a minute on two cores.
# large: configs/shakespeare.json, 8 million tokens; about half an hour.
set -euo pipefail
[ $# -ge 1 ] && [ -r "$1" ] || {
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
text=$(realpath "$1")
case "${2:-small}" in
  small) config=shakespeare-small ;;
  large) config=shakespeare ;;
  *) echo "shakespeare.sh: \"$2\" is neither small nor large" >&2 && exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
trireme=build/release/trireme
[ -x "$trireme" ] || scripts/build.sh

size=$(stat -c %s "$text")
split=$((size * 9 / 10))
mkdir -p data
head -c "$split" "$text" >data/shakespeare-train.txt
tail -c +$((split + 1)) "$text" >data/shakespeare-valid.txt
for part in train valid; do
  "$trireme" data prepare -i "data/shakespeare-$part.txt" -o "data/shakespeare-$part" --tokenizer byte --overwrite
done
"$trireme" pretrain --config "configs/$config.json" --resume auto
"$trireme" eval "runs/$config"
