#!/usr/bin/env python3
"""Times training steps of PyTorch on random tokens, with the models of `trireme bench train`.

    torch_peer.py MODEL BATCH SEQUENCE_LENGTH STEPS DTYPE THREADS
                  [--device cpu|cuda] [--compile] [--micro-batches N] [--step-tokens N]

MODEL is the name of a dense model in configs/models, DTYPE float32 or bfloat16. Prints one JSON object. Plain modules
in the style people write them; weights from N(0, 0.02); AdamW without weight decay.

On the CPU attention is written out, as PyTorch 1.13 is fastest with it, and bfloat16 means autocast. On a GPU attention is
scaled_dot_product_attention, AdamW is fused, and with bfloat16 weights and moments have that type, without a float32
copy: less work than a run that keeps one. With --micro-batches the time of a micro-batch and of the update are told apart as
`trireme bench train` does it: by steps of one micro-batch and of N.
"""
import argparse
import contextlib
import json
import math
import statistics
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

MODELS = Path(__file__).resolve().parents[2] / "configs/models"


class Shape:
    """A model's sizes, from its config.json."""

    def __init__(self, name):
        config = json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
        self.llama = config["model_type"] == "llama"
        self.vocabulary = config["vocab_size"]
        self.width = config["hidden_size" if self.llama else "n_embd"]
        self.layers = config["num_hidden_layers" if self.llama else "n_layer"]
        self.heads = config["num_attention_heads" if self.llama else "n_head"]
        self.kv_heads = config.get("num_key_value_heads", self.heads)
        self.head_width = config.get("head_dim", self.width // self.heads)
        self.inner = config["intermediate_size"] if self.llama else config.get("n_inner", 4 * self.width)
        self.bias = config.get("attention_bias", not self.llama)
        self.tied = config.get("tie_word_embeddings", not self.llama)
        self.theta = config.get("rope_theta", 10000.0)
        self.positions = config.get("n_positions")


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5) * self.weight).to(x.dtype)


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.sizes = [shape.heads * shape.head_width] + 2 * [shape.kv_heads * shape.head_width]
        self.qkv = nn.Linear(shape.width, sum(self.sizes), bias=shape.bias)
        self.out = nn.Linear(self.sizes[0], shape.width, bias=shape.bias)

    def forward(self, x, mask, rotary):
        batch, length, _ = x.shape
        width = self.shape.head_width
        q, k, v = (t.view(batch, length, -1, width).transpose(1, 2) for t in self.qkv(x).split(self.sizes, -1))
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        group = self.shape.heads // self.shape.kv_heads
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if x.is_cuda:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(width)
            mixed = F.softmax(scores.masked_fill(mask, float("-inf")), -1).to(v.dtype) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, self.sizes[0]))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        norm = RmsNorm if shape.llama else nn.LayerNorm
        self.llama = shape.llama
        self.norm1, self.norm2 = norm(shape.width), norm(shape.width)
        self.attention = Attention(shape)
        self.up = nn.Linear(shape.width, shape.inner, bias=not shape.llama)
        self.down = nn.Linear(shape.inner, shape.width, bias=not shape.llama)
        if shape.llama:
            self.gate = nn.Linear(shape.width, shape.inner, bias=False)

    def forward(self, x, mask, rotary):
        x = x + self.attention(self.norm1(x), mask, rotary)
        y = self.norm2(x)
        y = F.silu(self.gate(y)) * self.up(y) if self.llama else F.gelu(self.up(y), approximate="tanh")
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, shape, length):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = None if shape.llama else nn.Embedding(shape.positions, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.width) if shape.llama else nn.LayerNorm(shape.width)
        self.head = None if shape.tied else nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.rotary = shape.llama
        if shape.llama:
            half = shape.head_width // 2
            angle = torch.outer(torch.arange(length), shape.theta ** (-torch.arange(half) / half))
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device))
        rotary = (self.cos, self.sin) if self.rotary else None
        for block in self.blocks:
            x = block(x, self.mask, rotary)
        logits = F.linear(self.norm(x), self.tokens.weight if self.head is None else self.head.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.shape = Shape(arguments.model)
        self.cuda = arguments.device == "cuda"
        narrow = self.cuda and arguments.dtype == "bfloat16"
        torch.set_default_dtype(torch.bfloat16 if narrow else torch.float32)
        with torch.device("cuda") if self.cuda else contextlib.nullcontext():
            model = Model(self.shape, arguments.sequence_length)
        torch.set_default_dtype(torch.float32)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0,
                                           **({"fused": True} if self.cuda else {}))
        self.model = torch.compile(model) if arguments.compile else model
        self.loss = None

    def micro_batch(self):
        a = self.arguments
        ids = torch.randint(0, self.shape.vocabulary, (a.batch, a.sequence_length + 1), device=a.device)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not self.cuda and a.dtype == "bfloat16"):
            self.loss = self.model(ids[:, :-1], ids[:, 1:])
        self.loss.backward()

    def seconds(self, micro_batches, steps):
        """Of each step, after two that do not count; a step ends when its loss is on the host."""
        taken = []
        for _ in range(steps + 2):
            begin = time.perf_counter()
            self.optimizer.zero_grad(set_to_none=True)
            for _ in range(micro_batches):
                self.micro_batch()
            self.optimizer.step()
            self.loss.item()
            if self.cuda:
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - begin)
        return taken[2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name in ("batch", "sequence_length", "steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("dtype", choices=["float32", "bfloat16"])
    parser.add_argument("threads", type=int)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--step-tokens", type=int, default=524288)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    bench = Bench(arguments)
    one = bench.seconds(1, arguments.steps)
    median, tokens = statistics.median(one), arguments.batch * arguments.sequence_length
    out = {"peer": f"PyTorch {torch.__version__}", "compiled": arguments.compile, "median_ms": 1e3 * median,
           "least_ms": 1e3 * min(one), "tokens_per_second": tokens / median}
    if arguments.micro_batches > 1:
        n = arguments.micro_batches
        several = statistics.median(bench.seconds(n, arguments.steps))
        micro = (several - median) / (n - 1) if several > median else several / n  # else too restless a machine
        update = max(0.0, median - micro)
        whole = math.ceil(arguments.step_tokens / tokens)
        step = whole * micro + update
        out.update(micro_batches=n, micro_ms=1e3 * micro, update_ms=1e3 * update, step_ms=1e3 * step,
                   tokens_per_second=whole * tokens / step)
    if arguments.device == "cuda":
        out["device_bytes"] = torch.cuda.max_memory_reserved()
    print(json.dumps({**out, "loss": bench.loss.item()}))


if __name__ == "__main__":
    main()
