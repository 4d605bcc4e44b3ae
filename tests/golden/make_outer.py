#!/usr/bin/env python3
"""Writes tests/golden/outer.json: the shared weights after 20 rounds of three sites, by each outer algorithm, computed here in
numpy from the papers' own formulas. tests/parallel/outer/test_outer_sync.cpp moves the same sites by the same amounts and compares.

    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python tests/golden/make_outer.py
"""
import json
from pathlib import Path

import make_compression
import numpy as np

SITES, ROUNDS, WARMUP = 3, 20, 4


def moved(step, site):
    """How far a site trains from the shared weights. No two elements have the same magnitude, so that rounding does not choose
    which ones top-k keeps."""
    matrix = make_compression.matrix(step * SITES + site).astype(np.float64)
    return matrix / 8 * (1 + np.arange(matrix.size).reshape(matrix.shape) / 1021)


class Average:
    def __init__(self, lr, **_):
        self.lr = lr

    def __call__(self, x, sites):
        return (1 - self.lr) * x + self.lr * sum(sites) / len(sites)


class BlockMomentum:
    """BMUF (Chen & Huo 2016), equations 4 to 8: x is the model that a block starts from."""

    def __init__(self, lr, momentum, nesterov):
        self.lr, self.momentum, self.nesterov = lr, momentum, nesterov
        self.delta, self.w = 0, None

    def __call__(self, x, sites):
        if self.w is None:
            self.w = x
        gradient = sum(sites) / len(sites) - x
        self.delta = self.momentum * self.delta + self.lr * gradient
        self.w = self.w + self.delta
        return self.w + self.momentum * self.delta if self.nesterov else self.w


class DiLoCo:
    """Algorithm 1 of Douillard et al. 2023, with the SGD of PyTorch."""

    def __init__(self, lr, momentum, nesterov):
        self.lr, self.momentum, self.nesterov = lr, momentum, nesterov
        self.buffer = None

    def __call__(self, x, sites):
        gradient = sum(x - site for site in sites) / len(sites)
        self.buffer = gradient if self.buffer is None else self.momentum * self.buffer + gradient
        return x - self.lr * (gradient + self.momentum * self.buffer if self.nesterov else self.buffer)


class Compressed:
    """What an algorithm sees of sites whose updates are compressed, with error feedback in both phases."""

    def __init__(self, algorithm, compress):
        self.algorithm, self.compress = algorithm, compress
        self.residuals, self.of_sum = [0] * SITES, 0

    def __call__(self, x, sites):
        total = 0
        for s, site in enumerate(sites):
            v = x - site + self.residuals[s]
            y = self.compress(v)
            self.residuals[s] = v - y
            total = total + y
        v = total + self.of_sum
        y = self.compress(v)
        self.of_sum = v - y
        return self.algorithm(x, [x - y / SITES] * SITES)


def replay(algorithm, warmup):
    x = make_compression.matrix(999).astype(np.float64)
    for step in range(ROUNDS):
        sites = [x + moved(step, s) for s in range(SITES)]
        x = sum(sites) / SITES if step < warmup else algorithm(x, sites)
    return x


def main():
    settings = [("average", Average, dict(lr=1.0, momentum=0.0, nesterov=False)),
                ("average", Average, dict(lr=0.5, momentum=0.0, nesterov=False)),
                ("block_momentum", BlockMomentum, dict(lr=1.0, momentum=1 - 1 / SITES, nesterov=True)),
                ("block_momentum", BlockMomentum, dict(lr=0.9, momentum=0.5, nesterov=False)),
                ("diloco", DiLoCo, dict(lr=0.7, momentum=0.9, nesterov=True)),
                ("diloco", DiLoCo, dict(lr=0.7, momentum=0.9, nesterov=False))]
    written = []
    for name, algorithm, options in settings:
        for warmup in (0, WARMUP):
            x = replay(algorithm(**options), warmup)
            written.append({"algorithm": name, **options, "warmup_steps": warmup, "shared": x})
        compressed = Compressed(algorithm(**options), lambda v: make_compression.keep(v, 0.25, 16, np.abs(v)))
        written.append({"algorithm": name, **options, "warmup_steps": 0, "top_k": 0.25, "shared": replay(compressed, 0)})
    for case in written:
        case["shared"] = [float(f"{v:.12g}") for v in case["shared"].flatten()]
    path = Path(__file__).parent / "outer.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in written) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
