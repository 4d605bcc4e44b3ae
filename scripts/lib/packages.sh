# shellcheck shell=bash
# What the project needs from the distribution. Sourced by the other scripts.
# One line a package: Debian/Ubuntu name (NAME,NAME: the first that the release has; NAME,-: optional, left out
# where the release lacks it) | Fedora name ("-": none) | for | why
package_list() {
  cat <<'END'
g++|gcc-c++|build|compiler, C++20
cmake|cmake|build|build system, 3.25 or newer
ninja-build|ninja-build|build|runs the build
ccache|ccache|build|second builds in seconds
pkg-config|pkgconf-pkg-config|build|finds libraries
libdnnl-dev|onednn-devel|build|oneDNN: matrix products on the CPU
libopenmpi-dev|openmpi-devel|build|MPI: ranks that talk to each other
openmpi-bin|openmpi|build|mpirun
nlohmann-json3-dev|json-devel|build|JSON
libcli11-dev|cli11-devel|build|command line
libspdlog-dev|spdlog-devel|build|logging
libfmt-dev|fmt-devel|build|text formatting
libsentencepiece-dev|sentencepiece-devel|build|tokenizer models
libpcre2-dev|pcre2-devel|build|regular expressions of tokenizers
libutf8proc-dev|utf8proc-devel|build|Unicode of tokenizers
libxxhash-dev|xxhash-devel|build|checksums
libzstd-dev|libzstd-devel|build|.jsonl.zst input
zlib1g-dev|zlib-devel|build|.jsonl.gz input
libboost1.81-dev,libboost-dev|boost-devel|build|HTTP: Beast and Asio 1.81 or newer, headers only
libssl-dev|openssl-devel|build|TLS, and digests of API keys
prometheus-cpp-dev|prometheus-cpp-devel|build|metrics of a server
libjs-dygraphs|-|build|charts of the HTML report
libgtest-dev|gtest-devel|test|unit tests
libbenchmark-dev|google-benchmark-devel|test|micro-benchmarks
python3|python3|test|house checks and end-to-end tests
python3-venv|python3|test|OpenAI's client, in an environment of its own
iproute2|iproute|test|training over two network namespaces
clang-format-14,-|clang-tools-extra|test|source format check
clang-tidy-16,-|clang-tools-extra|test|static analysis, in test.sh --rest
clang-16,clang-19|clang|fuzz|compiler with libFuzzer
libclang-rt-16-dev,libclang-rt-19-dev|compiler-rt|fuzz|libFuzzer and the sanitizers of clang
libomp-16-dev,libomp-19-dev|libomp-devel|fuzz|OpenMP of clang
END
}

# trireme_packages: the list with one Debian name a line, or none.
trireme_packages() {
  local candidates debian rest
  candidates=" $(installable | tr '\n' ' ')"
  package_list | while IFS='|' read -r debian rest; do
    [[ $debian != *,* ]] || debian=$(chosen "$candidates" "$debian")
    [ "$debian" = - ] || printf '%s|%s\n' "$debian" "$rest"
  done
}

# installable: the names of the list that apt has a candidate for; a name that other packages only refer to has none.
# Prints nothing without apt's lists: apt then knows only what is installed.
installable() {
  compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null || return 0
  # shellcheck disable=SC2046  # a list of words
  LC_ALL=C apt-cache policy $(package_list | cut -d'|' -f1 | tr ',' ' ') 2>/dev/null |
    awk '/^[^ ].*:$/ { name = substr($0, 1, length($0) - 1) } /^  Candidate: [^(]/ { print name }' || true
}

# chosen CANDIDATES NAME,NAME...: the first that apt can install; without its lists the first that is installed, or
# else the first.
chosen() {
  local name
  for name in ${2//,/ }; do
    [[ "$1" != *" $name "* ]] || { echo "$name" && return; }
  done
  for name in ${2//,/ }; do
    [ "$name" = - ] || ! is_installed "$name" - || { echo "$name" && return; }
  done
  if [[ $2 == *,- && "$1" == *[!\ ]* ]]; then echo -; else echo "${2%%,*}"; fi
}

# is_installed DEBIAN_NAME FEDORA_NAME: by the package manager that is here; true where there is neither,
# because the configure step then says more precisely what it misses.
is_installed() {
  if command -v dpkg-query >/dev/null; then
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
  elif command -v rpm >/dev/null; then
    [ "$2" = - ] || rpm -q --whatprovides "$2" >/dev/null 2>&1
  fi
}

# missing_packages build|test|fuzz: the lines of trireme_packages that are not installed ("test" and "fuzz" include
# "build").
missing_packages() {
  local line debian fedora for
  trireme_packages | while IFS='|' read -r debian fedora for line; do
    [ "$for" = build ] || [ "$for" = "$1" ] || continue
    is_installed "$debian" "$fedora" || printf '%s|%s|%s\n' "$debian" "$fedora" "$line"
  done
}
