# shellcheck shell=bash
# OpenAI's own client, in a Python environment of its own that tests/e2e/test_openai.py finds. Sourced by
# install_deps.sh. It is no package of the distribution: where it cannot be had, that test alone is skipped.
readonly kOpenaiVersion=3.54.0
readonly kOpenaiEnvironment=build/openai-client

# has_openai_client: in this version.
has_openai_client() {
  [ "$("$kOpenaiEnvironment/bin/python" -c \
    'from importlib import metadata; print(metadata.version("openai"))' 2>/dev/null)" = $kOpenaiVersion ]
}

# install_openai_client yes|no: unless it is there; no: do not install it. Never fails, and says in one line where it
# is missing.
install_openai_client() {
  local why="--no-install was given" log
  has_openai_client && return
  if [ "$1" = yes ]; then
    echo "Installing OpenAI's client $kOpenaiVersion for Python in $kOpenaiEnvironment"
    rm -rf "$kOpenaiEnvironment"
    # Without a network this has to end soon.
    log=$(python3 -m venv "$kOpenaiEnvironment" 2>&1 && "$kOpenaiEnvironment/bin/python" -m pip install --quiet \
      --disable-pip-version-check --no-input --only-binary=:all: --retries 1 --timeout 15 \
      "openai==$kOpenaiVersion" 2>&1) && has_openai_client && return
    why=$(tail -n 1 <<<"$log")
    rm -rf "$kOpenaiEnvironment"
  fi
  echo "trireme: OpenAI's client for Python is not installed (e2e/openai will be skipped): ${why:-unknown}" >&2
}
