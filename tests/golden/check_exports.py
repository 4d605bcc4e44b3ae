#!/usr/bin/env python3
"""What leaves this project is what came in, by HuggingFace's transformers: for every folder of tests/golden/hf, and any given,
import, export (also in several files) and conversion to GGUF, and the logits of all of them.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors gguf accelerate
    venv/bin/python tests/golden/check_exports.py build/release/trireme [MODEL...]
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

# Of the families that are written as GGUF, those whose files transformers reads for any sizes (of qwen3 it passes over the
# width of heads).
READ_BACK = ("llama", "mistral", "qwen2")
NO_GGUF = ("are not written as GGUF", "does not write as GGUF", "have no name for")


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].float()


def load(folder, **options):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **options)


def run(trireme, *arguments):
    return subprocess.run([trireme, *map(str, arguments)], capture_output=True, text=True, check=False)


def check(trireme, source, folder):
    """Lines of what is wrong."""
    problems = []
    ours, out, shards, gguf = (folder / name for name in ("ours", "out", "shards", "x.gguf"))
    steps = [("checkpoint", "import", source, ours), ("checkpoint", "export", ours, out),
             ("checkpoint", "export", source, shards, "--max-shard-size", "50KB"),
             ("checkpoint", "diff", source, ours), ("checkpoint", "diff", out, shards)]
    for step in steps:
        ran = run(trireme, *step)
        if ran.returncode != 0:
            return [f"{step}: {ran.stdout[-400:]}{ran.stderr[-400:]}"]
    reference = load(source)
    length = min(90, reference.config.get_text_config().max_position_embeddings)
    ids = torch.randint(0, reference.get_input_embeddings().weight.shape[0], (length,),
                        generator=torch.Generator().manual_seed(1)).tolist()
    expected = logits(reference, ids)
    weights = {"out": out, "shards": shards}
    for name, path in weights.items():
        if not torch.equal(logits(load(path), ids), expected):
            problems.append(f"{name}: transformers computes other logits from the export")
    original, exported = load_file(source / "model.safetensors"), load_file(out / "model.safetensors")
    for name, tensor in exported.items():
        if name not in original or not torch.equal(tensor, original[name]):
            problems.append(f"{name}: other bytes than came in")
    ran = run(trireme, "checkpoint", "convert", ours, gguf, "--dtype", "fp32")
    if ran.returncode == 0:
        if reference.config.model_type in READ_BACK:
            difference = (logits(load(folder, gguf_file=gguf.name), ids) - expected).abs().max() / expected.abs().max()
            if difference > 1e-5:
                problems.append(f"gguf: transformers computes other logits, by {difference:.2g}")
        ran = run(trireme, "checkpoint", "diff", source, gguf)
        if ran.returncode != 0:
            problems.append(f"gguf: {ran.stdout[-400:]}{ran.stderr[-400:]}")
    elif not any(reason in ran.stderr for reason in NO_GGUF):
        problems.append(f"convert to GGUF: {ran.stderr[-400:]}")
    return problems


def main():
    trireme = str(Path(sys.argv[1]).resolve())
    cases = [Path(name) for name in sys.argv[2:]]
    cases += sorted(path.parent for path in (Path(__file__).parent / "hf").glob("*/config.json"))
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            problems = check(trireme, case, Path(folder))
        failed += bool(problems)
        print(f"{case}: {'equal' if not problems else ' | '.join(problems)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
