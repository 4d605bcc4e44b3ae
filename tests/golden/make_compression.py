#!/usr/bin/env python3
"""Writes tests/golden/compression.json: the sum of what each compressor sent in 20 rounds with error feedback, computed here from
the definitions in numpy. tests/parallel/outer/compressors/test_compressors.cpp makes the same matrices and compares.

    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python tests/golden/make_compression.py
"""
import json
from pathlib import Path

import numpy as np

ROWS, COLUMNS, ROUNDS, SEED, NAME = 6, 37, 20, 5, "model.layers.0.mlp.up_proj.weight"


def matrix(step):
    """Numbers that float32 represents exactly."""
    i = np.arange(ROWS * COLUMNS, dtype=np.int64)
    return ((((i * 7919 + step * 104729) % 2003) ** 2 % 2003 - 1001) / 512).astype(np.float32).reshape(ROWS, COLUMNS)


def first_q(rank):
    i = np.arange(rank * COLUMNS, dtype=np.int64)
    return (((i * i * 37) % 23 - 11) / 8).reshape(rank, COLUMNS)


def quantize(v, bits, block):
    y = np.empty_like(v)
    for r in range(ROWS):
        for c in range(0, COLUMNS, block):
            part = v[r, c:c + block]
            if bits == 1:
                # In float64: the order of the sum is not part of the definition's precision.
                scale = np.float32(np.abs(part.astype(np.float64)).mean())
                y[r, c:c + block] = np.where(part >= 0, scale, -scale)
            else:
                scale = np.float32(np.abs(part).max() / np.float32({8: 127, 4: 7}[bits]))
                inverse = np.float32(1) / scale if scale > 0 else np.float32(0)
                y[r, c:c + block] = np.rint(part * inverse).astype(np.float32) * scale
    return y


def keep(v, ratio, block, keys):
    """v where the keys are among the largest of their block, of equal ones the first; 0 elsewhere."""
    y = np.zeros_like(v)
    for r in range(ROWS):
        for c in range(0, COLUMNS, block):
            part = keys[r, c:c + block]
            kept = max(1, int(np.floor(ratio * part.size + 0.5)))
            chosen = c + np.argsort(-part.astype(np.float64), kind="stable")[:kept]
            y[r, chosen] = v[r, chosen]
    return y


def philox(seed, stream, block):
    """Four words of Philox4x32-10."""
    mask = 0xffffffff
    c = [block & mask, block >> 32, stream & mask, stream >> 32]
    k = [seed & mask, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def stream_id(name):
    """64-bit FNV-1a."""
    stream = 0xcbf29ce484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001b3 % 2**64
    return stream


def substream(stream, number):
    """splitmix64"""
    z = (stream + 0x9E3779B97F4A7C15 * (number + 1)) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def random_keys(step, block):
    stream = substream(substream(stream_id("random_k"), stream_id(NAME)), step)
    blocks = -(-COLUMNS // block)
    keys = np.zeros((ROWS, COLUMNS))
    for r in range(ROWS):
        for c in range(COLUMNS):
            word = (r * blocks + c // block) * block + c % block
            keys[r, c] = philox(SEED, stream, word // 4)[word % 4]
    return keys


class PowerSgd:
    def __init__(self, rank):
        self.q = first_q(rank).T

    def __call__(self, v, _):
        p, _ = np.linalg.qr(v @ self.q)  # columns equal those of Gram-Schmidt but for their signs
        self.q = v.T @ p
        return p @ self.q.T


def main():
    cases = []
    for bits, block in ((8, 16), (4, 16), (1, 16), (8, 64)):
        cases.append(({"method": "quantize", "bits": bits, "block": block}, "float32",
                      lambda v, _, bits=bits, block=block: quantize(v, bits, block)))
    cases.append(({"method": "top_k", "ratio": 0.1, "block": 20}, "float32",
                  lambda v, _: keep(v, 0.1, 20, np.abs(v))))
    cases.append(({"method": "random_k", "ratio": 0.25, "block": 16}, "float32",
                  lambda v, step: keep(v, 0.25, 16, random_keys(step, 16))))
    # In float64: rounding grows over the rounds.
    cases.append(({"method": "powersgd", "rank": 2}, "float64", PowerSgd(2)))
    written = []
    for options, dtype, compress in cases:
        residual, sent = np.zeros((ROWS, COLUMNS), dtype), np.zeros((ROWS, COLUMNS), np.float64)
        for step in range(ROUNDS):
            v = matrix(step).astype(dtype) + residual
            y = compress(v, step)
            residual = v - y
            sent += y
        written.append({"options": options, "dtype": dtype, "sent": [float(f"{x:.9g}") for x in sent.flatten()]})
    path = Path(__file__).parent / "compression.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in written) + "\n]\n")


if __name__ == "__main__":
    main()
