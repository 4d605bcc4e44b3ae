#!/usr/bin/env python3
"""trireme checkpoint quantize: what it writes computes nearly the same, what it says of it is true, and what it refuses."""
import array
import json
import math
import random
import re
import struct

import harness
from harness import CommandTest

KINDS = {"fp8": "out", "gptq4": "out", "gptq8": "out", "q8_0": "x.gguf", "q6_k": "x.gguf", "q4_k": "x.gguf", "q4_0": "x.gguf"}
WORDS = {"fp8": "F8_E4M3 in blocks", "gptq4": "GPTQ 4 bits", "gptq8": "GPTQ 8 bits"}
C, F, V, HEADS, KV = 256, 256, 61, 4, 2
CONFIG = {"model_type": "llama", "vocab_size": V, "hidden_size": C, "intermediate_size": F, "num_hidden_layers": 1,
          "num_attention_heads": HEADS, "num_key_value_heads": KV, "max_position_embeddings": 64}
LINEAR = {"self_attn.q_proj": (C, C), "self_attn.k_proj": (C * KV // HEADS, C), "self_attn.v_proj": (C * KV // HEADS, C),
          "self_attn.o_proj": (C, C), "mlp.gate_proj": (F, C), "mlp.up_proj": (F, C), "mlp.down_proj": (C, F)}


def write_safetensors(path, tensors):
    """{name: (shape, array of float32)}"""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        raw = values.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def model_tensors():
    rng = random.Random(3)

    def normal(*shape):
        return shape, array.array("f", [rng.gauss(0, 0.06) for _ in range(math.prod(shape))])

    tensors = {"model.embed_tokens.weight": normal(V, C), "lm_head.weight": normal(V, C)}
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        tensors[name + ".weight"] = ((C,), array.array("f", [1.0] * C))
    for name, shape in LINEAR.items():
        tensors[f"model.layers.0.{name}.weight"] = normal(*shape)
    return tensors


def numbers(path, name):
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    begin, end = json.loads(raw[8:8 + size])[name]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", raw[8 + size + begin:8 + size + end])


class Quantize(CommandTest):
    tensors = None

    def setUp(self):
        super().setUp()
        if Quantize.tensors is None:
            Quantize.tensors = model_tensors()
        self.write("model/config.json", json.dumps(CONFIG))
        write_safetensors(self.folder / "model/model.safetensors", self.tensors)

    def logits(self, model):
        self.trireme("logits", model, "--tokens", "tokens", "--dtype", "fp32", "--output", "logits.safetensors")
        return numbers(self.folder / "logits.safetensors", "logits")

    def test_every_kind(self):
        self.write("tokens", json.dumps(list(range(1, 40))) + "\n[60]\n")
        exact = self.logits("model")
        size = math.sqrt(sum(x * x for x in exact))
        for kind, out in KINDS.items():
            out = kind + out
            stdout, _ = self.trireme("checkpoint", "quantize", "model", out, "--quantization", kind)
            row = re.search(rf"^{WORDS.get(kind, kind.upper())} +(\d+) +(\S+ \S+) +(\S+ \S+) +([\d.]+)% +([\d.]+)%", stdout, re.M)
            self.assertIsNotNone(row, stdout)
            self.assertEqual(int(row[1]), len(LINEAR))
            error, worst = float(row[4]) / 100, float(row[5]) / 100
            self.assertLessEqual(error, worst * 1.01)
            # Each matrix changes what comes behind it by its own share; at most these add up.
            found = self.logits(out)
            share = math.sqrt(sum((a - b) ** 2 for a, b in zip(exact, found, strict=True))) / size
            self.assertGreater(share, 0, kind)
            self.assertLess(share, len(LINEAR) * error, kind)
            # Nothing but the linear layers differs.
            differences, _ = self.trireme("checkpoint", "diff", "model", out, "--tolerance", "1e-9", expect=1)
            self.assertIn(f"{len(LINEAR)} differences", differences)
            for line in differences.splitlines()[:-1]:
                self.assertRegex(line, "_proj.weight ", kind)

    def test_refused(self):
        quantize = ("checkpoint", "quantize")
        self.assert_refused(*quantize, "model", "out", "--quantization", "int3", says=["int3", "gptq4"])
        self.assert_refused(*quantize, "model", "out", says="--quantization")
        self.assert_refused(*quantize, "model", "out", "--quantization", "q4_k", says=["q4_k", ".gguf"])
        self.assert_refused(*quantize, "model", "out.gguf", "--quantization", "fp8", says=["fp8", "HuggingFace directory"])
        self.assert_refused(*quantize, "nowhere", "out", "--quantization", "fp8", says="nowhere")
        self.assert_refused(*quantize, "model", "model", "--quantization", "fp8", says="is not empty")
        self.trireme(*quantize, "model", "x.gguf", "--quantization", "q4_0")
        self.assert_refused(*quantize, "model", "x.gguf", "--quantization", "q4_0", says="exists")
        self.assert_refused(*quantize, "x.gguf", "y.gguf", "--quantization", "q8_0", says=["is quantized", "Q4_0", "checkpoint convert"])
        # Its numbers may be.
        self.trireme("checkpoint", "convert", "x.gguf", "plain", "--to", "hf", "--dtype", "bf16")
        self.trireme(*quantize, "plain", "y.gguf", "--quantization", "q8_0")
        self.write("small/config.json", json.dumps({**CONFIG, "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 1,
                                                    "num_key_value_heads": 1, "tie_word_embeddings": True}))
        shapes = {"model.embed_tokens": (V, 8), "model.norm": (8,), "model.layers.0.input_layernorm": (8,),
                  "model.layers.0.post_attention_layernorm": (8,), "model.layers.0.mlp.gate_proj": (12, 8),
                  "model.layers.0.mlp.up_proj": (12, 8), "model.layers.0.mlp.down_proj": (8, 12)}
        shapes |= {f"model.layers.0.self_attn.{x}_proj": (8, 8) for x in "qkvo"}
        write_safetensors(self.folder / "small/model.safetensors",
                          {name + ".weight": (shape, array.array("f", [0.5] * math.prod(shape))) for name, shape in shapes.items()})
        self.assert_refused(*quantize, "small", "out", "--quantization", "gptq4", says="none of the model's matrices fits")
        self.assert_refused(*quantize, "small", "s.gguf", "--quantization", "q4_k", says="none of the model's matrices fits")


if __name__ == "__main__":
    harness.main()
