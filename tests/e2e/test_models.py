#!/usr/bin/env python3
"""Third-party models on the command line: refusals, exit codes of diff, ranks.

Conversions that work: docs/guide/bring-your-model.md."""
import json
import shutil
import struct

import harness
from harness import SOURCE, CommandTest


def numbers(path, name):
    """A float32 tensor of a .safetensors as a list."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    begin, end = json.loads(raw[8:8 + size])[name]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", raw[8 + size + begin:8 + size + end])


class Models(CommandTest):
    def model(self, name, golden="llama"):
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(SOURCE / "tests/golden" / golden / "config.json", folder)
        shutil.copy(SOURCE / "tests/golden" / golden / "weights.safetensors", folder / "model.safetensors")
        return folder

    def test_refused(self):
        self.model("model")
        self.assert_refused("generate", "some-org/model", says=["hf download some-org/model", "huggingface/hub"])
        self.assert_refused("eval", "model", says=["has no validation data", "--data PREFIX"])
        self.assert_refused("generate", "model", says=["names no tokenizer", "--tokenizer"])
        self.assert_refused("generate", "model", "--tokenizer", "byte", says=["has 257 ids, the model only 61"])
        self.assert_refused("checkpoint", "export", "model", "model", says="is not empty")
        self.assert_refused("checkpoint", "export", "model", "out", "--max-shard-size", "5 apples", says="5 apples")
        self.assert_refused("checkpoint", "import", "nowhere", "out", says="nowhere")
        (self.folder / "model/model.safetensors").rename(self.folder / "model/pytorch_model.bin")
        self.assert_refused("checkpoint", "import", "model", "out", says=["pytorch_model.bin", "safe_serialization"])
        self.write("x.gguf", b"GGUF\x03\0\0\0")
        self.assert_refused("generate", "x.gguf", says=["x.gguf", "truncated"])
        self.assert_refused("generate", "x.gguf", "--ranks", "2", says=["x.gguf", "truncated"])

    def test_generation_ends_at_any_of_several_ends(self):
        folder = self.model("model")
        words = {chr(33 + i): i for i in range(61)}
        tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                     "post_processor": None, "decoder": {"type": "Fuse"},
                     "model": {"type": "BPE", "vocab": words, "merges": []}}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        arguments = ("generate", "model", "--prompt", "!\"#", "--temperature", "0", "--max-new-tokens", "5")
        text, _ = self.trireme(*arguments)
        self.assertEqual(len(text.strip()), 8)
        third = words[text.strip()[5]]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [60, third]}))
        ended, _ = self.trireme(*arguments)
        self.assertTrue(text.startswith(ended.strip()))
        self.assertLess(len(ended.strip()), 6)

    def cached(self, *names, commit="0123abcd"):
        """A model in the hub's cache as huggingface_hub keeps it: snapshots are links to blobs."""
        for name in names:
            folder = self.folder / "home/hub" / ("models--" + name.replace("/", "--"))
            (folder / "refs").mkdir(parents=True)
            (folder / "refs/main").write_text(commit)
            (folder / "blobs").mkdir()
            snapshot = folder / "snapshots" / commit
            snapshot.mkdir(parents=True)
            for number, file in enumerate(self.model("downloaded").iterdir()):
                (folder / "blobs" / str(number)).write_bytes(file.read_bytes())
                (snapshot / file.name).symlink_to(f"../../blobs/{number}")
            shutil.rmtree(self.folder / "downloaded")
        return {"HF_HOME": str(self.folder / "home"), "HF_HUB_CACHE": ""}

    def test_every_command_reads_models_of_the_hubs_cache_both_ways(self):
        """Model as argument or option, a name or its folder, each with the same result."""
        environment = self.cached("org/small", "other")
        folder = self.folder / "home/hub/models--org--small"
        self.write("ids.jsonl", "[1, 2, 3]\n")
        self.write("text.txt", "abc " * 400)
        names = ("org/small", "org/small@main", "org/small@0123abcd", folder, folder / "snapshots/0123abcd", "other")
        for number, name in enumerate(names):
            for option in ([], ["--model"]):
                run = [*option, name]
                out, _ = self.trireme("checkpoint", "inspect", *run, environment=environment)
                self.assertIn("model_type llama", out)
                ids = ["--tokens", "ids.jsonl", "--output", f"{number}{len(option)}.safetensors"]
                self.trireme("logits", *run, *ids, environment=environment)
        written = [path.read_bytes() for path in sorted(self.folder.glob("*.safetensors"))]
        self.assertEqual(len(written), 2 * len(names))
        self.assertEqual(len(set(written)), 1)
        for command in ("generate", "eval", "serve"):  # as far as what this model lacks
            messages = {self.trireme(command, *run, expect=2, environment=environment)[1].split(":", 2)[-1]
                        for run in (["org/small"], ["--model", "org/small"])}
            self.assertEqual(len(messages), 1, messages)
            self.assertNotIn("no such run", messages.pop())

    def test_copies_take_the_model_as_option_in_any_place(self):
        environment = self.cached("org/small")
        for number, arguments in enumerate((["org/small", "{}"], ["--model", "org/small", "{}"], ["{}", "--model", "org/small"])):
            target = f"copy{number}.gguf"
            self.trireme("checkpoint", "convert", *[target if a == "{}" else a for a in arguments], environment=environment)
        self.assertEqual(len({path.read_bytes() for path in self.folder.glob("copy*.gguf")}), 1)
        self.trireme("checkpoint", "diff", "org/small", "copy0.gguf", "--tolerance", "1e-6", environment=environment)
        self.assert_refused("checkpoint", "convert", "a", "b", "--model", "c", says=["given twice", '"a"', '"c"'])
        self.assert_refused("checkpoint", "convert", "a", says="target is required")
        self.assert_refused("checkpoint", "merge-lora", "--model", "a", "b", says="target is required")
        self.assert_refused("checkpoint", "quantize", "--quantization", "q8_0", says="from is required")

    def test_a_run_starts_from_a_model_of_the_hubs_cache(self):
        environment = self.cached("org/small")
        self.write("run.json", json.dumps({"model": "org/small", "checkpoint": {"load": "org/small"},
                                           "output_dir": "run", "train_steps": 1, "train_batch_size": 1,
                                           "sequence_length": 8, "data": {"data_path": "synthetic"}}))
        out, _ = self.trireme("config", "resolve", "--config", "run.json", environment=environment)
        resolved = json.loads(out)
        self.assertTrue(resolved["checkpoint"]["load"].endswith("models--org--small/snapshots/0123abcd"), resolved)
        self.assertEqual(resolved["model"]["model_type"], "llama")
        self.assert_refused("config", "resolve", "--config", "run.json", "--set", "checkpoint.load=org/small@v9",
                            says=["checkpoint.load", 'revision "v9"', "it has 0123abcd"], environment=environment)

    def test_inspect_lists_models_of_others(self):
        self.model("model")
        out, _ = self.trireme("checkpoint", "inspect", "model")
        self.assertIn("model_type llama", out)
        self.assertIn("F64", out)
        self.trireme("checkpoint", "convert", "model", "x.gguf", "--dtype", "fp32")
        out, _ = self.trireme("checkpoint", "inspect", "x.gguf", "--tensors")
        self.assertIn("token_embd.weight", out)
        (self.folder / "model/config.json").unlink()
        out, _ = self.trireme("checkpoint", "inspect", "model")
        self.assertIn("no config.json", out)

    def test_diff_says_by_its_exit_code(self):
        self.model("a")
        self.trireme("checkpoint", "export", "a", "b", "--dtype", "bf16")
        self.trireme("checkpoint", "diff", "a", "a", expect=0)
        out, _ = self.trireme("checkpoint", "diff", "a", "b", expect=1)
        self.assertIn("float64 | bfloat16", out)
        self.trireme("checkpoint", "diff", "a", "b", "--tolerance", "0.01", expect=0)
        self.trireme("checkpoint", "diff", "a", "nowhere", expect=2)

    def test_logits_of_two_ranks_are_those_of_one(self):
        for golden in ("llama", "gpt2"):
            self.model(golden, golden)
            self.write("tokens", "[1, 2, 3, 4, 5]\n[60]\n")
            arguments = ("logits", golden, "--tokens", "tokens", "--dtype", "fp32", "--output")
            self.trireme(*arguments, "one.safetensors")
            self.trireme(*arguments, "two.safetensors", "--ranks", "2", "--tensor-parallel", "2")
            one, two = (numbers(self.folder / f"{n}.safetensors", "logits") for n in ("one", "two"))
            self.assertEqual(len(one), 6 * 61)
            largest = max(map(abs, one))
            self.assertGreater(largest, 0.01)
            for a, b in zip(one, two):
                self.assertLess(abs(a - b), 1e-5 * largest)
        self.write("tokens", "[61]\n")
        self.assert_refused(*arguments, "x.safetensors", says=["line 1", "61 is not a token id from 0 to 60"])


if __name__ == "__main__":
    harness.main()
