#!/usr/bin/env python3
"""What leaves this project is what came in, by HuggingFace's transformers: for every folder of tests/golden/hf, and any given,
import, export (also in several files) and conversion to GGUF, and the logits of all of them.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors gguf accelerate
    venv/bin/python tests/golden/check_exports.py build/release/trireme [MODEL...]
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

# Of the families that are written as GGUF, those whose files transformers reads for any sizes (of qwen3 it passes over the
# width of heads), in the forms that their models have: without scaled positions, with windows in gemma3 only.
READ_BACK = ("llama", "mistral", "qwen2", "qwen2_moe", "qwen3_moe", "gemma3_text")
NO_GGUF = ("cannot be written as GGUF", "does not write as GGUF", "have no name for")


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].float()


# Families that transformers has no class for, and that of the same architecture.
CLASSES = {"kimi_k2": "deepseek_v3"}


def load(folder, **options):
    path = Path(folder) / "config.json"
    keys = json.loads(path.read_text()) if path.exists() else {}
    if keys.get("model_type") in CLASSES:
        options["config"] = AutoConfig.for_model(CLASSES[keys.pop("model_type")], **keys)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                experts_implementation="eager", **options)


def run(trireme, *arguments):
    return subprocess.run([trireme, *map(str, arguments)], capture_output=True, text=True, check=False)


def unknown_words(path):
    """What llama.cpp's own package knows no name for."""
    reader = gguf.GGUFReader(path)
    arch = reader.get_field("general.architecture").contents()
    number = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = [gguf.TENSOR_NAMES[kind] for kind in gguf.MODEL_TENSORS[number]] + ["rope_freqs"]
    words = {word.replace("{arch}", arch) for group in vars(gguf.Keys).values() if isinstance(group, type)
             for word in vars(group).values() if isinstance(word, str)}
    problems = [f"key {key}" for key in reader.fields if not key.startswith("GGUF.") and key not in words]
    for tensor in reader.tensors:
        base = tensor.name.rsplit(".", 1)[0]
        if re.sub(r"^blk\.\d+\.", "blk.{bid}.", base) not in names:
            problems.append(f"tensor {tensor.name}")
    return problems


def model_of(config, folder):
    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).save_pretrained(folder)
    return folder


# Forms that llama.cpp has, of families whose golden models have others. What transformers passes over in a GGUF file (the widths of
# Qwen's experts, the scale of Gemma's softmax) is as it assumes.
SIZES = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": []}
MADE = {"mistral": {"model_type": "mistral", **SIZES, "head_dim": 8, "sliding_window": None},
        "qwen2_moe": {"model_type": "qwen2_moe", **SIZES, **EXPERTS, "moe_intermediate_size": 1408, "norm_topk_prob": False},
        "qwen3_moe": {"model_type": "qwen3_moe", **SIZES, **EXPERTS, "moe_intermediate_size": 768, "head_dim": 8, "norm_topk_prob": True},
        "gemma3": {"model_type": "gemma3_text", **SIZES, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 7}}


def check(trireme, source, folder):
    """Lines of what is wrong."""
    problems = []
    ours, out, shards, gguf_path = (folder / name for name in ("ours", "out", "shards", "x.gguf"))
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
    ran = run(trireme, "checkpoint", "convert", ours, gguf_path, "--dtype", "fp32")
    if ran.returncode == 0:
        problems += [f"gguf: unknown {word}" for word in unknown_words(gguf_path)]
        said = json.loads((out / "config.json").read_text())
        if reference.config.model_type in READ_BACK and not said.get("rope_scaling") and (
                reference.config.model_type == "gemma3_text" or not said.get("sliding_window")):
            difference = (logits(load(folder, gguf_file=gguf_path.name), ids) - expected).abs().max() / expected.abs().max()
            if difference > 1e-5:
                problems.append(f"gguf: transformers computes other logits, by {difference:.2g}")
        ran = run(trireme, "checkpoint", "diff", source, gguf_path, "--tolerance", "1e-6")
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
    with tempfile.TemporaryDirectory() as made:
        cases += [model_of(config, Path(made) / name) for name, config in MADE.items()]
        for case in cases:
            with tempfile.TemporaryDirectory() as folder:
                problems = check(trireme, case, Path(folder))
            failed += bool(problems)
            print(f"{case}: {'equal' if not problems else ' | '.join(problems)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
