#!/usr/bin/env python3
"""Conversions that are killed, or whose disk is full, and asked for again: nothing passes for finished in between, the
same command goes on, and ends with the bytes of one that was never interrupted."""
import contextlib
import json
import os
import random
import re
import signal
import struct
import subprocess
import time
import unittest

import harness
from harness import CommandTest

MIB = 1 << 20


def write_safetensors(path, dtype, shapes):
    """Finite numbers without order."""
    size = {"F16": 2, "F32": 4}[dtype]
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + size * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pattern = random.Random(5).randbytes(1_000_003).translate(bytes(byte & 0x3B for byte in range(256)))
    path.write_bytes(struct.pack("<Q", len(text)) + text + (pattern * (at // len(pattern) + 1))[:at])


def write_model(folder):
    """A llama of 40 MiB."""
    hidden, inner, vocabulary, layers = 512, 2048, 4000, 4
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden],
              "lm_head.weight": [vocabulary, hidden]}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in "qkvo":
            shapes[f"{prefix}self_attn.{name}_proj.weight"] = [hidden, hidden]
        for name in ("gate", "up"):
            shapes[f"{prefix}mlp.{name}_proj.weight"] = [inner, hidden]
        shapes[prefix + "mlp.down_proj.weight"] = [hidden, inner]
        for name in ("input", "post_attention"):
            shapes[f"{prefix}{name}_layernorm.weight"] = [hidden]
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", "F16", shapes)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": 8, "max_position_embeddings": 128,
        "tie_word_embeddings": False}))


def write_adapter(folder):
    folder.mkdir()
    name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    shapes = {name.format(layer, half): shape for layer in range(4) for half, shape in (("A", [4, 512]), ("B", [512, 4]))}
    write_safetensors(folder / "adapter_model.safetensors", "F32", shapes)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}))


COMMANDS = {
    "export": ("export", "model", "TO", "--dtype", "bf16"),
    "export in shards": ("export", "model", "TO", "--max-shard-size", "9MB"),
    "import": ("import", "model", "TO"),
    "convert to GGUF": ("convert", "model", "TO", "--to", "gguf", "--dtype", "q8_0"),
    "merge-lora": ("merge-lora", "model", "adapter", "TO"),
}


class Interrupted(CommandTest):
    def setUp(self):
        super().setUp()
        write_model(self.folder / "model")
        write_adapter(self.folder / "adapter")

    @staticmethod
    def arguments(command, to):
        return ["checkpoint", *(to if word == "TO" else word for word in COMMANDS[command])]

    def contents(self, name):
        path = self.folder / name
        files = [path] if path.is_file() else [p for p in sorted(path.rglob("*")) if p.is_file()]
        return {str(file.relative_to(path)): file.read_bytes() for file in files}

    def whole(self, command):
        """What an uninterrupted one writes."""
        self.trireme(*self.arguments(command, "whole"))
        return self.contents("whole")

    def written(self, to):
        """Bytes of tensors there are, finished or not."""
        path = self.folder / to
        total = 0
        for file in [path.with_name(path.name + ".tmp"), *path.rglob("*.safetensors*")]:
            try:
                total += file.stat().st_size
            except OSError:  # renamed in between
                pass
        return total

    def kill_at(self, command, to, size):
        """Whether the kill came in time."""
        process = self.start(*self.arguments(command, to))
        while process.poll() is None and self.written(to) < size:
            time.sleep(0.0005)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        out = process.communicate()
        self.assertIn(process.returncode, (0, -signal.SIGKILL), out)
        return process.returncode != 0

    def assert_unfinished(self, to):
        """No command takes it for a model."""
        self.trireme("checkpoint", "diff", "model", to, expect=2)
        self.trireme("generate", to, "--tokenizer", "byte", expect=2)

    def kept_mib(self, stdout):
        found = re.search(r", ([\d.]+) MiB kept from an interrupted copy", stdout)
        return float(found[1]) if found else 0.0

    def test_killed_and_asked_again(self):
        for command in COMMANDS:
            whole, kills = self.whole(command), 0
            for share in (0.2, 0.5, 0.8, *[0.1] * 50):
                if share == 0.1 and kills:
                    break
                with self.subTest(command=command, share=share):
                    size = share * sum(map(len, whole.values()))
                    # On a busy machine the kill may come behind the last byte: then nothing is unfinished.
                    if not self.kill_at(command, "copy", size) or self.contents("copy") == whole:
                        self.remove("copy")
                        continue
                    kills += 1
                    begun = [*self.folder.glob("copy.*"), *self.folder.glob("copy/**/*.journal")]
                    self.assert_unfinished("copy")
                    stdout, _ = self.trireme(*self.arguments(command, "copy"))
                    print(f"\n{share:.0%}: {stdout.strip()}")
                    if begun:  # or between a shard that was finished and the manifest
                        self.assertGreaterEqual(self.kept_mib(stdout), size / MIB - 2)
                    self.assertEqual(self.contents("copy"), whole)
                    self.remove("copy")
            self.assertGreater(kills, 0, f"{command} was always faster")
            self.remove("whole")

    def remove(self, name):
        subprocess.run(["rm", "-rf", self.folder / name], check=True)

    def test_a_limit_is_met_and_lifted(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                whole = self.whole(command)
                largest = max(map(len, whole.values()))
                limit = f"ulimit -f {largest // 2 // 1024}; exec \"$0\" \"$@\""
                _, stderr = self.trireme(*self.arguments(command, "copy"), prefix=("bash", "-c", limit), expect=2)
                self.assertIn("file size limit", stderr)
                self.assert_unfinished("copy")
                stdout, _ = self.trireme(*self.arguments(command, "copy"))
                self.assertGreater(self.kept_mib(stdout), largest / MIB / 2 - 3)
                self.assertEqual(self.contents("copy"), whole)
                self.remove("copy")
                self.remove("whole")

    @unittest.skipUnless(os.geteuid() == 0 and harness.can_mount_tmpfs(), "mounting a small tmpfs needs root")
    def test_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        whole = self.whole("import")
        # Another program takes the room while the copy runs: it is there when the copy looks.
        process = self.start(*self.arguments("import", "disk/copy"), prefix=("nice", "-n", "19"))
        while process.poll() is None and self.written("disk/copy") < 4 * MIB:
            time.sleep(0.0005)
        with contextlib.suppress(OSError):  # the copy was faster: what is left is taken, and it still wants more
            (disk / "other").write_bytes(bytes(24 * MIB))
        _, stderr = process.communicate(timeout=300)
        if process.returncode != 0:
            self.assertEqual(process.returncode, 2, stderr)
            self.assertIn("space", stderr)
            self.assert_unfinished("disk/copy")
            (disk / "other").unlink()
            self.trireme(*self.arguments("import", "disk/copy"))
        self.assertEqual(self.contents("disk/copy"), whole)

    @unittest.skipUnless(os.geteuid() == 0 and harness.can_mount_tmpfs(), "mounting a small tmpfs needs root")
    def test_stopped_behind_the_last_shard_needs_no_second_room(self):
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        write = f"ulimit -f {20 * 1024}; exec \"$0\" \"$@\""
        self.trireme(*self.arguments("import", "disk/copy"), prefix=("bash", "-c", write), expect=2)
        obstacle = disk / "copy/step-00000000.tmp/manifest.json"
        obstacle.mkdir()
        self.trireme(*self.arguments("import", "disk/copy"), expect=2)
        self.assertTrue(list(obstacle.parent.glob("*.safetensors")))
        obstacle.rmdir()
        self.trireme(*self.arguments("import", "disk/copy"))
        self.assertEqual(self.contents("disk/copy"), self.whole("import"))

    def test_a_source_that_changed_is_begun_anew(self):
        for command in ("export", "import", "convert to GGUF"):
            with self.subTest(command=command):
                write = f"ulimit -f {20 * 1024}; exec \"$0\" \"$@\""
                self.trireme(*self.arguments(command, "copy"), prefix=("bash", "-c", write), expect=2)
                path = self.folder / "model/model.safetensors"
                raw = bytearray(path.read_bytes())
                raw[-9] ^= 1
                path.write_bytes(raw)
                stdout, stderr = self.trireme(*self.arguments(command, "copy"))
                self.assertIn("starting over", stderr)
                self.assertEqual(self.kept_mib(stdout), 0)
                self.assertEqual(self.contents("copy"), self.whole(command))
                self.remove("copy")
                self.remove("whole")


if __name__ == "__main__":
    harness.main()
