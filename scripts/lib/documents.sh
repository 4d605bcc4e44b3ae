# Sourced by quickstart.sh.
# shellcheck shell=bash

# Where nobody gives a text: this machine's licences and the repository's documents, of which some are pictures and settings
# of other programs. Names, each ended by a NUL.
find_own_texts() {
  find /usr/share/common-licenses -type f -size +0 -print0
  find README.md docs -name '*.md' -type f -print0
}

# Cuts the texts whose names come in on standard input, each ended by a NUL, into documents in folder $1: what
# validation keeps apart are documents. A text of any size gives 7 to 20 of them (above 20 MB: of 1 MiB each), cut at
# line ends, and inside lines that are long for it at a space, or between two characters. Names begin with the number of
# the piece, so that the pieces held out, the last in order, are ends of several texts, and hold the number of the text:
# two texts may have one name.
cut_into_documents() {
  local folder=$1 file name size text=0
  mkdir -p "$folder"
  while IFS= read -r -d '' file; do
    text=$((text + 1))
    name=$(printf '%05d-%s' "$text" "$(basename "$file")")
    case "$name" in
      *.jsonl | *.json | *.gz | *.zst)
        cp "$file" "$folder/$name"
        continue
        ;;
    esac
    size=$(($(wc -c <"$file") / 20))
    size=$((size < 16 ? 16 : size > 1048576 ? 1048576 : size))
    LC_ALL=C BEGINNING="$folder/part-" ENDING="-$name.txt" awk -v size="$size" '
      function begin() {
        out = sprintf("%s%06d%s", ENVIRON["BEGINNING"], piece++, ENVIRON["ENDING"])
        written = 0
      }
      function put(text) {
        printf "%s", text >out
        written += length(text)
        if (written >= size) { close(out); begin() }
      }
      BEGIN { begin() }
      {
        line = $0 "\n"
        while (length(line) > 2 * size) {
          space = index(substr(line, size, size), " ")
          rest = size + (space ? space : 1)
          while (substr(line, rest, 1) ~ /[\200-\277]/) rest++  # inside a character of UTF-8
          put(substr(line, 1, rest - 1))
          line = substr(line, rest)
        }
        put(line)
      }' "$file"
  done
}
