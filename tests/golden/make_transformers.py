#!/usr/bin/env python3
"""Tiny random models of HuggingFace's transformers, and what it computes with them (tests/golden/README.md).

    tests/golden/make_transformers.py [CASE...]           writes tests/golden/hf/CASE
    tests/golden/make_transformers.py --check [CASE...]   compares the files with what is computed now

Needs torch, transformers and safetensors. A new case is an entry of CASES.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import zlib

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = pathlib.Path(__file__).resolve().parent / "hf"
# Documents of a batch of two rows of 41 tokens. The longest is longer than the windows and than the original
# contexts below, the shorter ones end in the first window or behind it, and one has no target.
LENGTHS = (41, 23, 1, 17)

LLAMA = dict(vocab_size=99, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
# Latent attention, whose sizes all differ.
LATENT = dict(vocab_size=99, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=4, max_position_embeddings=64, kv_lora_rank=12, qk_nope_head_dim=6,
              qk_rope_head_dim=4, v_head_dim=5, moe_intermediate_size=12, first_k_dense_replace=1)
WIDE = dict(LLAMA, num_attention_heads=2, num_key_value_heads=1, head_dim=16)  # more frequencies


def rope(rope_type, theta=100.0, **keys):
    return dict(rope_parameters=dict(rope_type=rope_type, rope_theta=theta, **keys))


# model_type and the keys of config.json; "older": written as transformers before version 5 did, with
# rope_theta beside rope_scaling; "written_as": another model_type in the file.
CASES = {
    "gpt2": ("gpt2", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "llama": ("llama", LLAMA),
    "llama_linear": ("llama", dict(WIDE, **rope("linear", factor=4.0))),
    "llama_dynamic": ("llama", dict(WIDE, **rope("dynamic", factor=2.0), max_position_embeddings=24, older=True)),
    "llama3": ("llama", dict(WIDE, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                          original_max_position_embeddings=32), tie_word_embeddings=True)),
    "llama_yarn": ("llama", dict(WIDE, **rope("yarn", factor=4.0, original_max_position_embeddings=16), older=True)),
    "llama_yarn_given": ("llama", dict(WIDE, **rope("yarn", factor=4.0, original_max_position_embeddings=16,
                                                    attention_factor=1.3, beta_fast=2.0, beta_slow=0.5,
                                                    truncate=False))),
    "mistral": ("mistral", dict(LLAMA, sliding_window=7)),
    "qwen2": ("qwen2", dict(LLAMA, tie_word_embeddings=True)),
    "qwen2_window": ("qwen2", dict(LLAMA, num_hidden_layers=3, use_sliding_window=True, sliding_window=7,
                                   max_window_layers=1)),
    "qwen3": ("qwen3", dict(LLAMA, head_dim=12)),
    "mixtral": ("mixtral", dict(LLAMA, intermediate_size=36, num_local_experts=4, num_experts_per_tok=2)),
    "qwen2_moe": ("qwen2_moe", dict(LLAMA, num_hidden_layers=3, num_experts=6, num_experts_per_tok=2,
                                    moe_intermediate_size=12, shared_expert_intermediate_size=28,
                                    mlp_only_layers=[0])),
    "qwen3_moe": ("qwen3_moe", dict(LLAMA, num_hidden_layers=3, head_dim=12, num_experts=6, num_experts_per_tok=3,
                                    moe_intermediate_size=20, decoder_sparse_step=2, norm_topk_prob=True)),
    "deepseek_v2": ("deepseek_v2", dict(LATENT, q_lora_rank=None, n_routed_experts=5, num_experts_per_tok=2,
                                        n_shared_experts=2)),
    "deepseek_v2_groups": ("deepseek_v2", dict(LATENT, q_lora_rank=10, n_routed_experts=8, num_experts_per_tok=3,
                                               n_shared_experts=1, topk_method="group_limited_greedy", n_group=4,
                                               topk_group=2, routed_scaling_factor=1.5, attention_bias=True)),
    # The two scales of yarn differ, so that the softmax's and the table's both act.
    "deepseek_v3": ("deepseek_v3", dict(
        LATENT, q_lora_rank=10, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=4,
        topk_group=2, routed_scaling_factor=2.5, num_mtp_layers=0,
        **rope("yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=0.8))),
    "gemma3": ("gemma3_text", dict(
        LLAMA, num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=20, sliding_window=7,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=500.0, factor=4.0),
            sliding_attention=dict(rope_type="default", rope_theta=50.0)))),
    # transformers has no class for it: its directories bring the code, which is DeepSeek-V3's.
    "kimi_k2": ("deepseek_v3", dict(
        LATENT, q_lora_rank=10, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1, n_group=1,
        topk_group=1, routed_scaling_factor=2.827, num_mtp_layers=0, written_as="kimi_k2", older=True,
        **rope("yarn", theta=50000.0, factor=4.0, original_max_position_embeddings=16, beta_fast=1.0, beta_slow=1.0,
               mscale=1.0, mscale_all_dim=1.0))),
    "kimi_k2_plain": ("deepseek_v3", dict(
        LATENT, num_hidden_layers=3, q_lora_rank=None, n_routed_experts=7, num_experts_per_tok=4, n_shared_experts=2,
        n_group=1, topk_group=1, routed_scaling_factor=0.7, norm_topk_prob=False, attention_bias=True,
        tie_word_embeddings=True, num_mtp_layers=0, written_as="kimi_k2", **rope("default"))),
    "smollm3": ("smollm3", dict(LLAMA, num_hidden_layers=4, no_rope_layer_interval=2)),
    # The windows are in the layers without positions, of which there is one more in the list than layers.
    "smollm3_window": ("smollm3", dict(
        WIDE, num_hidden_layers=3, no_rope_layers=[0, 1, 0, 1], use_sliding_window=True, sliding_window=7,
        attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        **rope("yarn", factor=4.0, original_max_position_embeddings=16))),
    "granite": ("granite", dict(LLAMA, embedding_multiplier=12.0, attention_multiplier=0.0625, residual_multiplier=0.22,
                                logits_scaling=8.0, tie_word_embeddings=True)),
    "granite_biases": ("granite", dict(
        WIDE, num_hidden_layers=3, attention_bias=True, mlp_bias=True, embedding_multiplier=0.7, attention_multiplier=0.4,
        residual_multiplier=1.3, logits_scaling=0.3, **rope("linear", factor=4.0))),
    "olmo2": ("olmo2", dict(LLAMA, num_hidden_layers=3)),
    "olmo2_biases": ("olmo2", dict(LLAMA, num_key_value_heads=4, attention_bias=True, tie_word_embeddings=True,
                                   **rope("yarn", factor=4.0, original_max_position_embeddings=16))),
    "olmo3": ("olmo3", dict(LLAMA, num_hidden_layers=4, sliding_window=7)),
    "olmo3_yarn": ("olmo3", dict(
        WIDE, num_hidden_layers=3, sliding_window=7, attention_bias=True,
        layer_types=["full_attention", "sliding_attention", "full_attention"], rope_parameters=dict(
            full_attention=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16),
            sliding_attention=dict(rope_type="default", rope_theta=50.0)))),
    # Sequences are longer than the original context of the first, and shorter than that of the second.
    "phi3": ("phi3", dict(
        WIDE, num_hidden_layers=3, max_position_embeddings=64, original_max_position_embeddings=16, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75,
                             short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.0, 1.5, 2.0, 3.0, 5.0, 8.0]))),
    "phi3_short": ("phi3", dict(
        LLAMA, max_position_embeddings=128, original_max_position_embeddings=64, sliding_window=7,
        rope_parameters=dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.2, 1.5, 2.0],
                             long_factor=[1.0, 2.0, 4.0, 8.0]))),
    "ministral3": ("ministral3", dict(WIDE, num_hidden_layers=3, rope_parameters=dict(
        type="yarn", rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=8, beta_fast=32.0,
        beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))),
    "ministral3_window": ("ministral3", dict(
        LLAMA, head_dim=12, sliding_window=7, tie_word_embeddings=True, rope_parameters=dict(
            type="yarn", rope_type="yarn", rope_theta=50.0, factor=2.0, original_max_position_embeddings=16, mscale=1.0,
            mscale_all_dim=0.7, llama_4_scaling_beta=0.1))),
    "ernie4_5": ("ernie4_5", dict(LLAMA, head_dim=12, use_bias=True)),
    "ernie4_5_plain": ("ernie4_5", dict(WIDE, num_hidden_layers=3, tie_word_embeddings=True, **rope("linear", factor=4.0))),
    "exaone4": ("exaone4", dict(LLAMA, num_hidden_layers=4, head_dim=12, sliding_window=7, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention", "full_attention"])),
    "exaone4_full": ("exaone4", dict(WIDE, sliding_window=None, layer_types=["full_attention"] * 2, **rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32))),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", dict(LLAMA, head_dim=12, attention_bias=True, rope_parameters=dict(
        rope_type="dynamic", rope_theta=100.0, factor=1.0, alpha=50.0))),
    "hunyuan_v1_dense_plain": ("hunyuan_v1_dense", dict(WIDE, num_hidden_layers=3, tie_word_embeddings=True, **rope("default"))),
    "seed_oss": ("seed_oss", dict(LLAMA, head_dim=12, attention_dropout=0.0, residual_dropout=0.0)),
    "seed_oss_biases": ("seed_oss", dict(WIDE, num_hidden_layers=3, attention_bias=False, attention_out_bias=True, mlp_bias=True,
                                         attention_dropout=0.0, residual_dropout=0.0, **rope("linear", factor=4.0))),
    "glm": ("glm", dict(LLAMA, head_dim=12)),
    "glm_quarter": ("glm", dict(WIDE, num_hidden_layers=3, attention_bias=False, tie_word_embeddings=True,
                                **rope("default", partial_rotary_factor=0.25))),
    "glm4": ("glm4", dict(LLAMA, num_hidden_layers=3, head_dim=8)),
    "glm4_yarn": ("glm4", dict(WIDE, attention_bias=False, **rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, partial_rotary_factor=0.75))),
    "glm4_moe": ("glm4_moe", dict(
        LLAMA, num_hidden_layers=3, head_dim=12, attention_bias=True, use_qk_norm=True, moe_intermediate_size=10,
        n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=2, routed_scaling_factor=2.5, num_mtp_layers=0)),
    "glm4_moe_groups": ("glm4_moe", dict(
        WIDE, moe_intermediate_size=14, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=4,
        topk_group=2, first_k_dense_replace=0, norm_topk_prob=False, num_mtp_layers=0,
        **rope("linear", factor=4.0, partial_rotary_factor=0.25))),
    "minimax_m2": ("minimax_m2", dict(LLAMA, intermediate_size=20, head_dim=12, num_local_experts=6, num_experts_per_tok=2,
                                      **rope("default", partial_rotary_factor=0.5))),
    # The limits are low enough that operands of some experts are beyond them.
    "gpt_oss": ("gpt_oss", dict(
        LLAMA, intermediate_size=12, num_hidden_layers=3, head_dim=12, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=7, swiglu_limit=0.8, rope_parameters=dict(
            rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0,
            beta_slow=1.0, truncate=False))),
    "gpt_oss_full": ("gpt_oss", dict(
        WIDE, intermediate_size=10, num_local_experts=6, num_experts_per_tok=3, attention_bias=False,
        layer_types=["full_attention"] * 2, swiglu_alpha=1.1, swiglu_limit=1.5, tie_word_embeddings=True,
        **rope("default"))),
    "granitemoe": ("granitemoe", dict(
        LLAMA, intermediate_size=12, num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=12.0,
        attention_multiplier=0.0625, residual_multiplier=0.22, logits_scaling=8.0, tie_word_embeddings=True)),
    "granitemoe_biases": ("granitemoe", dict(
        WIDE, intermediate_size=10, num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=3, attention_bias=True,
        embedding_multiplier=0.7, attention_multiplier=0.4, residual_multiplier=1.3, logits_scaling=0.3,
        **rope("linear", factor=4.0))),
    # Scores and logits that the soft caps change.
    "gemma2": ("gemma2", dict(LLAMA, num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=20, sliding_window=7,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma2_caps": ("gemma2", dict(
        WIDE, sliding_window=7, layer_types=["full_attention", "sliding_attention"], attention_bias=True,
        query_pre_attn_scalar=16, attn_logit_softcapping=None, final_logit_softcapping=10.0,
        **rope("linear", factor=4.0))),
    # Chunks and floor_scale shorter than the sequences.
    "llama4": ("llama4_text", dict(
        LLAMA, intermediate_size=12, intermediate_size_mlp=44, num_hidden_layers=3, head_dim=12, num_local_experts=5,
        num_experts_per_tok=2, interleave_moe_layer_step=2, no_rope_layer_interval=3, attention_chunk_size=8, floor_scale=6,
        attn_scale=0.3, **rope("default"))),
    "llama4_lists": ("llama4_text", dict(
        WIDE, intermediate_size=10, intermediate_size_mlp=28, num_hidden_layers=3, num_local_experts=4, num_experts_per_tok=1,
        moe_layers=[0, 2], no_rope_layers=[1, 0, 1], layer_types=["full_attention", "chunked_attention", "chunked_attention"],
        attention_chunk_size=12, use_qk_norm=False, attention_bias=True, attn_temperature_tuning=False,
        tie_word_embeddings=True, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                         original_max_position_embeddings=32))),
    "minimax_m2_whole": ("minimax_m2", dict(WIDE, num_hidden_layers=3, intermediate_size=12, num_local_experts=5,
                                            num_experts_per_tok=4, tie_word_embeddings=True, **rope("linear", factor=4.0))),
}


def make_model(name):
    """The model with every parameter drawn anew: norms near 1, biases near 0, matrices that keep magnitudes."""
    model_type, keys = CASES[name]
    keys = {key: value for key, value in keys.items() if key not in ("older", "written_as")}
    keys = dict(dict(bos_token_id=None, eos_token_id=None, pad_token_id=None), **keys)
    config = AutoConfig.for_model(model_type, **keys)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager",
                                             experts_implementation="eager").eval()
    random = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    with torch.no_grad():
        for parameter_name, parameter in sorted(model.named_parameters()):
            draw = torch.randn(parameter.shape, generator=random)
            if parameter.dim() > 1:
                parameter.copy_(draw * 1.2 / parameter.shape[-1] ** 0.5)
            elif parameter_name.endswith("bias"):
                parameter.copy_(draw * 0.2)
            else:
                parameter.copy_(parameter + draw * 0.2)  # norms start at their neutral value
        for buffer_name, buffer in sorted(model.named_buffers()):
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=random) * 0.1)
    return model, random


def saved(model):
    """The tensors of the model by the names of its checkpoints, and config.json."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        folder = pathlib.Path(folder)
        return load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())


def expected(model, random):
    """Logits, and loss and gradients of the next tokens, of sequences that are padded to the longest."""
    vocabulary = model.config.vocab_size
    ids = [torch.randint(vocabulary, (n,), generator=random) for n in LENGTHS]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
    labels = torch.where(mask == 1, padded, -100)
    out = model(input_ids=padded, attention_mask=mask, labels=labels, use_cache=False)
    out.loss.backward()
    tensors = {
        "input_ids": torch.cat(ids).int(),
        "targets": torch.cat([torch.cat([i[1:], torch.tensor([-100])]) for i in ids]).int(),
        "cu_seqlens": torch.tensor([0, *LENGTHS]).cumsum(0).int(),
        "logits": out.logits.detach()[mask == 1].float(),
        "loss": out.loss.detach().reshape(1).float(),
    }
    with torch.no_grad():  # the gradients under the names of the checkpoint
        for parameter in model.parameters():
            parameter.copy_(parameter.grad if parameter.grad is not None else torch.zeros_like(parameter))
    for name, gradient in saved(model)[0].items():
        if name.endswith("e_score_correction_bias"):
            continue  # it has none
        tensors["grad." + name] = gradient
    return tensors


def written_config(name, config):
    config["model_type"] = CASES[name][1].get("written_as", config["model_type"])
    if CASES[name][1].get("older"):
        scaling = config.pop("rope_parameters")
        config["rope_theta"] = scaling.pop("rope_theta")
        config["rope_scaling"] = dict(scaling, type=scaling["rope_type"])
    return json.dumps(config, indent=1, sort_keys=True) + "\n"


def make(name):
    model, random = make_model(name)
    weights, config = saved(model)
    return {"model.safetensors": {k: v.contiguous().clone() for k, v in weights.items()},
            "expected.safetensors": {k: v.contiguous().clone() for k, v in expected(model, random).items()},
            "config.json": written_config(name, config)}


def differences(name, files):
    for file, now in files.items():
        path = FOLDER / name / file
        if file == "config.json":
            if {**json.loads(path.read_text()), "transformers_version": 0} != {
                    **json.loads(now), "transformers_version": 0}:
                yield f"{path}: other keys"
            continue
        then = load_file(path)
        if then.keys() != now.keys():
            yield f"{path}: other tensors: {sorted(then.keys() ^ now.keys())}"
            continue
        for key, value in now.items():
            largest = max(1e-6, then[key].abs().max().item())
            if (value - then[key]).abs().max().item() > 1e-5 * largest:
                yield f"{path}: {key} differs"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    problems = []
    for name in args.cases:
        files = make(name)
        if args.check:
            problems += differences(name, files)
            continue
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            if file == "config.json":
                (folder / file).write_text(content)
            else:
                save_file(content, folder / file, metadata={"format": "pt"})
        print(f"{name}: {sum(f.stat().st_size for f in folder.iterdir()) // 1024} KiB, "
              f"loss {files['expected.safetensors']['loss'].item():.4f}")
    print("\n".join(problems) or ("the files are what is computed" if args.check else "written"))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
