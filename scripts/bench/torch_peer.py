#!/usr/bin/env python3
"""Times training steps of PyTorch on random tokens, with the models of `trireme bench train`.

    torch_peer.py MODEL BATCH SEQUENCE_LENGTH STEPS DTYPE THREADS

MODEL is gpt2-124m or llama-15m, DTYPE float32 or bfloat16 (autocast). Prints one JSON object. Plain modules
in the style people write them; weights from N(0, 0.02); AdamW without weight decay.
"""
import json
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

SHAPES = {  # vocabulary, width, layers, heads, inner width
    "gpt2-124m": (50257, 768, 12, 12, 3072),
    "llama-15m": (32000, 288, 6, 6, 768),
}


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
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x, mask, rotary):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // self.heads)
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), -1).to(v.dtype)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, inner, llama):
        super().__init__()
        norm = RmsNorm if llama else nn.LayerNorm
        self.llama = llama
        self.norm1, self.norm2 = norm(width), norm(width)
        self.attention = Attention(width, heads, not llama)
        self.up = nn.Linear(width, inner, bias=not llama)
        self.down = nn.Linear(inner, width, bias=not llama)
        if llama:
            self.gate = nn.Linear(width, inner, bias=False)

    def forward(self, x, mask, rotary):
        x = x + self.attention(self.norm1(x), mask, rotary)
        y = self.norm2(x)
        y = F.silu(self.gate(y)) * self.up(y) if self.llama else F.gelu(self.up(y))
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, name, length):
        super().__init__()
        vocabulary, width, layers, heads, inner = SHAPES[name]
        llama = name.startswith("llama")
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = None if llama else nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner, llama) for _ in range(layers))
        self.norm = RmsNorm(width) if llama else nn.LayerNorm(width)
        self.rotary = None
        if llama:
            half = width // heads // 2
            angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half))
            self.rotary = (angle.cos(), angle.sin())
        self.mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x, self.mask, self.rotary)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


def main():
    name, batch, length, steps, dtype, threads = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5], int(sys.argv[6])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = Model(name, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    seconds = []
    for _ in range(steps + 2):
        ids = torch.randint(0, SHAPES[name][0], (batch, length + 1))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[2:])
    print(json.dumps({"peer": f"PyTorch {torch.__version__}", "median_ms": 1e3 * median,
                      "least_ms": 1e3 * min(seconds[2:]), "tokens_per_second": batch * length / median,
                      "loss": loss.item()}))


if __name__ == "__main__":
    main()
