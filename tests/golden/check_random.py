#!/usr/bin/env python3
"""Random small models of every family, seeded: their logits are HuggingFace's transformers', within 3e-5 of the largest.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python tests/golden/check_random.py build/release/trireme [--count N] [--seed S] [FAMILY...]

Prints for each family the models compared and the largest difference. A family without a row here is an error. Ends with 77
where torch or transformers are not installed.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import make_transformers
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LIMIT = 3e-5
LENGTH = 40


def divisor(r, n, most=8):
    return r.choice([d for d in range(1, min(n, most) + 1) if n % d == 0])


def rope(r, width, *, types=("default", "linear", "dynamic", "llama3", "yarn", "longrope"), **more):
    """Rotary parameters for `width` rotated elements, short of the sequences where a type depends on lengths."""
    kind = r.choice([t for t in types if width > 2 or t != "dynamic"])
    keys = dict(rope_type=kind, rope_theta=r.choice([20.0, 100.0, 10000.0]), **more)
    if kind not in ("default", "longrope"):
        keys["factor"] = r.choice([1.5, 4.0])
    if kind in ("llama3", "yarn", "longrope"):
        keys["original_max_position_embeddings"] = r.choice([16, 32, 50])
    if kind == "llama3":
        keys.update(low_freq_factor=1.0, high_freq_factor=4.0)
    if kind == "longrope":
        keys["short_factor"] = [1 + r.random() for _ in range(width // 2)]
        keys["long_factor"] = [1 + 8 * r.random() for _ in range(width // 2)]
    return keys


def sizes(r, *, head_dim=True, even=True):
    heads = r.choice([1, 2, 3, 4, 6])
    # Models narrower than 16 amplify rounding beyond the limit.
    width = 2 * r.randint(1 if head_dim else 8 // heads + 1, 9)
    keys = dict(vocab_size=r.randint(50, 130), num_attention_heads=heads, num_key_value_heads=divisor(r, heads),
                hidden_size=heads * 2 * r.randint(8 // heads + 1, 10), intermediate_size=r.randint(5, 60), num_hidden_layers=r.randint(1, 4),
                max_position_embeddings=r.choice([48, 64, 128]), rms_norm_eps=r.choice([1e-6, 1e-5]),
                tie_word_embeddings=r.random() < 0.3)
    if head_dim:
        keys["head_dim"] = width
    else:
        keys["hidden_size"] = heads * width
    return keys, width


def windows(r, layers):
    return [r.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]


def llama(r):
    keys, width = sizes(r)
    return "llama", dict(keys, attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, rope_parameters=rope(r, width))


def gpt2(r):
    heads = r.choice([1, 2, 3, 4])
    return "gpt2", dict(vocab_size=r.randint(50, 130), n_head=heads, n_embd=heads * r.randint(2, 12), n_layer=r.randint(1, 4),
                        n_inner=r.choice([None, r.randint(5, 60)]), n_positions=r.choice([48, 64]))


def mistral(r):
    keys, width = sizes(r)
    return "mistral", dict(keys, sliding_window=r.choice([None, 1, 7, 30]), rope_parameters=rope(r, width))


def qwen(family, head_dim):
    def make(r):
        keys, width = sizes(r, head_dim=head_dim)
        keys.update(use_sliding_window=r.random() < 0.5, sliding_window=7, max_window_layers=r.randint(0, 4),
                    rope_parameters=rope(r, width))
        return family, keys
    return make


def softmax_experts(r, *, shared=False):
    experts = r.randint(2, 7)
    keys = dict(num_experts=experts, num_experts_per_tok=r.randint(1, experts), moe_intermediate_size=r.randint(5, 30),
                norm_topk_prob=r.random() < 0.5, decoder_sparse_step=r.randint(1, 2), mlp_only_layers=r.choice([[], [0]]))
    if shared:
        keys["shared_expert_intermediate_size"] = r.randint(5, 30)
    return keys


def mixtral(r):
    keys, width = sizes(r)
    experts = r.randint(2, 7)
    return "mixtral", dict(keys, num_local_experts=experts, num_experts_per_tok=r.randint(1, experts),
                           sliding_window=r.choice([None, 7]), rope_parameters=rope(r, width))


def qwen2_moe(r):
    keys, width = sizes(r, head_dim=False)
    return "qwen2_moe", dict(keys, **softmax_experts(r, shared=True), qkv_bias=r.random() < 0.5, rope_parameters=rope(r, width))


def qwen3_moe(r):
    keys, width = sizes(r)
    return "qwen3_moe", dict(keys, **softmax_experts(r), attention_bias=r.random() < 0.3, rope_parameters=rope(r, width))


def latent(r, groups):
    keys, _ = sizes(r, head_dim=False)
    nope, rotated = 2 * r.randint(1, 4), 2 * r.randint(1, 4)
    size = r.randint(2, 4)
    experts = groups * size
    kept = r.randint(1, groups)
    keys.update(num_key_value_heads=keys["num_attention_heads"], kv_lora_rank=2 * r.randint(2, 7),
                q_lora_rank=r.choice([None, r.randint(3, 14)]), qk_nope_head_dim=nope, qk_rope_head_dim=rotated,
                v_head_dim=r.randint(1, nope + rotated), moe_intermediate_size=r.randint(5, 30), n_routed_experts=experts,
                num_experts_per_tok=r.randint(1, kept * size), n_shared_experts=r.randint(1, 2), n_group=groups,
                topk_group=kept, routed_scaling_factor=r.choice([0.7, 1.0, 2.5]), first_k_dense_replace=r.randint(0, 2),
                attention_bias=r.random() < 0.3, rope_parameters=rope(r, rotated, types=("default", "linear", "yarn")))
    return keys


def deepseek_v2(r):
    groups = r.choice([1, 2, 4])
    keys = latent(r, groups)
    return "deepseek_v2", dict(keys, topk_method="greedy" if groups == 1 else "group_limited_greedy", norm_topk_prob=False)


def deepseek_v3(r):
    keys = latent(r, r.choice([1, 2, 4]))
    if keys["n_routed_experts"] // keys["n_group"] < 2:
        keys["n_group"] = keys["topk_group"] = 1
    return "deepseek_v3", dict(keys, num_mtp_layers=0, norm_topk_prob=r.random() < 0.7, rope_interleave=r.random() < 0.7)


def kimi_k2(r):
    keys = latent(r, 1)
    return "deepseek_v3", dict(keys, num_mtp_layers=0, norm_topk_prob=True, num_experts_per_tok=max(2, keys["num_experts_per_tok"]),
                               written_as="kimi_k2")


def gemma3_text(r):
    keys, _ = sizes(r)
    full = r.choice([dict(rope_type="default", rope_theta=500.0), dict(rope_type="linear", rope_theta=500.0, factor=4.0)])
    return "gemma3_text", dict(keys, final_logit_softcapping=r.choice([None, 1.0]),
                               query_pre_attn_scalar=r.choice([4, 20]), sliding_window=r.choice([3, 7]),
                               layer_types=windows(r, keys["num_hidden_layers"]), attention_bias=r.random() < 0.3,
                               rope_parameters=dict(full_attention=full, sliding_attention=dict(rope_type="default", rope_theta=50.0)))


def gemma2(r):
    keys, width = sizes(r)
    keys["num_attention_heads"] = r.choice([n for n in (1, 2, 4) if keys["hidden_size"] % n == 0])
    keys["num_key_value_heads"] = 1
    return "gemma2", dict(keys, query_pre_attn_scalar=r.choice([4, 20]), sliding_window=r.choice([3, 7]),
                          layer_types=windows(r, keys["num_hidden_layers"]), attention_bias=r.random() < 0.3,
                          attn_logit_softcapping=r.choice([None, 0.5, 50.0]), final_logit_softcapping=r.choice([None, 1.0, 30.0]),
                          rope_parameters=rope(r, width))


def smollm3(r):
    keys, width = sizes(r)
    layers = keys["num_hidden_layers"]
    return "smollm3", dict(keys, no_rope_layers=[r.randint(0, 1) for _ in range(layers)], attention_bias=r.random() < 0.3,
                           mlp_bias=r.random() < 0.3, rope_parameters=rope(r, width))


def granite(r):
    keys, width = sizes(r)
    return "granite", dict(keys, embedding_multiplier=r.choice([0.7, 1.0, 12.0]), attention_multiplier=r.choice([0.1, 0.5, 1.0]),
                           residual_multiplier=r.choice([0.22, 1.0, 1.3]), logits_scaling=r.choice([0.3, 1.0, 8.0]),
                           attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, rope_parameters=rope(r, width))


def olmo2(r):
    keys, width = sizes(r, head_dim=False)
    return "olmo2", dict(keys, attention_bias=r.random() < 0.3, rope_parameters=rope(r, width))


def olmo3(r):
    keys, width = sizes(r, head_dim=False)
    return "olmo3", dict(keys, attention_bias=r.random() < 0.3, sliding_window=r.choice([3, 7]),
                         layer_types=windows(r, keys["num_hidden_layers"]),
                         rope_parameters=dict(full_attention=rope(r, width, types=("default", "linear", "llama3", "yarn")),
                                              sliding_attention=dict(rope_type="default", rope_theta=r.choice([20.0, 500000.0]))))


def seed_oss(r):
    keys, width = sizes(r)
    return "seed_oss", dict(keys, attention_bias=r.random() < 0.5, attention_out_bias=r.random() < 0.5, mlp_bias=r.random() < 0.5,
                            rope_parameters=rope(r, width))


def partial(r, width):
    rotated = 2 * r.randint(1, width // 2)
    return rotated, (rotated + 0.5) / width if rotated < width else 1.0


def glm(family):
    def make(r):
        keys, width = sizes(r)
        rotated, part = partial(r, width)
        return family, dict(keys, attention_bias=r.random() < 0.5, rope_parameters=rope(r, rotated, partial_rotary_factor=part))
    return make


def glm4_moe(r):
    keys, width = sizes(r)
    rotated, part = partial(r, width)
    groups, size = r.choice([1, 2, 4]), r.randint(2, 4)
    kept = r.randint(1, groups)
    return "glm4_moe", dict(keys, attention_bias=r.random() < 0.5, use_qk_norm=r.random() < 0.5, n_routed_experts=groups * size,
                            num_experts_per_tok=r.randint(1, kept * size), n_group=groups, topk_group=kept, num_mtp_layers=0,
                            n_shared_experts=r.randint(1, 2), moe_intermediate_size=r.randint(5, 30),
                            first_k_dense_replace=r.randint(0, 2), routed_scaling_factor=r.choice([1.0, 2.5]),
                            norm_topk_prob=r.random() < 0.7, rope_parameters=rope(r, rotated, partial_rotary_factor=part))


def minimax_m2(r):
    keys, width = sizes(r)
    rotated, part = partial(r, width)
    experts = r.randint(2, 7)
    return "minimax_m2", dict(keys, num_local_experts=experts, num_experts_per_tok=r.randint(1, experts),
                              rope_parameters=rope(r, rotated, partial_rotary_factor=part))


def phi3(r):
    keys, width = sizes(r, head_dim=False)
    rotated, part = partial(r, width)
    return "phi3", dict(keys, sliding_window=r.choice([None, 7]), original_max_position_embeddings=32,
                        rope_parameters=rope(r, rotated, types=("default", "longrope"), partial_rotary_factor=part,
                                             original_max_position_embeddings=32))


def ministral3(r):
    keys, width = sizes(r)
    scaling = rope(r, width, types=("yarn",), llama_4_scaling_beta=r.choice([0.1, 0.5]))
    scaling["original_max_position_embeddings"] = r.choice([8, 16])
    return "ministral3", dict(keys, sliding_window=r.choice([None, 7]), rope_parameters=scaling)


def ernie4_5(r):
    keys, width = sizes(r)
    return "ernie4_5", dict(keys, use_bias=r.random() < 0.5, rope_parameters=rope(r, width))


def exaone4(r):
    keys, width = sizes(r)
    return "exaone4", dict(keys, sliding_window=7, layer_types=windows(r, keys["num_hidden_layers"]), rope_parameters=rope(r, width))


def hunyuan_v1_dense(r):
    keys, width = sizes(r)
    keys["head_dim"] = width = max(width, 4)
    scaling = r.choice([rope(r, width), dict(rope_type="dynamic", rope_theta=100.0, factor=1.0, alpha=r.choice([2.0, 50.0]))])
    return "hunyuan_v1_dense", dict(keys, attention_bias=r.random() < 0.5, rope_parameters=scaling)


def gpt_oss(r):
    keys, width = sizes(r)
    experts = r.randint(2, 7)
    return "gpt_oss", dict(keys, num_local_experts=experts, num_experts_per_tok=r.randint(1, experts), sliding_window=7,
                           layer_types=windows(r, keys["num_hidden_layers"]), attention_bias=r.random() < 0.5,
                           swiglu_limit=r.choice([0.5, 1.0, 7.0]), swiglu_alpha=r.choice([1.0, 1.702]),
                           rope_parameters=rope(r, width))


def granitemoe(r):
    _, keys = granite(r)
    keys.pop("mlp_bias")
    experts = r.randint(2, 7)
    return "granitemoe", dict(keys, num_local_experts=experts, num_experts_per_tok=r.randint(1, experts))


def llama4_text(r):
    keys, width = sizes(r)
    layers, experts = keys["num_hidden_layers"], r.randint(2, 7)
    return "llama4_text", dict(
        keys, intermediate_size_mlp=r.choice([12, 28]), num_local_experts=experts, num_experts_per_tok=r.randint(1, experts),
        interleave_moe_layer_step=r.randint(1, layers), no_rope_layer_interval=r.randint(1, 4),
        attention_chunk_size=r.choice([3, 7, 16, 64, None]), use_qk_norm=r.random() < 0.7, attention_bias=r.random() < 0.5,
        attn_temperature_tuning=r.random() < 0.7, floor_scale=r.randint(1, 9), attn_scale=r.choice([0.1, 0.5]),
        rope_parameters=rope(r, width, types=("default", "llama3", "linear")))


FAMILIES = {"gpt2": gpt2, "llama": llama, "mistral": mistral, "qwen2": qwen("qwen2", False), "qwen3": qwen("qwen3", True),
            "mixtral": mixtral, "qwen2_moe": qwen2_moe, "qwen3_moe": qwen3_moe, "deepseek_v2": deepseek_v2,
            "deepseek_v3": deepseek_v3, "gemma3_text": gemma3_text, "kimi_k2": kimi_k2, "smollm3": smollm3, "granite": granite,
            "olmo2": olmo2, "olmo3": olmo3, "seed_oss": seed_oss, "glm": glm("glm"), "glm4": glm("glm4"), "glm4_moe": glm4_moe,
            "minimax_m2": minimax_m2, "phi3": phi3, "ministral3": ministral3,
            "ernie4_5": ernie4_5, "exaone4": exaone4, "hunyuan_v1_dense": hunyuan_v1_dense, "gpt_oss": gpt_oss, "granitemoe": granitemoe, "gemma2": gemma2,
            "llama4_text": llama4_text}
WITHOUT_CLASS = {"deepseek"}  # in transformers


def compare(trireme, name, folder):
    """Largest difference of the logits, relative to the largest one; or the error's text."""
    model, _ = make_transformers.make_model(name)
    tensors, config = make_transformers.saved(model)
    save_file({key: value.contiguous().clone() for key, value in tensors.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    (folder / "config.json").write_text(make_transformers.written_config(name, config))
    ids = [(7 * i * i + 3 * i) % model.config.vocab_size for i in range(LENGTH)]
    (folder / "ids.jsonl").write_text(json.dumps(ids) + "\n")
    ran = subprocess.run([trireme, "logits", str(folder), "--tokens", str(folder / "ids.jsonl"), "--output",
                          str(folder / "logits.st"), "--dtype", "fp32"], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        return ran.stderr.strip()
    with torch.no_grad():
        want = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    return ((load_file(folder / "logits.st")["logits"] - want).abs().max() / want.abs().max()).item()


def check(trireme, family, count, seed):
    r = random.Random(f"{family} {seed}")
    largest, problems = 0.0, []
    for index in range(count):
        name = f"{family}.{index}"
        model_type, keys = FAMILIES[family](r)
        make_transformers.CASES[name] = (model_type, keys)
        with tempfile.TemporaryDirectory() as folder:
            got = compare(trireme, name, Path(folder))
        if isinstance(got, str) or not got <= LIMIT:
            problems.append(f"  {name}: {got}: {keys}")
        else:
            largest = max(largest, got)
    print(f"{family}: {count - len(problems)} of {count} equal, largest difference {largest:.1e}", *problems, sep="\n", flush=True)
    return len(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    known = subprocess.run([args.trireme, "config", "models"], capture_output=True, text=True, check=True).stdout
    missing = [line.split("`")[1] for line in known.splitlines() if line.startswith("| `") and "model_type" not in line]
    missing = [family for family in missing if family not in FAMILIES and family not in WITHOUT_CLASS]
    if missing:
        sys.exit(f"families without a row in this script: {', '.join(missing)}")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    sys.exit(bool(sum(check(args.trireme, family, args.count, args.seed) for family in args.families or FAMILIES)))


if __name__ == "__main__":
    main()
