#!/usr/bin/env python3
"""Writes tests/golden/outer.json: the shared weights after 20 rounds of three sites (Adasum: of two to five), by each outer algorithm, computed here in
numpy from the papers' own formulas. tests/parallel/outer/test_outer_sync.cpp moves the same sites by the same amounts and compares.

    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python tests/golden/make_outer.py
"""
import json
from pathlib import Path

import make_compression
import numpy as np

SITES, ROUNDS, WARMUP = 3, 20, 4
FRAGMENTS, PERIOD = 2, 4  # of streaming DiLoCo, with one matrix per fragment


def matrix(number, fragment):
    return make_compression.matrix(1000 * fragment + number).astype(np.float64)


def first(fragment):
    return matrix(999, fragment)


def moved(step, site, fragment=0, sites=SITES):
    """How far a site trains in a step, numbered from 0. No two elements have the same magnitude, so that rounding does not choose
    which ones top-k keeps."""
    by = matrix(step * sites + site, fragment)
    return by / 8 * (1 + np.arange(by.size).reshape(by.shape) / 1021)


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


def adasum(updates):
    """Maleki et al. 2020, equation 7 and the tree of its algorithm: neighbours in pairs, and the last of an odd number by itself."""
    if len(updates) == 1:
        return updates[0]
    above = []
    for a, b in zip(updates[::2], updates[1::2]):
        dot = np.vdot(a, b)
        above.append((1 - dot / (2 * np.vdot(a, a))) * a + (1 - dot / (2 * np.vdot(b, b))) * b)
    return adasum(above + updates[len(updates) - len(updates) % 2:])


class Adasum:
    def __init__(self, lr, momentum, nesterov, compress=None):
        self.sgd = DiLoCo(lr, momentum, nesterov)
        self.compress, self.residuals, self.of_result = compress, {}, 0

    def __call__(self, x, sites):
        updates = [x - site for site in sites]
        if self.compress is None:
            return self.sgd(x, [x - adasum(updates)])
        sent = []
        for s, update in enumerate(updates):
            v = update + self.residuals.get(s, 0)
            sent.append(self.compress(v))
            self.residuals[s] = v - sent[-1]
        v = adasum(sent) + self.of_result
        y = self.compress(v)
        self.of_result = v - y
        return self.sgd(x, [x - y])


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


def keep_quarter(v):
    return make_compression.keep(v, 0.25, 16, np.abs(v))


def replay(algorithm, warmup, count=SITES):
    x = first(0)
    for step in range(ROUNDS):
        sites = [x + moved(step, s, sites=count) for s in range(count)]
        x = sum(sites) / count if step < warmup else algorithm(x, sites)
    return x


def adasum_cases():
    plain, momentum = dict(lr=1.0, momentum=0.0, nesterov=False), dict(lr=0.5, momentum=0.9, nesterov=True)
    for count in (2, 3, 4, 5):
        yield {"algorithm": "adasum", "sites": count, **plain, "warmup_steps": 0, "shared": replay(Adasum(**plain), 0, count)}
    yield {"algorithm": "adasum", **momentum, "warmup_steps": WARMUP, "shared": replay(Adasum(**momentum), WARMUP)}
    for count in (2, 3, 4):
        compressed = Adasum(**plain, compress=keep_quarter)
        yield {"algorithm": "adasum", "sites": count, **plain, "warmup_steps": 0, "top_k": 0.25,
               "shared": replay(compressed, 0, count)}
    fragments = [Adasum(**plain) for _ in range(FRAGMENTS)]
    yield {"algorithm": "adasum", **plain, "warmup_steps": WARMUP, "fragments": FRAGMENTS, "period": PERIOD, "overlap_steps": 3,
           "mixing": 0.25, "steps": streaming_steps(WARMUP), "shared": streaming(fragments, WARMUP, 3, 0.25)}


def streaming_steps(warmup):
    """Each fragment has 20 rounds. The last step, a round of both, is inside of one of fragment 0."""
    return PERIOD * (ROUNDS - 1 - warmup) + warmup + 1


def streaming(fragments, warmup, overlap, mixing):
    """Streaming DiLoCo (Douillard et al. 2025) by the rules of docs/design/outer.md. fragments: the outer algorithm of each one."""
    shared = [first(f) for f in range(FRAGMENTS)]
    own = [[x] * SITES for x in shared]
    open_rounds = {}  # by fragment: the step at which the round ends, and the weights of the sites when it began
    last = streaming_steps(warmup)

    def end(f, step, kept):
        _, sites = open_rounds.pop(f)
        shared[f] = sum(sites) / SITES if step <= warmup else fragments[f](shared[f], sites)
        own[f] = [kept * x + (1 - kept) * shared[f] for x in own[f]]

    for step in range(1, last + 1):
        own = [[x + moved(step - 1, s, f) for s, x in enumerate(own[f])] for f in range(FRAGMENTS)]
        joint = step <= warmup or step == last
        for f in sorted(open_rounds):
            if joint or open_rounds[f][0] == step:
                end(f, step, mixing)
        for f in range(FRAGMENTS):
            if joint or step % PERIOD == f * PERIOD // FRAGMENTS:
                open_rounds[f] = (step + overlap, own[f])
            if joint:
                end(f, step, 0)
    return np.concatenate(shared)


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
        compressed = Compressed(algorithm(**options), keep_quarter)
        written.append({"algorithm": name, **options, "warmup_steps": 0, "top_k": 0.25, "shared": replay(compressed, 0)})
    nesterov = dict(lr=0.7, momentum=0.9, nesterov=True)
    for warmup, overlap, mixing, compressed in ((0, 2, 0.5, False), (WARMUP, 2, 0.5, False), (WARMUP, 3, 0.25, False), (0, 3, 0.5, True)):
        algorithms = [DiLoCo(**nesterov) for _ in range(FRAGMENTS)]
        case = {"algorithm": "streaming_diloco", **nesterov, "warmup_steps": warmup, "fragments": FRAGMENTS, "period": PERIOD,
                "overlap_steps": overlap, "mixing": mixing, "steps": streaming_steps(warmup)}
        if compressed:
            algorithms = [Compressed(algorithm, keep_quarter) for algorithm in algorithms]
            case["top_k"] = 0.25
        written.append({**case, "shared": streaming(algorithms, warmup, overlap, mixing)})
    written += adasum_cases()
    for case in written:
        case["shared"] = [float(f"{v:.12g}") for v in case["shared"].flatten()]
    path = Path(__file__).parent / "outer.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in written) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
