#!/usr/bin/env bash
# Compares the logits of trireme with those of HuggingFace transformers for any model.
#
#   scripts/verify_model.sh MODEL [--against DIR] [--tensor-parallel N] [--length N] [--tolerance X]
#
# MODEL: what trireme opens (a HuggingFace directory, a .gguf, a run); DIR: the HuggingFace directory that transformers
# opens (default: MODEL). Both compute in float32. Needs python3 (or $PYTHON) with torch, transformers and safetensors,
# and trireme in PATH or $TRIREME.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
trireme=${TRIREME:-trireme}
if ! command -v "$trireme" > /dev/null; then
  echo "verify_model.sh: no trireme in PATH; set TRIREME to the binary" >&2
  exit 2
fi
if ! "$python" -c "import torch, transformers, safetensors" 2> /dev/null; then
  echo "verify_model.sh: needs $python with torch, transformers and safetensors:" >&2
  echo "  python3 -m venv venv && venv/bin/pip install torch transformers safetensors && PYTHON=venv/bin/python $0 ..." >&2
  exit 2
fi
TRIREME=$trireme exec "$python" -B "$here/lib/verify_model.py" "$@"
