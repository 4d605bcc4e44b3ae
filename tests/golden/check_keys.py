#!/usr/bin/env python3
"""Keys of config.json by HuggingFace's transformers: each changed model gives transformers' logits or is refused by name.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python tests/golden/check_keys.py build/release/trireme

Ends with 77 where torch or transformers are not installed.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

IDS = list(range(3, 43))
DENSE = dict(vocab_size=99, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=64, bos_token_id=None, eos_token_id=None,
             pad_token_id=None)
LATENT = dict({key: value for key, value in DENSE.items() if key != "head_dim"}, num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4,
              v_head_dim=5, moe_intermediate_size=12, first_k_dense_replace=1, n_routed_experts=8,
              num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2, num_mtp_layers=0)
GEMMA = dict(DENSE, num_hidden_layers=4, query_pre_attn_scalar=8, sliding_window=7,
             layer_types=["sliding_attention", "full_attention"] * 2)
OLMO = {key: value for key, value in DENSE.items() if key != "head_dim"}
EXPERTS = dict(DENSE, num_local_experts=6, num_experts_per_tok=2)
OTHER = ("no_rope_layers", [1, 0]), ("use_qk_norm", True), ("query_pre_attn_scalar", 144), ("attention_scale", 0.5), \
    ("norm_type", "layer_norm"), ("attention_chunk_size", 16), ("scale_emb", 12), ("logit_scale", 0.5), \
    ("layer_types", ["sliding_attention", "full_attention"]), ("swiglu_limit", 7.0), ("tomorrows_key", 1)

# family, its sizes, the changed keys, and the expected result: "equal" or "refused"
CASES = [(family, sizes, {"is_causal": False}, "refused")
         for family, sizes in (("llama", DENSE), ("mistral", DENSE), ("qwen2", DENSE), ("qwen3", DENSE),
                               ("gemma3_text", GEMMA), ("deepseek_v3", LATENT), ("smollm3", DENSE), ("granite", DENSE),
                               ("olmo2", OLMO), ("seed_oss", DENSE), ("glm", DENSE), ("glm4", DENSE), ("minimax_m2", EXPERTS))]
CASES += [("llama", DENSE, {key: value}, "refused") for key, value in OTHER]
CASES += [
    ("llama", DENSE, {"is_causal": True, "use_qk_norm": False, "unheard_of": None}, "equal"),
    ("llama", DENSE, {"bos_token_id": -1, "eos_token_id": 99}, "equal"),
    ("llama", DENSE, {"attention_dropout": None}, "equal"),
    ("llama", DENSE, {"architectures": ["SmolLM3ForCausalLM"]}, "refused"),
    ("deepseek_v3", LATENT, {}, "equal"),
    ("deepseek_v3", LATENT, {"rope_interleave": None}, "equal"),
    ("deepseek_v3", LATENT, {"norm_topk_prob": None}, "equal"),
    ("gemma3_text", GEMMA, {"sliding_window_pattern": 2, "_sliding_window_pattern": 6, "layer_types": None}, "equal"),
    ("gemma3_text", GEMMA, {"rope_parameters": None, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "equal"),
    ("gemma3_text", GEMMA, {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 4.0}}, "refused"),
    ("gemma3_text", GEMMA, {"rope_parameters": None, "rope_scaling": {"type": "linear", "rope_type": "linear",
                                                                      "factor": 4.0}}, "equal"),
    ("smollm3", DENSE, {"no_rope_layers": None, "no_rope_layer_interval": 2}, "equal"),
    ("smollm3", DENSE, {"no_rope_layers": [0, 1, 0]}, "equal"),
    ("smollm3", DENSE, {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 7, "layer_types": None}, "equal"),
    ("smollm3", DENSE, {"no_rope_layers": [0]}, "refused"),
    ("granite", DENSE, {}, "equal"),
    ("granite", DENSE, {"embedding_multiplier": 12, "attention_multiplier": 0.1, "residual_multiplier": 0.22}, "equal"),
    ("granite", DENSE, {"logits_scaling": 16.0}, "equal"),
    ("granite", DENSE, {"position_embedding_type": "nope"}, "refused"),
    ("olmo2", OLMO, {}, "equal"),
    ("olmo2", OLMO, {"use_qk_norm": False}, "refused"),
    ("olmo3", OLMO, {"sliding_window": 7}, "equal"),
    ("olmo3", OLMO, {"sliding_window": 7, "layer_types": None, "rope_parameters": None, "rope_theta": 100.0}, "equal"),
    ("olmo3", OLMO, {"sliding_window": 7, "sliding_window_pattern": 2}, "refused"),
    ("phi3", OLMO, {"sliding_window": 7}, "equal"),
    ("phi3", OLMO, {"original_max_position_embeddings": 32, "rope_parameters": None, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0, 1.2, 1.5, 2.0], "long_factor": [1.0, 2.0, 4.0, 8.0]}}, "equal"),
    ("phi3", OLMO, {"rope_parameters": {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": [1.0],
                                        "long_factor": [1.0, 2.0, 4.0, 8.0]}}, "refused"),
    ("seed_oss", DENSE, {"attention_out_bias": False}, "equal"),
    ("glm", DENSE, {}, "equal"),
    ("glm4", DENSE, {}, "equal"),
    ("minimax_m2", EXPERTS, {}, "equal"),
    ("minimax_m2", EXPERTS, {"rotary_dim": 4, "rope_parameters": None, "rope_theta": 10000.0}, "equal"),
    ("minimax_m2", EXPERTS, {"use_routing_bias": False}, "refused"),
]
UNTIED = [("llama", DENSE), ("gemma3_text", GEMMA), ("qwen2", DENSE)]


def make(family, sizes, folder, tied=False):
    torch.manual_seed(7)
    config = AutoConfig.for_model(family, **dict(sizes, tie_word_embeddings=tied))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter + torch.randn(parameter.shape) * 0.2)
    model.save_pretrained(folder)


def change(folder, keys):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(keys)
    path.write_text(json.dumps({key: value for key, value in config.items()
                                if value is not None or key not in ("rope_parameters", "layer_types")}))


def theirs(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor([IDS]), use_cache=False).logits[0].float()


def ours(trireme, folder):
    """Logits, or the message of the refusal."""
    (folder / "ids.jsonl").write_text(json.dumps(IDS) + "\n")
    ran = subprocess.run([trireme, "logits", str(folder), "--tokens", str(folder / "ids.jsonl"), "--output",
                          str(folder / "logits.st"), "--dtype", "fp32"], capture_output=True, text=True, check=False)
    return load_file(folder / "logits.st")["logits"] if ran.returncode == 0 else ran.stderr


def outcome(trireme, folder, keys):
    got = ours(trireme, folder)
    if isinstance(got, str):
        named = any(word in got for word in keys)
        return "refused" if named else f"refused without the key's name: {got.strip()}"
    expected = theirs(folder)
    difference = ((got - expected).abs().max() / expected.abs().max()).item()
    return "equal" if difference < 1e-4 else f"other logits, by {difference:.2g}"


def main():
    trireme = str(Path(sys.argv[1]).resolve())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = 0
    for family, sizes, keys, wanted in CASES:
        with tempfile.TemporaryDirectory() as name:
            make(family, sizes, name)
            change(Path(name), keys)
            found = outcome(trireme, Path(name), keys)
        failed += found != wanted
        print(f"{family} {json.dumps(keys)}: {found}" + ("" if found == wanted else f", not {wanted}"))
    for family, sizes in UNTIED:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make(family, sizes, folder, tied=True)
            tensors = load_file(folder / "model.safetensors")
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].flip(0).contiguous()
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
            found = outcome(trireme, folder, {})
        failed += found != "equal"
        print(f"{family} tied with a head of its own: {found}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
