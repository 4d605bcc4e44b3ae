"""Rows of slow_link_losses.py: runs of configs/shakespeare-small.json, in the tables' order."""
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

CONFIG = Path(__file__).resolve().parents[2] / "configs/shakespeare-small.json"
RANKS = 4
# Keys of warm-ups, after which a run sends less.
WARMUPS = ("compression.gradients.warmup_steps", "optimizer.params.freeze_step",
           "outer.warmup_steps")


@dataclass(frozen=True)
class Row:
    """One run: name of its files, table (gradients, weights or sites), first cell, settings."""

    name: str
    group: str
    label: str
    settings: dict = field(default_factory=dict)

    def warmup(self):
        return max(int(self.settings.get(key, 0)) for key in WARMUPS)


def gradients(name, label, method=None, **compression):
    members = {"method": method, **compression} if method else {}
    return Row(name, "gradients", label,
               {f"compression.gradients.{key}": value for key, value in members.items()})


def weights(name, label, bits=None):
    settings = {"zero_optimization.stage": 3, "comm.algorithm": "ring"}  # which counts all bytes
    if bits:
        settings |= {"compression.parameters.method": "quantize", "compression.parameters.bits": bits}
    return Row(name, "weights", label, settings)


def onebit_adam(name, label, *compression, **members):
    row = gradients(name, label, *compression, **members)
    optimizer = {"optimizer.type": "OneBitAdam", "optimizer.params.freeze_step": 400}
    return replace(row, settings=optimizer | row.settings)


def sites(algorithm, period, bits=None, warmup=None):
    name = algorithm + (f"-{bits}-bits" if bits else "") + f"-{period}"
    settings = {"outer.sites": RANKS, "outer.algorithm": algorithm, "outer.period": period}
    if bits:
        settings |= {"outer.compression.method": "quantize", "outer.compression.bits": bits}
    if warmup:
        settings["outer.warmup_steps"] = warmup
    return Row(name + ("-warmup" if warmup else ""), "sites",
               f"`{algorithm}`" + (f", {bits} bits" if bits else ""), settings)


ROWS = [
    gradients("exact", "exact"),
    gradients("quantize-8", "`quantize`, 8 bits", "quantize", bits=8),
    gradients("quantize-4", "`quantize`, 4 bits", "quantize", bits=4),
    gradients("quantize-1", "`quantize`, 1 bit", "quantize", bits=1),
    gradients("quantize-1-warmup", "`quantize`, 1 bit, `warmup_steps` 400", "quantize", bits=1,
              warmup_steps=400),
    gradients("quantize-1-no-feedback", "`quantize`, 1 bit, without feedback", "quantize", bits=1,
              error_feedback="false"),
    gradients("powersgd", "`powersgd`, rank 4", "powersgd", rank=4),
    gradients("top_k", "`top_k`, ratio 0.01", "top_k", ratio=0.01),
    gradients("random_k", "`random_k`, ratio 0.01", "random_k", ratio=0.01),
    onebit_adam("onebit-adam", "`OneBitAdam`, `freeze_step` 400"),
    onebit_adam("onebit-adam-no-feedback", "the same without feedback", "quantize", bits=1,
                error_feedback="false"),
    weights("stage-3", "exact, ZeRO stage 3"),
    weights("weights-8", "weights in 8 bits", bits=8),
    weights("weights-4", "weights in 4 bits", bits=4),
    sites("average", 10),
    sites("average", 50),
    sites("average", 50, warmup=500),
    sites("block_momentum", 50),
    sites("block_momentum", 50, warmup=500),
    sites("diloco", 50),
    sites("diloco", 50, warmup=500),
    sites("diloco", 50, bits=8, warmup=500),
    sites("diloco", 100, bits=8, warmup=500),
    sites("diloco", 100, bits=4, warmup=500),
    sites("streaming_diloco", 50, bits=8, warmup=500),
    sites("adasum", 50),
    sites("adasum", 50, warmup=500),
]
NAMES = [row.name for row in ROWS]


def configuration():
    return json.loads(CONFIG.read_text(encoding="utf-8"))


def rows_of(steps):
    """Rows of runs of so many steps, in which warm-ups have the share of the whole run's."""
    whole = configuration()
    schedule = {"scheduler.params.warmup_steps": whole["scheduler"]["params"]["warmup_steps"]}

    def scaled(key, value):
        warmup = key in schedule or key in WARMUPS
        return max(1, round(value * steps / whole["train_steps"])) if warmup else value

    return [replace(row, settings={key: scaled(key, value)
                                   for key, value in (schedule | row.settings).items()})
            for row in ROWS]
