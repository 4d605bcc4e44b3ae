#!/usr/bin/env python3
"""Logits of a model by trireme and by HuggingFace transformers, on the same ids (scripts/verify_model.sh)."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="what trireme opens")
    parser.add_argument("--against", help="the directory that transformers opens (default: MODEL)")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--length", type=int, default=64, help="tokens of the longest sequence")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of the largest logit")
    return parser.parse_args()


def sequences(vocabulary, length):
    """Of several lengths, seeded."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, vocabulary, (n,), generator=generator).tolist()
            for n in sorted({1, 7, max(1, length // 2), length})]


def fail(message):
    print(f"verify_model.sh: {message}", file=sys.stderr)
    sys.exit(2)


def longest(config):
    """Tokens: the positions, by the factor more where they are counted before the scaling."""
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    factor = 1.0
    if scaling.get("rope_type", scaling.get("type")) in ("linear", "dynamic"):
        factor = max(1.0, float(scaling.get("factor") or 1))
    return int(config.max_position_embeddings * factor)


def ours(args, ids):
    """Of one sequence: frequencies of rope_type dynamic follow the longest of a call."""
    with tempfile.TemporaryDirectory() as folder:
        tokens, output = Path(folder) / "tokens.jsonl", Path(folder) / "logits.safetensors"
        tokens.write_text(json.dumps(ids) + "\n")
        command = [os.environ["TRIREME"], "logits", args.model, "--tokens", tokens, "--output", output, "--dtype", "fp32"]
        if args.tensor_parallel > 1:
            command += ["--tensor-parallel", str(args.tensor_parallel), "--ranks", str(args.tensor_parallel)]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            sys.exit(2)  # it has said why
        return load_file(output)["logits"]


def main():
    args = arguments()
    directory = args.against or args.model
    if not (Path(directory) / "config.json").is_file():
        fail(f"{directory} is no directory that transformers opens (no config.json): give --against DIR, the "
             "HuggingFace directory of the same model")
    config = AutoConfig.from_pretrained(directory)
    text = getattr(config, "text_config", config)
    most = longest(text)
    if not 1 <= args.length <= most:
        fail(f"--length {args.length}: the model takes 1 to {most} tokens")
    batch = sequences(text.vocab_size, args.length)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    worst = 0.0
    for ids in batch:
        mine = ours(args, ids)
        with torch.no_grad():
            theirs = model(torch.tensor([ids])).logits[0].float()
        largest = theirs.abs().max().item()
        difference = (mine - theirs).abs().max().item() / largest
        worst = max(worst, difference)
        print(f"{len(ids):6} tokens: largest logit {largest:.4g}, largest difference {difference:.3g} of it")
    verdict = "equal" if worst <= args.tolerance else "DIFFERENT"
    print(f"{args.model}: {verdict} (tolerance {args.tolerance:g})")
    sys.exit(0 if worst <= args.tolerance else 1)


if __name__ == "__main__":
    main()
