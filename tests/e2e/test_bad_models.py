#!/usr/bin/env python3
"""Models of others that are damaged or do not fit together: one error with all that is wrong, the values, the place and
the way out. Prints what a user reads."""
import copy
import json
import shutil
import struct

import harness
from harness import SOURCE, CommandTest


def read_safetensors(path):
    """Name -> [dtype, shape, bytes]."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    data = raw[8 + size:]
    return {name: [t["dtype"], t["shape"], data[slice(*t["data_offsets"])]] for name, t in header.items()}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


GOLDEN = SOURCE / "tests/golden/llama"
TABLES = ("model.embed_tokens.weight", "lm_head.weight")
CONFIG = json.loads((GOLDEN / "config.json").read_text())
TOKENIZER = json.loads((SOURCE / "tests/golden/tokenizers/words.json").read_text())["tokenizer"]
IDS = max(token["id"] for token in TOKENIZER["added_tokens"]) + 1


class BadModels(CommandTest):
    def model(self, name="model", tensors=None, shards=1, **changes):
        """A directory of the golden llama: other tensors, in shards, its configuration changed."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        tensors = self.tensors() if tensors is None else tensors
        if shards == 1:
            write_safetensors(folder / "model.safetensors", tensors)
            return folder
        weight_map = {}
        for number in range(shards):
            file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
            part = dict(list(tensors.items())[number::shards])
            write_safetensors(folder / file, part)
            weight_map.update(dict.fromkeys(part, file))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        return folder

    @staticmethod
    def tensors():
        return read_safetensors(GOLDEN / "weights.safetensors")

    def refused(self, what, *arguments, says):
        """Prints the error under its name."""
        before = self.snapshot()
        _, stderr = self.trireme(*arguments, expect=2)
        self.assertEqual(self.snapshot(), before)
        self.assertEqual(stderr.count("trireme: error: "), 1, stderr)
        for part in says:
            self.assertIn(part, stderr)
        print(f"\n[{what}] trireme {' '.join(map(str, arguments))}\n{stderr.rstrip()}")

    def test_truncated_and_missing_shards_together(self):
        folder = self.model(shards=4)
        for number, keep in ((1, 5), (3, None), (4, 200)):
            path = folder / f"model-{number:05}-of-00004.safetensors"
            raw = path.read_bytes()
            if keep is None:
                path.unlink()
            else:
                path.write_bytes(raw[:keep] if keep == 5 else raw[:-keep])
        self.refused("truncated and missing shards", "checkpoint", "import", "model", "ours",
                     says=["1 of 4 shards", "model-00003-of-00004.safetensors", "model-00001-of-00004.safetensors: not a",
                           "model-00004-of-00004.safetensors", "truncated", "download these files again"])

    def test_truncated_file(self):
        path = self.model() / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-7])
        self.refused("truncated file", "generate", "model", "--tokenizer", "byte",
                     says=["model/model.safetensors", "truncated", "download it again"])

    def test_wrong_dtype(self):
        tensors = self.tensors()
        for name, dtype in (("model.norm.weight", "I32"), ("model.layers.0.mlp.up_proj.weight", "F8_E4M3")):
            shape = tensors[name][1]
            count = 1
            for size in shape:
                count *= size
            tensors[name] = [dtype, shape, bytes(count * (4 if dtype == "I32" else 1))]
        self.model(tensors=tensors)
        self.refused("wrong dtype", "checkpoint", "export", "model", "out",
                     says=["F8_E4M3 in 1 tensor (model.layers.0.mlp.up_proj.weight) is not supported",
                           "I32 in 1 tensor (model.norm.weight) is not supported", "quantization_config"])

    def test_mismatched_configuration(self):
        layers, inner = CONFIG["num_hidden_layers"], CONFIG["intermediate_size"]
        self.model(num_hidden_layers=layers + 1, intermediate_size=inner + 8)
        self.refused("mismatched config", "checkpoint", "convert", "model", "out.gguf",
                     says=["missing (", f"model.layers.{layers}.mlp.up_proj.weight", "wrong (",
                           f"expected from the config: ({inner + 8}, ", "of different downloads"])
        self.model(hidden_size=CONFIG["hidden_size"] + 1, num_attention_heads="four", rope_thetta=5)
        self.refused("configuration that is none", "generate", "model", "--tokenizer", "byte",
                     says=["model/config.json", "num_attention_heads"])

    def test_tokenizer_with_holes(self):
        folder = self.model()
        lost = (IDS - 4, IDS - 3, IDS - 1)  # three added tokens of four, one of them the last: no hole
        tokenizer = copy.deepcopy(TOKENIZER)
        tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["id"] not in lost]
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.refused("tokenizer with holes", "generate", "model",
                     says=["model/tokenizer.json", f"2 of the ids from 0 to {IDS - 2} have no token: {IDS - 4} to {IDS - 3}",
                           "added_tokens"])

    def test_table_with_more_or_fewer_rows_than_the_configuration_says(self):
        rows = CONFIG["vocab_size"]
        for what, change in (("padded table", 3), ("table too short", -3)):
            tensors = self.tensors()
            for name in TABLES:
                dtype, (_, columns), data = tensors[name]
                width = len(data) // rows
                tensors[name] = [dtype, [rows + change, columns], (data + bytes(3 * width))[:(rows + change) * width]]
            self.model(tensors=tensors)
            self.refused(what, "generate", "model", "--tokenizer", "byte",
                         says=[f"embed_tokens.weight is ({rows + change}, ", f"vocab_size {rows} -> {rows + change}",
                               "lm_head.weight"])

    def test_tokenizer_and_model_of_different_sizes(self):
        folder = self.model()  # fewer rows than the tokenizer has ids
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        self.assertLess(CONFIG["vocab_size"], IDS)
        self.refused("tokenizer larger than the model", "generate", "model",
                     says=[f"has {IDS} ids, the model only {CONFIG['vocab_size']}", f"no row for {CONFIG['vocab_size']}",
                           "--tokenizer"])
        # A padded table is usual: what no token stands for is never drawn.
        rows = 4 * IDS
        tensors = self.tensors()
        for name in TABLES:
            dtype, (old, columns), data = tensors[name]
            tensors[name] = [dtype, [rows, columns], (data * (rows // old + 1))[:rows * (len(data) // old)]]
        folder = self.model(tensors=tensors, vocab_size=rows)
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        out, _ = self.trireme("generate", "model", "--prompt", "the", "--max-new-tokens", "20", "--temperature", "5")
        self.assertTrue(out.startswith("the"))


if __name__ == "__main__":
    harness.main()
