#!/usr/bin/env python3
"""The golden references are complete and small; where PyTorch is installed they are computed again."""
import json
import struct
import subprocess
import sys

from source import ROOT, finish

MODELS = ("gpt2", "llama", "llama_variant", "mixtral")
TENSOR_FILES = ("weights.safetensors", "dense.safetensors", "packed.safetensors", "steps.safetensors")
MAX_BYTES = 2_600_000
MAX_CASE_BYTES = 400_000  # of a model of transformers


def check_tensors(path):
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    entries = [entry for name, entry in json.loads(raw[8:8 + size]).items() if name != "__metadata__"]
    end = max(entry["data_offsets"][1] for entry in entries)
    return [] if 8 + size + end == len(raw) else [f"{path}: {len(raw)} bytes, the header says {8 + size + end}"]


def recompute(script):
    """Problems when some Python here has PyTorch and disagrees; none where PyTorch is absent."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            ran = subprocess.run([python, "-B", script, "--check"], capture_output=True, text=True, check=False)
            return [] if ran.returncode == 0 else [ran.stderr.strip()]
    print("PyTorch is not installed: the numbers were not computed again")
    return []


def main():
    folder = ROOT / "tests/golden"
    problems = []
    for model in MODELS:
        for name in TENSOR_FILES:
            problems += check_tensors(folder / model / name)
        if json.loads((folder / model / "manifest.json").read_text())["format_version"] != 1:
            problems.append(f"{model}: unknown format version")
    cases = sorted(path for path in (folder / "hf").iterdir() if path.is_dir())
    for case in cases:
        for name in ("model.safetensors", "expected.safetensors"):
            problems += check_tensors(case / name)
        size = sum(path.stat().st_size for path in case.iterdir())
        if size > MAX_CASE_BYTES:
            problems.append(f"{case}: {size} bytes, at most {MAX_CASE_BYTES}")
    total = sum(path.stat().st_size for path in folder.rglob("*.safetensors") if folder / "hf" not in path.parents)
    if total > MAX_BYTES:
        problems.append(f"golden data is {total} bytes, at most {MAX_BYTES}")
    problems += recompute(folder / "make_golden.py")
    finish("golden files", problems, len(MODELS) + len(cases))


if __name__ == "__main__":
    main()
