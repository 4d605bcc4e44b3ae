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


def ours(args, batch):
    with tempfile.TemporaryDirectory() as folder:
        tokens, output = Path(folder) / "tokens.jsonl", Path(folder) / "logits.safetensors"
        tokens.write_text("".join(json.dumps(ids) + "\n" for ids in batch))
        command = [os.environ["TRIREME"], "logits", args.model, "--tokens", tokens, "--output", output, "--dtype", "fp32"]
        if args.tensor_parallel > 1:
            command += ["--tensor-parallel", str(args.tensor_parallel), "--ranks", str(args.tensor_parallel)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        file = load_file(output)
    ends = file["cu_seqlens"].tolist()
    return [file["logits"][a:b] for a, b in zip(ends, ends[1:])]


def main():
    args = arguments()
    directory = args.against or args.model
    config = AutoConfig.from_pretrained(directory)
    text = getattr(config, "text_config", config)
    batch = sequences(text.vocab_size, args.length)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    worst = 0.0
    for ids, mine in zip(batch, ours(args, batch)):
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
