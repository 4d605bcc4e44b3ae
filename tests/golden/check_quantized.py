#!/usr/bin/env python3
"""What `trireme checkpoint quantize` writes, by other programs: GGUF files by the package `gguf`, fp8 and GPTQ unpacked in numpy
by their published layouts, and the logits that transformers computes from what it can open without a GPU.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors gguf accelerate
    venv/bin/python tests/golden/check_quantized.py build/release/trireme [MODEL...]
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, LlamaConfig, LlamaForCausalLM

GGUF_KINDS = ("q8_0", "q4_0", "q4_k", "q6_k")


def run(trireme, *arguments):
    ran = subprocess.run([trireme, *map(str, arguments)], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"{arguments}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def logits(folder, **options):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **options).eval()
    model = model if "gguf_file" in options else model.float()
    ids = torch.randint(0, model.get_input_embeddings().weight.shape[0], (1, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(ids).logits[0].float()


def tensors_of(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def unpacked_fp8(tensors, name):
    weight, scale = tensors[name + ".weight"].float().numpy(), tensors[name + ".weight_scale_inv"].numpy()
    return weight * np.kron(scale, np.ones((128, 128), np.float32))[:weight.shape[0], :weight.shape[1]]


def unpacked_gptq(tensors, name, bits):
    """w[o, i] = scales[g, o] (q[i, o] - z[g, o]), g = g_idx[i]; the file holds z - 1; the lowest bits of a word come first."""
    places = np.arange(0, 32, bits)
    words = tensors[name + ".qweight"].numpy().view(np.uint32)
    q = (words[:, None, :] >> places[None, :, None] & (2 ** bits - 1)).reshape(-1, words.shape[1]).astype(np.int64)
    words = tensors[name + ".qzeros"].numpy().view(np.uint32)
    z = (words[:, :, None] >> places[None, None, :] & (2 ** bits - 1)).reshape(words.shape[0], -1).astype(np.int64) + 1
    g = tensors[name + ".g_idx"].numpy()
    return (tensors[name + ".scales"].float().numpy()[g] * (q - z[g]).astype(np.float32)).T


def check_directory(trireme, model, folder, kind):
    out, plain = folder / kind, folder / (kind + "-plain")
    run(trireme, "checkpoint", "quantize", model, out, "--quantization", kind)
    run(trireme, "checkpoint", "convert", out, plain, "--dtype", "fp32")
    tensors, ours, problems, count = tensors_of(out), load_file(plain / "model.safetensors"), [], 0
    end = ".weight_scale_inv" if kind == "fp8" else ".qweight"
    for name in [name[:-len(end)] for name in tensors if name.endswith(end)]:
        count += 1
        found = unpacked_fp8(tensors, name) if kind == "fp8" else unpacked_gptq(tensors, name, int(kind[-1]))
        if not np.array_equal(found, ours[name + ".weight"].numpy()):
            problems.append(f"{name}: numpy unpacks other numbers")
    if kind == "fp8":
        config = json.loads((out / "config.json").read_text())["quantization_config"]
        by_transformers = logits(out, quantization_config=FineGrainedFP8Config(
            weight_block_size=config["weight_block_size"], modules_to_not_convert=config["modules_to_not_convert"], dequantize=True))
        difference = (by_transformers - logits(plain)).abs().max() / by_transformers.abs().max()
        if not difference < 1e-5:
            problems.append(f"transformers computes other logits, by {difference:.2g}")
    return problems, count


def check_gguf(trireme, model, folder, kind):
    out, plain = folder / (kind + ".gguf"), folder / (kind + "-plain.gguf")
    run(trireme, "checkpoint", "quantize", model, out, "--quantization", kind)
    run(trireme, "checkpoint", "convert", out, plain, "--dtype", "fp32")
    ours = {t.name: t for t in GGUFReader(plain).tensors}
    problems, count = [], 0
    for tensor in GGUFReader(out).tensors:
        count += tensor.tensor_type.name.lower() == kind
        found = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if not np.array_equal(found.reshape(-1), ours[tensor.name].data.view(np.float32).reshape(-1)):
            problems.append(f"{tensor.name}: the package gguf finds other numbers")
    run(trireme, "checkpoint", "convert", out, folder / (kind + "-hf"), "--to", "hf", "--dtype", "fp32")
    by_transformers = logits(folder, gguf_file=out.name)
    difference = (by_transformers - logits(folder / (kind + "-hf"))).abs().max() / by_transformers.abs().max()
    if not difference < 1e-5:
        problems.append(f"transformers computes other logits, by {difference:.2g}")
    return problems, count


def main():
    trireme = str(Path(sys.argv[1]).resolve())
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        models = [Path(name) for name in sys.argv[2:]]
        if not models:
            torch.manual_seed(5)
            models = [Path(scratch) / "model"]
            LlamaForCausalLM(LlamaConfig(vocab_size=61, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2)).to(torch.bfloat16).save_pretrained(models[0])
        for model in models:
            for kind in ("fp8", "gptq4", "gptq8", *GGUF_KINDS):
                with tempfile.TemporaryDirectory() as folder:
                    check = check_gguf if kind in GGUF_KINDS else check_directory
                    problems, count = check(trireme, model, Path(folder), kind)
                if count == 0:
                    problems.append("nothing is quantized")
                failed += bool(problems)
                print(f"{model.name} {kind}: {count} tensors {'equal' if not problems else ' | '.join(problems)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
