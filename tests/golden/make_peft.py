#!/usr/bin/env python3
"""A tiny Llama of HuggingFace with adapters of PEFT, and the logits of both: tests/golden/peft. With magnitudes (DoRA)
the gradients too, in float64. The same of a tiny GPT-2, without gradients: tests/golden/peft/gpt2.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch transformers peft safetensors
    /tmp/venv/bin/python tests/golden/make_peft.py

    make_peft.py --variants                        only adapters whose layers differ, of the base that is there
    make_peft.py --beyond                          only those that change more than linear layers
    make_peft.py --check BASE ADAPTER [EXPECTED]   what PEFT makes of adapters written by trireme: the loss of each line
                                                   of EXPECTED (JSON: {"ids": [...], "loss": ...}), compared
"""
import json
import shutil
import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

OUT = Path(__file__).resolve().parent / "peft"


def make():
    shutil.rmtree(OUT, ignore_errors=True)
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=61, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, rope_theta=10000.0,
                         tie_word_embeddings=False, initializer_range=0.2)
    base = LlamaForCausalLM(config).eval()
    base.save_pretrained(OUT / "base")
    ids = torch.randint(0, config.vocab_size, (1, 23))
    plain = base(ids).logits[0].detach()
    model = get_peft_model(base, LoraConfig(
        r=4, lora_alpha=6, use_rslora=True, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
        task_type="CAUSAL_LM")).eval()
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter) * 0.3
    adapted = model(ids).logits[0].detach()
    assert (adapted - plain).abs().max() > 1
    save_adapter(model, OUT / "adapter")
    (OUT / "base/generation_config.json").unlink(missing_ok=True)
    save_file({"input_ids": ids[0].to(torch.int32), "plain": plain, "adapted": adapted}, OUT / "expected.safetensors")
    make_dora(config, ids)
    make_gpt2(ids)
    make_variants()
    make_beyond()


TARGETS = ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]
VARIANTS = {
    "ranks": {"target_modules": TARGETS, "use_rslora": True,
              "rank_pattern": {"q_proj": 6, r"layers\.1\.mlp\.down_proj": 2}},
    "factors": {"target_modules": TARGETS, "rank_pattern": {"v_proj": 7},
                "alpha_pattern": {r"^model\.layers\.0\.self_attn\.[vo]_proj": 3, "gate_proj": 20}},
    "dora_ranks": {"target_modules": TARGETS, "use_dora": True, "rank_pattern": {"q_proj": 6},
                   "alpha_pattern": {"down_proj": 11}},
    "excluded": {"target_modules": "all-linear", "exclude_modules": ["o_proj", "model.layers.0.mlp.up_proj"]},
    "excluded_expression": {"target_modules": TARGETS, "exclude_modules": r".*\.0\..*(q|gate)_proj"},
    "some_layers": {"target_modules": ["q_proj", "mlp.up_proj", "model.layers.0.mlp.down_proj"], "layers_to_transform": [1],
                    "layers_pattern": "layers"},
    "one_layer": {"target_modules": ["k_proj", "up_proj"], "layers_to_transform": 0},
    "gpt2/ranks": {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "rank_pattern": {"c_attn": 6}},
}


# Of the base too: whole modules, biases, the embedding and the head.
BEYOND = {
    "saved": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "norm", "layers.1.mlp.up_proj"]},
    "beyond": {"target_modules": ["embed_tokens", "lm_head", "o_proj"], "rank_pattern": {"lm_head": 2},
               "alpha_pattern": {"o_proj": 3}},
    "dora_head": {"target_modules": ["lm_head", "q_proj"], "use_dora": True},
    "gpt2/biased": {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "bias": "all"},
    "gpt2/own_biased": {"target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "lora_only"},
}


def make_variants(variants=None, seed=20, file="expected_variants.safetensors"):
    """Adapters whose layers differ: ranks and factors of their own, layers left out, more than linear layers."""
    ids = load_file(OUT / "expected.safetensors")["input_ids"].long()[None]
    expected = {}
    for number, (name, options) in enumerate((variants or VARIANTS).items()):
        torch.manual_seed(seed + number)
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        base = AutoModelForCausalLM.from_pretrained(folder.parent / "base").eval()
        plain = base(ids).logits[0].detach()
        model = get_peft_model(base, LoraConfig(**{"r": 4, "lora_alpha": 6, "task_type": "CAUSAL_LM"} | options)).eval()
        for parameter_name, parameter in model.named_parameters():
            values = torch.randn_like(parameter) * 0.3
            if "magnitude" in parameter_name:
                values = parameter.detach() * (1 + values)
            if "lora_" in parameter_name:
                parameter.data = values
            elif parameter.requires_grad:
                parameter.data = parameter.detach() + values
        save_adapter(model, folder)
        again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder.parent / "base"), folder).eval()
        expected[name] = again(ids).logits[0].detach()
        assert (expected[name] - plain).abs().max() > 0.5, name
    save_file(expected, OUT / file)


def make_beyond():
    make_variants(BEYOND, 40, "expected_beyond.safetensors")


def make_gpt2(ids):
    """Adapters of (in, out) matrices, of which one is query, key and value."""
    torch.manual_seed(8)
    folder = OUT / "gpt2"
    shutil.rmtree(folder, ignore_errors=True)
    base = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=16, n_layer=2, n_head=4, n_positions=32, n_inner=20, bos_token_id=0,
                                      eos_token_id=0, initializer_range=0.2)).eval()
    base.save_pretrained(folder / "base")
    (folder / "base/generation_config.json").unlink(missing_ok=True)
    expected = {"plain": base(ids).logits[0].detach()}
    for name, dora in (("adapter", False), ("dora", True)):
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder / "base"), LoraConfig(
            r=4, lora_alpha=6, use_dora=dora, fan_in_fan_out=True, target_modules=["c_attn", "c_proj"],
            task_type="CAUSAL_LM")).eval()
        for parameter_name, parameter in model.named_parameters():
            values = torch.randn_like(parameter) * 0.3
            if "magnitude" in parameter_name:
                values = parameter.detach() * (1 + values)
            if "lora_" in parameter_name:
                parameter.data = values
        expected[name] = model(ids).logits[0].detach()
        assert (expected[name] - expected["plain"]).abs().max() > 1
        save_adapter(model, folder / name)
    save_file(expected, folder / "expected.safetensors")


def save_adapter(model, folder):
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    file = folder / "adapter_config.json"
    written = json.loads(file.read_text())
    written["base_model_name_or_path"] = "base"
    for key in ("target_modules", "exclude_modules", "modules_to_save"):
        if isinstance(written[key], list):
            written[key] = sorted(written[key])
    file.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")


def make_dora(config, ids):
    """Adapters with magnitudes, of some of the weights that lie in one matrix; the loss is of the next tokens."""
    base = AutoModelForCausalLM.from_pretrained(OUT / "base", dtype=torch.float64).eval()
    plain = base(ids).logits[0].detach()
    model = get_peft_model(base, LoraConfig(
        r=4, lora_alpha=6, use_dora=True, target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM")).eval()
    begun = model(ids).logits[0].detach()
    assert (begun - plain).abs().max() < 1e-5  # magnitudes begin as the rows' lengths
    for name, parameter in model.named_parameters():
        values = torch.randn_like(parameter) * 0.3
        if "magnitude" in name:
            values = parameter.detach() * (1 + values)
        if "lora_" in name:
            parameter.data = values.float().double()
    output = model(ids, labels=ids)
    output.loss.backward()
    expected = {"logits": output.logits[0].detach(), "loss": output.loss.detach()}
    prefix = "base_model.model."
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            ours = name.removeprefix(prefix).replace(".default", "").replace("magnitude_vector.weight", "magnitude_vector")
            expected[ours] = parameter.grad.contiguous()
    save_file(expected, OUT / "expected_dora.safetensors")
    save_adapter(model.float(), OUT / "dora")


def check(base, adapter, expected=None):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, adapter).eval()
    print(f"PEFT loads {len(load_file(Path(adapter) / 'adapter_model.safetensors'))} tensors of {adapter}")
    worst = 0.0
    for line in Path(expected).read_text().splitlines() if expected else []:
        item = json.loads(line)
        ids = torch.tensor([item["ids"]])
        loss = model(ids, labels=ids).loss.item()
        worst = max(worst, abs(loss - item["loss"]) / abs(loss))
    if expected:
        print(f"largest relative difference of a loss: {worst:.2e}")
        sys.exit(worst > 1e-4)


if __name__ == "__main__":
    modes = {"--check": check, "--variants": make_variants, "--beyond": make_beyond}
    modes.get("".join(sys.argv[1:2]), make)(*sys.argv[2:])
