#!/usr/bin/env python3
"""Weights in 4 bits as bitsandbytes makes them, with and without double quantization: tests/golden/nf4.safetensors.

    python3 -m venv venv && venv/bin/pip install torch safetensors bitsandbytes
    venv/bin/python tests/golden/make_nf4.py            # writes it again
    venv/bin/python tests/golden/make_nf4.py --check    # compares
"""
import sys
from pathlib import Path

import torch
from bitsandbytes.functional import dequantize_4bit, dequantize_blockwise, quantize_4bit
from safetensors.torch import load_file, save_file

OUT = Path(__file__).resolve().parent / "nf4.safetensors"


def make():
    random = torch.Generator().manual_seed(3)
    w = torch.randn(20, 832, generator=random) * torch.rand(20, 1, generator=random) * 0.05  # 260 blocks
    w[3, 64:128] = 0
    w = w.to(torch.bfloat16)
    codes, plain = quantize_4bit(w, quant_type="nf4")
    again, double = quantize_4bit(w, quant_type="nf4", compress_statistics=True)
    assert torch.equal(codes, again)
    return {"w": w, "codes": codes.reshape(20, -1), "scale": plain.absmax, "dequantised": dequantize_4bit(codes, plain),
            "double.codes": double.absmax, "double.groups": double.state2.absmax,
            "double.offset": double.offset.reshape(1), "double.dequantised": dequantize_4bit(again, double),
            "double.scale": dequantize_blockwise(double.absmax, double.state2) + double.offset}


if __name__ == "__main__":
    made = {name: tensor.contiguous() for name, tensor in make().items()}
    if "--check" in sys.argv:
        stored = load_file(OUT)
        assert stored.keys() == made.keys()
        for name, tensor in made.items():
            assert torch.equal(stored[name], tensor), name
    else:
        save_file(made, OUT)
