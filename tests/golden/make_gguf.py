#!/usr/bin/env python3
"""Writes tests/golden/gguf/blocks.{gguf,safetensors}: one tensor of each type that is read, of random bytes, and what
the Python package `gguf` makes of them; and the blocks that it encodes.

    python3 -m venv venv && venv/bin/pip install gguf safetensors numpy
    venv/bin/python tests/golden/make_gguf.py
"""
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

FOLDER = Path(__file__).parent / "gguf"
ROWS, COLUMNS = 3, 512
BYTES = {"Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_K": (256, 144), "Q6_K": (256, 210)}
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}  # where halves lie: random ones may be NaN


def random_blocks(rng, kind):
    block, size = BYTES[kind]
    blocks = rng.integers(0, 256, (ROWS, COLUMNS // block, size), dtype=np.uint8)
    for at in SCALES[kind]:
        halves = rng.normal(0, 0.02, (ROWS, COLUMNS // block)).astype(np.float16)
        blocks[:, :, at:at + 2] = halves[..., None].view(np.uint8)
    return blocks.reshape(ROWS, -1)


def main():
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(5)
    writer = GGUFWriter(FOLDER / "blocks.gguf", "llama")
    writer.add_context_length(128)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_array("test.strings", ["a", "", "\u00e9\u4e2d"])
    writer.add_array("test.integers", [1, -2, 3])
    writer.add_array("test.numbers", [0.5, -0.25])
    writer.add_bool("test.truth", True)
    expected = {}
    for kind in BYTES:
        blocks = random_blocks(rng, kind)
        writer.add_tensor(kind, blocks, raw_dtype=GGMLQuantizationType[kind])
        expected[kind] = dequantize(blocks, GGMLQuantizationType[kind]).astype(np.float32)
    values = rng.normal(0, 1, (ROWS, COLUMNS)).astype(np.float32)
    values[0, 32:64] = 0
    values[1, :32] = np.linspace(-127, 127, 32)  # halves that are rounded
    writer.add_tensor("F32", values)
    writer.add_tensor("F16", values.astype(np.float16))
    bf16 = quantize(values, GGMLQuantizationType.BF16)
    writer.add_tensor("BF16", bf16, raw_dtype=GGMLQuantizationType.BF16)
    expected |= {"F32": values, "F16": values.astype(np.float16).astype(np.float32),
                 "BF16": dequantize(bf16, GGMLQuantizationType.BF16).astype(np.float32),
                 **{"encoded." + kind: quantize(values, GGMLQuantizationType[kind]).view(np.uint8) for kind in ("Q8_0", "Q4_0")}}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, FOLDER / "blocks.safetensors")


if __name__ == "__main__":
    main()
