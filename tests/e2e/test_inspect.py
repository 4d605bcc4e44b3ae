#!/usr/bin/env python3
"""What trireme checkpoint inspect knows of a model before its weights are there: from config.json alone."""
import json
import shutil
import struct

import harness
from harness import SOURCE, CommandTest

GOLDEN = SOURCE / "tests/golden"
PUBLISHED = SOURCE / "tests/transformer/families/published"
LLAMA = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}


def elements(path):
    """Elements of the parameters of a .safetensors file: all but the selection biases of routers."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    total = 0
    for name, tensor in header.items():
        count = 1
        for dimension in tensor["shape"]:
            count *= dimension
        total += 0 if name.endswith("e_score_correction_bias") else count
    return total


class Inspect(CommandTest):
    def config(self, name="config.json", **changes):
        return self.write(name, json.dumps({**LLAMA, **changes}))

    def describe(self, *arguments):
        out, _ = self.trireme("checkpoint", "inspect", *arguments, "--json")
        self.assertEqual(out.count("\n"), 1)
        return json.loads(out)

    def refused(self, *arguments, says):
        """Exit code 2, every string of `says`, and no line that has none of them."""
        out, stderr = self.trireme("checkpoint", "inspect", *arguments, expect=2)
        self.assertEqual(out, "")
        self.assertEqual(stderr.count("trireme: error: "), 1, stderr)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, stderr)
        return stderr

    def test_a_config_alone_in_its_folder(self):
        (self.folder / "model").mkdir()
        self.config("model/config.json", torch_dtype="bfloat16", use_cache=True)
        for place in ("model", "model/config.json"):
            out, _ = self.trireme("checkpoint", "inspect", place)
            for text in ("model/config.json: model_type llama, Llama style model", "no safetensors",
                         "LlamaForCausalLM, 2 layers of width 32", "4 attention heads of 8, 2 of keys and values",
                         "longest sequence", "128 tokens", "parameters", "q8_0", "KV cache", "training on one rank, AdamW",
                         "float32", "bfloat16", "optimizer state", "torch_dtype, use_cache"):
                self.assertIn(text, out)
        self.assertEqual(self.describe("model"), self.describe("model/config.json"))
        (self.folder / "model/config.json").rename(self.folder / "any-name.json")
        self.assertEqual(self.describe("any-name.json")["parameters"], 19616)

    def test_the_numbers(self):
        self.config()
        known = self.describe("config.json")
        # Embedding and head 64 x 32; a layer: q and o 32 x 32, k and v 16 x 32, three of 48 x 32, two norms; a last norm.
        count = 2 * 64 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32) + 32
        self.assertEqual((known["parameters"], known["active_parameters"]), (count, count))
        self.assertEqual(known["kv_cache"]["max_model_len"], 128)
        # Keys and values of two heads of 8, in two layers; 8-bit rows have a scale of 4 bytes.
        self.assertEqual(known["kv_cache"]["float32"], {"bytes_per_token": 2 * 2 * 2 * 8 * 4, "bytes": 128 * 256})
        self.assertEqual(known["kv_cache"]["int8"]["bytes_per_token"], 2 * 2 * 2 * (8 + 4))
        self.assertEqual(self.describe("config.json", "--max-model-len", 10)["kv_cache"]["bfloat16"]["bytes"], 16 * 128)
        for dtype, size in (("float32", 4), ("bfloat16", 2), ("float16", 2)):  # padded to cache lines
            self.assertTrue(count * size <= known["weights"][dtype] < 1.1 * count * size)
        self.assertLess(known["weights"]["q4_0"], known["weights"]["q8_0"])
        self.assertLess(known["weights"]["q8_0"], known["weights"]["bfloat16"])
        for dtype, value, gradient, state in (("float32", 4, 4, 8), ("bfloat16", 2, 4, 12)):  # with master weights
            row = known["training"][dtype]
            elements_held = row["parameters"] // value
            self.assertEqual(row["gradients"], elements_held * gradient)
            self.assertEqual(row["optimizer_state"], elements_held * state)
            self.assertGreater(row["activations"], 0)
            self.assertEqual(row["total"], sum(row.values()) - row["total"])

    def test_windows_bound_what_is_read(self):
        self.config(model_type="mistral", sliding_window=16)
        known = self.describe("config.json")
        self.assertIn("window of 16 tokens in 2 of 2 layers", known["features"])
        row = known["kv_cache"]["float32"]
        # Three blocks of 16 tokens: a sequence is cut at multiples of 32, 47 tokens after the beginning at most.
        self.assertEqual(row["bytes"], 48 * row["bytes_per_token"])
        self.assertEqual(row["bytes_read_by_last_token"], 16 * row["bytes_per_token"])

    def test_layers_with_windows_keep_their_windows(self):
        kinds = ["sliding_attention"] * 3 + ["full_attention"]
        self.config(model_type="qwen2", num_hidden_layers=8, layer_types=2 * kinds, use_sliding_window=True,
                    sliding_window=1024, max_position_embeddings=32768)
        row = self.describe("config.json")["kv_cache"]["float32"]
        of_layer = row["bytes_per_token"] // 8
        self.assertEqual(of_layer, 2 * 2 * 8 * 4)
        kept = 16 * -(-(1024 + 31) // 16)
        self.assertEqual(row["bytes"], of_layer * (2 * 32768 + 6 * kept))
        self.assertEqual(row["bytes_read_by_last_token"], of_layer * (2 * 32768 + 6 * 1024))

    def test_counts_are_those_of_the_files(self):
        folders = [*sorted((GOLDEN / "hf").iterdir()), GOLDEN / "peft/base"]
        self.assertGreater(len(folders), 15)
        for folder in folders:
            with self.subTest(model=folder.name):
                out, _ = self.trireme("checkpoint", "inspect", folder)  # weights and configuration
                count = elements(folder / "model.safetensors")
                self.assertIn(f", {count} parameters", out)
                self.assertEqual(self.describe(folder / "config.json")["parameters"], count)
        for name in ("gpt2", "llama", "llama_variant", "mixtral"):
            with self.subTest(model=name):
                count = elements(GOLDEN / name / "weights.safetensors")
                self.assertEqual(self.describe(GOLDEN / name / "config.json")["parameters"], count)

    def test_shipped_and_published_configurations(self):
        for path in [*sorted((SOURCE / "configs/models").glob("*.json")), *sorted(PUBLISHED.glob("*.json"))]:
            with self.subTest(config=path.name):
                known = self.describe(path)
                self.assertLessEqual(known["active_parameters"], known["parameters"])
        known = self.describe(PUBLISHED / "deepseek-v3.json")
        self.assertEqual(known["parameters"], 671026404352)
        self.assertEqual(known["active_parameters"], 37552282624)
        self.assertEqual(known["published_quantization"], "F8_E4M3 in blocks")
        self.assertIn("256 experts of width 2048 in 58 of 61 layers, 8 per token, from 4 of 8 groups", known["features"])
        known = self.describe(PUBLISHED / "gemma-3-4b.json")
        self.assertTrue(any(note.startswith("text_config: the text model is read") for note in known["notes"]))

    def test_a_model_with_weights_is_described_after_its_tensors(self):
        shutil.copytree(GOLDEN / "hf/qwen3", self.folder / "model")
        out, _ = self.trireme("checkpoint", "inspect", "model", "--max-model-len", 8)
        self.assertIn("model_type qwen3", out)
        self.assertIn("sequence of 8 tokens", out)
        self.trireme("checkpoint", "convert", "model", "x.gguf", "--dtype", "fp32")
        self.trireme("checkpoint", "import", "model", "ours")
        counts = {self.describe(path)["parameters"] for path in ("model", "x.gguf", "ours")}
        self.assertEqual(len(counts), 1)
        self.refused("model/model.safetensors", "--json", says="a .safetensors file has no model configuration")

    def test_all_refusals_at_once_with_the_mathematics(self):
        self.config(final_logit_softcapping=30.0, is_causal=False, hidden_act="gelu",
                    quantization_config={"quant_method": "tomorrow"})
        stderr = self.refused("config.json", says=[
            "3 problems", "final_logit_softcapping: 30.0 is not available in this version (logits capped by tanh)",
            "is_causal: false is not available in this version (attention to later tokens); only true is",
            'hidden_act: "gelu" is not available in this version; use silu', "quant_method"])
        self.assertEqual(len(stderr.splitlines()), 5)
        # With weights: the tensors are listed, and the exit code is the same.
        shutil.copytree(GOLDEN / "hf/llama", self.folder / "model")
        model = json.loads((self.folder / "model/config.json").read_text())
        self.write("model/config.json", json.dumps({**model, "attention_chunk_size": 8}))
        out, stderr = self.trireme("checkpoint", "inspect", "model", expect=2)
        self.assertIn("F32", out)
        self.assertIn("attention_chunk_size: 8 is not available in this version (attention inside chunks)", stderr)

    def test_unknown_families(self):
        self.config(model_type="qwen3_next")
        self.refused("config.json", says=['model_type: "qwen3_next" is not available', "nearest names: qwen3_moe, qwen3"])
        self.config(model_type="lama")
        self.refused("config.json", says="nearest names: llama")

    def test_a_cache_beyond_64_bits(self):
        self.config(max_position_embeddings=1 << 30, rope_scaling={"rope_type": "linear", "factor": 1e12})
        self.refused("config.json", says="; give a smaller --max-model-len")
        out, _ = self.trireme("checkpoint", "inspect", "config.json", "--max-model-len", 8)
        self.assertIn("sequence of 8 tokens", out)
        self.config()
        self.refused("config.json", "--max-model-len", 129, says="--max-model-len 129: the model has 128 positions")

    def test_hostile_files(self):
        hostile = {
            "sizes.json": ('{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, '
                           '"num_hidden_layers": 1000000000000000000, "num_attention_heads": 4}', "num_hidden_layers"),
            "above.json": (json.dumps({**LLAMA, "hidden_size": 1 << 70}), "hidden_size"),
            "product.json": (json.dumps({**LLAMA, "hidden_size": 1 << 20, "intermediate_size": 1 << 22,
                                         "num_hidden_layers": 1 << 16}), "the sizes make a model of"),
            "nan.json": (json.dumps({**LLAMA, "rope_theta": float("nan")}), "rope_theta"),
            "infinity.json": (json.dumps({**LLAMA, "rms_norm_eps": float("inf")}), "rms_norm_eps"),
            "negative.json": (json.dumps({**LLAMA, "num_attention_heads": -4}), "num_attention_heads"),
            "deep.json": ('{"a":' * 100000, "nested deeper than 64 levels"),
            "empty.json": ("", "is empty"),
            "list.json": ("[1, 2]", "must be an object"),
            "half.json": ('{"model_type": "llama"', "not valid JSON"),
            "text.json": (json.dumps({"model_type": 5}), "must be a string"),
            "none.json": ("{}", "model_type: is required"),
        }
        for name, (content, says) in hostile.items():
            with self.subTest(file=name):
                self.write(name, content)
                lines = self.refused(name, says=says).splitlines()
                self.assertTrue(len(lines) == 1 or lines[0].endswith(f"{len(lines) - 1} problems"), lines)
        (self.folder / "nothing").mkdir()
        stderr = self.refused("nothing", says="holds neither a checkpoint (manifest.json, latest) nor a model (config.json")
        self.assertEqual(len(stderr.splitlines()), 1, stderr)
        self.refused("nowhere/config.json", says="nowhere/config.json")
        # Large within its bounds: no memory is needed for what is only counted.
        self.config(num_hidden_layers=20000, hidden_size=8192, intermediate_size=8192, num_attention_heads=64,
                    num_key_value_heads=64)
        self.assertNotIn("activations", self.describe("config.json")["training"]["float32"])


if __name__ == "__main__":
    harness.main()
