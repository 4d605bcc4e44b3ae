#!/usr/bin/env python3
"""Writes the reference numbers that the C++ model is checked against.

GPT-2, Llama and Mixtral are written out below in plain PyTorch, in float64, from their papers; gradients are
PyTorch's, the optimizer is torch.optim.AdamW. Nothing here is shared with the C++ sources, so an
agreement of the two is evidence for both. README.md in this folder describes the files.

    make_golden.py            writes tests/golden/<model>/
    make_golden.py --check    recomputes everything and compares with the files that are there

Needs PyTorch (Debian: python3-torch). The C++ tests read the files and do not need it.
"""
import argparse
import json
import math
import platform
import struct
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
FORMAT_VERSION = 1
IGNORED = -100  # target of a token that has no loss
BATCH, SEQUENCE, STEPS = 2, 17, 10
ADAMW = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
CLIP_NORM = 0.5  # below the gradient norm of most steps, so that clipping takes part

GPT2 = {
    "model_type": "gpt2", "vocab_size": 61, "n_positions": 20, "n_embd": 24, "n_layer": 2, "n_head": 4,
    "n_inner": 40, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True,
}
LLAMA = {
    "model_type": "llama", "vocab_size": 61, "max_position_embeddings": 20, "hidden_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
    "hidden_act": "silu", "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "attention_bias": False,
    "mlp_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False,
}
# Everything the plain Llama leaves at its default, changed.
LLAMA_VARIANT = dict(LLAMA, head_dim=8, num_key_value_heads=1, rope_theta=500.0, rms_norm_eps=1e-5,
                     attention_bias=True, mlp_bias=True, tie_word_embeddings=True)
MIXTRAL = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias")}
MIXTRAL.update(model_type="mixtral", intermediate_size=20, num_local_experts=5, num_experts_per_tok=2,
               router_aux_loss_coef=0.05, router_z_loss_coef=0.01)
MODELS = {"gpt2": (GPT2, 11), "llama": (LLAMA, 22), "llama_variant": (LLAMA_VARIANT, 33),
          "mixtral": (MIXTRAL, 44)}


# ---------------------------------------------------------------- the models

def attention(q, k, v, cu_seqlens):
    """Causal softmax attention inside each document; q (T, H, D), k and v (T, Hkv, D)."""
    heads, width = q.shape[1], q.shape[2]
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    v = v.repeat_interleave(heads // v.shape[1], dim=1)
    documents = []
    for begin, end in zip(cu_seqlens[:-1], cu_seqlens[1:]):
        scores = torch.einsum("ihd,jhd->hij", q[begin:end], k[begin:end]) / math.sqrt(width)
        future = torch.ones(end - begin, end - begin).triu(1).bool()
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        documents.append(torch.einsum("hij,jhd->ihd", weights, v[begin:end]))
    return torch.cat(documents)


def gpt2_logits(config, p, ids, positions, cu_seqlens):
    """p: parameters by name. Conv1D weights are (in, out): y = x W + b."""
    channels, heads = config["n_embd"], config["n_head"]

    def norm(x, name):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        scaled = (x - mean) / torch.sqrt(variance + config["layer_norm_epsilon"])
        return scaled * p[name + ".weight"] + p[name + ".bias"]

    def conv1d(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    def gelu_tanh(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    x = p["transformer.wte.weight"][ids] + p["transformer.wpe.weight"][positions]
    for layer in range(config["n_layer"]):
        h = f"transformer.h.{layer}."
        qkv = conv1d(norm(x, h + "ln_1"), h + "attn.c_attn")
        q, k, v = (part.reshape(-1, heads, channels // heads) for part in qkv.split(channels, -1))
        x = x + conv1d(attention(q, k, v, cu_seqlens).reshape(-1, channels), h + "attn.c_proj")
        x = x + conv1d(gelu_tanh(conv1d(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ p["transformer.wte.weight"].T, 0.0


def mixture(config, y, router, expert):
    """All experts for all tokens, of which each keeps its k best (Mixtral); and the router's losses."""
    experts, k = config["num_local_experts"], config["num_experts_per_tok"]
    logits = y @ router.T
    probability = logits.softmax(-1)
    best, chosen = probability.topk(k, dim=-1)
    mask = torch.nn.functional.one_hot(chosen, experts).sum(1).to(y.dtype)
    weights = mask * probability / best.sum(-1, keepdim=True)
    out = sum(weights[:, e:e + 1] * expert(e) for e in range(experts))
    share = mask.sum(0) / (k * y.shape[0])  # of the choices; no gradient passes it
    balance = config["router_aux_loss_coef"] * experts * (share * probability.mean(0)).sum()
    return out, balance + config["router_z_loss_coef"] * (logits.logsumexp(-1) ** 2).mean()


def llama_logits(config, p, ids, positions, cu_seqlens):
    """p: parameters by name. Linear weights are (out, in): y = x W^T + b."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width = config.get("head_dim", config["hidden_size"] // heads)

    def norm(x, name):
        return x / torch.sqrt((x ** 2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * p[name + ".weight"]

    def linear(x, name):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def rotate(x):
        """Pairs (i, i + D/2) turn by position * theta^(-2i/D)."""
        half = width // 2
        speed = config["rope_theta"] ** (-2 * torch.arange(half, dtype=torch.float64) / width)
        angle = positions[:, None, None] * speed
        low, high = x[..., :half], x[..., half:]
        return torch.cat([low * angle.cos() - high * angle.sin(),
                          high * angle.cos() + low * angle.sin()], -1)

    def swiglu(y, gate, up, down):
        gated = linear(y, gate)
        return linear(gated * torch.sigmoid(gated) * linear(y, up), down)

    x = p["model.embed_tokens.weight"][ids]
    auxiliary = 0.0
    for layer in range(config["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        y = norm(x, h + "input_layernorm")
        q = rotate(linear(y, h + "self_attn.q_proj").reshape(-1, heads, width))
        k = rotate(linear(y, h + "self_attn.k_proj").reshape(-1, kv_heads, width))
        v = linear(y, h + "self_attn.v_proj").reshape(-1, kv_heads, width)
        mixed = attention(q, k, v, cu_seqlens).reshape(-1, heads * width)
        x = x + linear(mixed, h + "self_attn.o_proj")
        y = norm(x, h + "post_attention_layernorm")
        if config["model_type"] == "mixtral":
            moe = h + "block_sparse_moe."
            mixed, losses = mixture(
                config, y, p[moe + "gate.weight"],
                lambda e: swiglu(y, *(f"{moe}experts.{e}.{w}" for w in ("w1", "w3", "w2"))))
            x, auxiliary = x + mixed, auxiliary + losses
        else:
            x = x + swiglu(y, h + "mlp.gate_proj", h + "mlp.up_proj", h + "mlp.down_proj")
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return norm(x, "model.norm") @ p[head + ".weight"].T, auxiliary


def gpt2_shapes(config):
    c, f = config["n_embd"], config["n_inner"]
    yield "transformer.wte.weight", (config["vocab_size"], c)
    yield "transformer.wpe.weight", (config["n_positions"], c)
    for layer in range(config["n_layer"]):
        h = f"transformer.h.{layer}."
        for name, shape in (("ln_1", (c,)), ("attn.c_attn", (c, 3 * c)), ("attn.c_proj", (c, c)),
                            ("ln_2", (c,)), ("mlp.c_fc", (c, f)), ("mlp.c_proj", (f, c))):
            yield h + name + ".weight", shape
            yield h + name + ".bias", shape[-1:]
    yield "transformer.ln_f.weight", (c,)
    yield "transformer.ln_f.bias", (c,)


def llama_shapes(config):
    c, f = config["hidden_size"], config["intermediate_size"]
    width = config.get("head_dim", c // config["num_attention_heads"])
    q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    yield "model.embed_tokens.weight", (config["vocab_size"], c)
    for layer in range(config["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        yield h + "input_layernorm.weight", (c,)
        for name, shape in (("self_attn.q_proj", (q, c)), ("self_attn.k_proj", (kv, c)),
                            ("self_attn.v_proj", (kv, c)), ("self_attn.o_proj", (c, q))):
            yield h + name + ".weight", shape
            if config.get("attention_bias"):
                yield h + name + ".bias", shape[:1]
        yield h + "post_attention_layernorm.weight", (c,)
        if config["model_type"] == "mixtral":
            moe = h + "block_sparse_moe."
            yield moe + "gate.weight", (config["num_local_experts"], c)
            for e in range(config["num_local_experts"]):
                for name, shape in (("w1", (f, c)), ("w2", (c, f)), ("w3", (f, c))):
                    yield f"{moe}experts.{e}.{name}.weight", shape
            continue
        for name, shape in (("mlp.gate_proj", (f, c)), ("mlp.up_proj", (f, c)), ("mlp.down_proj", (c, f))):
            yield h + name + ".weight", shape
            if config["mlp_bias"]:
                yield h + name + ".bias", shape[:1]
    yield "model.norm.weight", (c,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], c)


# logits and the routers' losses; names and shapes of the parameters
FAMILIES = {"gpt2": (gpt2_logits, gpt2_shapes), "llama": (llama_logits, llama_shapes),
            "mixtral": (llama_logits, llama_shapes)}


# ---------------------------------------------------------------- weights, tokens, one step

def random_weights(config, generator):
    """Wider than a real initialization, so that every gradient is far from zero and none is symmetric."""
    weights = {}
    for name, shape in FAMILIES[config["model_type"]][1](config):
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        is_norm_scale = len(shape) == 1 and name.endswith("weight")
        weights[name] = 1 + 0.2 * noise if is_norm_scale else 0.2 * noise
    return weights


def random_tokens(config, generator, cu_seqlens):
    """Ids and targets of one flat batch; positions restart in each document; one target in six ignored."""
    total = cu_seqlens[-1]
    ids = torch.randint(0, config["vocab_size"], (total,), generator=generator)
    targets = torch.randint(0, config["vocab_size"], (total,), generator=generator)
    ignored = torch.rand(total, generator=generator) < 1 / 6
    targets[ignored] = IGNORED
    positions = torch.cat([torch.arange(e - b) for b, e in zip(cu_seqlens[:-1], cu_seqlens[1:])])
    return {"input_ids": ids, "targets": targets, "positions": positions,
            "cu_seqlens": torch.tensor(cu_seqlens)}


def losses_of(config, weights, batch):
    """Sum of the losses of the tokens that have one, over their number; and that plus the routers' losses."""
    logits, auxiliary = FAMILIES[config["model_type"]][0](config, weights, batch["input_ids"], batch["positions"],
                                               batch["cu_seqlens"].tolist())
    valid = batch["targets"] != IGNORED
    picked = logits[valid].gather(1, batch["targets"][valid, None])[:, 0]
    language = (logits[valid].logsumexp(-1) - picked).sum() / valid.sum()
    return language, language + auxiliary


def loss_and_gradients(config, weights, batch):
    leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
    loss, total = losses_of(config, leaves, batch)
    total.backward()
    return loss.detach(), {name: leaf.grad for name, leaf in leaves.items()}


def spot_check(config, weights, batch, gradients, generator):
    """The gradient along one random direction, by central differences: guards against a wrong graph."""
    direction = {n: torch.randn(w.shape, generator=generator, dtype=torch.float64) for n, w in weights.items()}
    step = 1e-5
    ends = [losses_of(config, {n: w + sign * step * direction[n] for n, w in weights.items()}, batch)[1]
            for sign in (1, -1)]
    measured = float(ends[0] - ends[1]) / (2 * step)
    analytic = sum(float((gradients[n] * direction[n]).sum()) for n in weights)
    if abs(measured - analytic) > 1e-6 * max(1.0, abs(analytic)):
        sys.exit(f"gradient spot check failed: measured {measured}, analytic {analytic}")


def make_optimizer(leaves):
    """Weight decay for matrices (embeddings included), none for norms and biases."""
    groups = [{"params": [w for w in leaves.values() if w.ndim >= 2], "weight_decay": ADAMW["weight_decay"]},
              {"params": [w for w in leaves.values() if w.ndim < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])


def train(config, weights, batches, clip):
    """Losses and gradient norms (before clipping) of each step, and the weights after the last."""
    leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
    optimizer = make_optimizer(leaves)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss, total = losses_of(config, leaves, batch)
        total.backward()
        norm = math.sqrt(sum(float((w.grad ** 2).sum()) for w in leaves.values()))
        if clip:
            for w in leaves.values():
                w.grad *= min(1.0, CLIP_NORM / (norm + 1e-6))
        optimizer.step()
        losses.append(float(loss))
        norms.append(norm)
    return losses, norms, {name: leaf.detach() for name, leaf in leaves.items()}


# ---------------------------------------------------------------- files

def safetensors_bytes(tensors):
    """8-byte header length, JSON header, data; the float64 tensors first, which keeps all of them aligned."""
    header, data = {}, b""
    for name in sorted(tensors, key=lambda n: (tensors[n].dtype != torch.float64, n)):
        tensor = tensors[name].contiguous()
        is_float = tensor.dtype == torch.float64
        raw = (tensor if is_float else tensor.to(torch.int32)).numpy().tobytes()
        header[name] = {"dtype": "F64" if is_float else "I32", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(raw):
    (size,) = struct.unpack("<Q", raw[:8])
    kinds = {"F64": torch.float64, "I32": torch.int32}
    out = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        out[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=kinds[entry["dtype"]]).reshape(entry["shape"])
    return out


def make_model(config, seed):
    """The files of one model: name -> tensors (safetensors) or object (JSON)."""
    generator = torch.Generator().manual_seed(seed)
    weights = random_weights(config, generator)
    total = BATCH * SEQUENCE
    dense = random_tokens(config, generator, [0, SEQUENCE, total])
    packed = random_tokens(config, generator, [0, 5, 6, SEQUENCE, total])
    batches = [dense] + [random_tokens(config, generator, [0, SEQUENCE, total]) for _ in range(STEPS - 1)]

    files = {"config.json": config, "weights.safetensors": weights}
    for name, batch in (("dense", dense), ("packed", packed)):
        loss, gradients = loss_and_gradients(config, weights, batch)
        spot_check(config, weights, batch, gradients, generator)
        files[name + ".safetensors"] = {**batch, "loss": loss.reshape(1),
                                        **{"grad." + n: g for n, g in gradients.items()}}
    _, _, updated = train(config, weights, [dense], clip=False)
    files["dense.safetensors"].update({"updated." + n: w for n, w in updated.items()})

    losses, norms, _ = train(config, weights, batches, clip=True)
    files["steps.safetensors"] = {
        "input_ids": torch.stack([b["input_ids"] for b in batches]),
        "targets": torch.stack([b["targets"] for b in batches]),
        "positions": dense["positions"], "cu_seqlens": dense["cu_seqlens"],
        "losses": torch.tensor(losses, dtype=torch.float64),
        "grad_norms": torch.tensor(norms, dtype=torch.float64)}
    files["manifest.json"] = manifest(config, seed)
    return files


def manifest(config, seed):
    return {
        "format_version": FORMAT_VERSION,
        "generator": "tests/golden/make_golden.py",
        "libraries": {"torch": torch.__version__, "python": platform.python_version()},
        "seed": seed,
        "model_type": config["model_type"],
        "dtype": "float64",
        "batch": BATCH, "sequence_length": SEQUENCE, "steps": STEPS,
        "optimizer": {"type": "AdamW", **ADAMW, "weight_decay_on": "tensors of rank 2 or more"},
        "clip": {"used_in": "steps.safetensors only", "max_norm": CLIP_NORM,
                 "factor": "min(1, max_norm / (norm + 1e-6))"},
        "tolerance": {
            "float64_relative": 1e-10,
            "reason": "float64 on both sides; sums of at most a few hundred terms through two layers, "
                      "forward and backward, differ by their order only: about 1e-13 of the largest "
                      "element of a tensor, times 1000 for cancellation",
            "steps_relative": 1e-7,
            "steps_reason": "AdamW divides by the square root of a gradient's own history: elements whose "
                            "gradient is rounding noise (the bias of the keys) move by lr * noise / eps, "
                            "noise about 1e-17 and eps 1e-8, hence about 1e-11 a step",
        },
    }


def difference(a, b):
    """Largest difference relative to the tensor's largest element; infinite when shapes or types differ."""
    if a.shape != b.shape:
        return math.inf
    a, b = a.double(), b.double()
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-6))


def check_model(folder, files):
    for name, content in files.items():
        path = folder / name
        if not path.exists():
            sys.exit(f"{path} is missing; run {Path(__file__).name}")
        if name.endswith(".json"):
            stored = json.loads(path.read_text())
            same = {k: v for k, v in stored.items() if k != "libraries"} == {
                k: v for k, v in content.items() if k != "libraries"}
            if not same:
                sys.exit(f"{path} differs from what the script writes")
            continue
        stored = read_safetensors(path.read_bytes())
        if sorted(stored) != sorted(content):
            sys.exit(f"{path} holds other tensors than the script writes")
        for tensor, value in content.items():
            # Other versions of PyTorch sum in another order; nothing else may differ.
            if not difference(stored[tensor], value) < 1e-8:
                sys.exit(f"{path}: {tensor} differs from what the script computes")


def main():
    parser = argparse.ArgumentParser(description="Reference numbers for the model tests.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for model, (config, seed) in MODELS.items():
        files = make_model(config, seed)
        folder = HERE / model
        if arguments.check:
            check_model(folder, files)
            continue
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            is_json = name.endswith(".json")
            raw = (json.dumps(content, indent=2) + "\n").encode() if is_json else safetensors_bytes(content)
            (folder / name).write_bytes(raw)
        steps = files["steps.safetensors"]
        print(model, "losses", [round(float(x), 4) for x in steps["losses"]],
              "norms", [round(float(x), 3) for x in steps["grad_norms"]])
    if arguments.check:
        print("the files agree with the script")


if __name__ == "__main__":
    main()
