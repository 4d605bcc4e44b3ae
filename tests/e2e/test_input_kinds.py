#!/usr/bin/env python3
"""Inputs that are FIFOs, sockets, devices or directories are named at once; files that are cut short while they are
read end the run with their name, not with a signal."""
import json
import os
import shutil
import socket
import threading
import time
from pathlib import Path

import harness
import tiny_run

SOON = 10 * harness.PATIENCE  # seconds: an open that waits for a writer takes for ever
# As many ids as the golden llama has rows, and no more.
TOKENIZER = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "decoder": None,
             "model": {"type": "BPE", "vocab": {chr(97 + i): i for i in range(26)}, "merges": []}}
EXAMPLE = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n"


def put_fifo(path):
    os.mkfifo(path)


def put_socket(path):
    folder = os.open(path.parent, os.O_RDONLY)  # a socket's path has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


KINDS = {"a FIFO": put_fifo, "a socket": put_socket, "a device": lambda path: path.symlink_to("/dev/zero"),
         "a directory": lambda path: path.mkdir()}


class Kinds(tiny_run.RunTest):
    def model(self):
        """A directory of the golden llama with a tokenizer."""
        folder = self.folder / "model"
        if not folder.exists():
            folder.mkdir()
            golden = harness.SOURCE / "tests/golden/llama"
            shutil.copy(golden / "config.json", folder)
            shutil.copy(golden / "weights.safetensors", folder / "model.safetensors")
            (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
            for name in ("generation_config", "tokenizer_config", "special_tokens_map", "added_tokens"):
                (folder / f"{name}.json").write_text("{}")
        return folder

    def expect_kinds(self, path, *command, kinds=KINDS, **options):
        """The command names the path and its kind, whatever is there in place of the file."""
        path = self.folder / path
        kept = path.with_name(path.name + ".kept")
        if path.exists():
            path.rename(kept)
        for kind in kinds:
            with self.subTest(path=path.name, command=command, kind=kind):
                KINDS[kind](path)
                try:
                    process = self.start(*command, **options)
                    _, stderr = process.communicate(timeout=SOON)
                    self.assertEqual(process.returncode, 2, stderr)
                    self.assertIn(path.name, stderr)
                    says = [f"is {kind}"] + (["is a folder", "Is a directory"] if kind == "a directory" else [])
                    self.assertTrue(any(text in stderr for text in says), stderr)
                finally:
                    path.rmdir() if kind == "a directory" else path.unlink()
        if kept.exists():
            kept.rename(path)

    NO_FOLDER = [kind for kind in KINDS if kind != "a directory"]

    def test_configurations(self):
        self.expect_kinds("other.json", "pretrain", "--config", "other.json")
        self.expect_kinds("ds.json", "pretrain", "--config", "run.json", "--deepspeed", "ds.json")
        self.expect_kinds("serve.json", "serve", "model", "--config", "serve.json")

    def test_data(self):
        for end in ("bin", "idx"):
            self.expect_kinds(f"train.{end}", "pretrain", "--config", "run.json")
        for name in ("text.txt", "text.jsonl", "text.json", "text.jsonl.gz"):
            self.expect_kinds(name, "data", "prepare", "--input", name, "--output", "prepared", kinds=self.NO_FOLDER)

    def test_models(self):
        model = self.model()
        for name in ("config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json"):
            self.expect_kinds(model / name, "generate", "model", "--prompt", "a", "--max-new-tokens", 1)
        self.expect_kinds("x.gguf", "generate", "x.gguf", "--prompt", "a", kinds=self.NO_FOLDER)
        self.expect_kinds("x.safetensors", "checkpoint", "inspect", "x.safetensors", kinds=self.NO_FOLDER)
        (model / "model.safetensors").unlink()
        self.expect_kinds(model / "model.safetensors.index.json", "generate", "model", "--prompt", "a")

    def test_adapters(self):
        self.model()
        (self.folder / "adapter").mkdir()
        self.write("adapter/adapter_config.json", json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 1,
                                                              "target_modules": ["q_proj"]}))
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            self.expect_kinds(f"adapter/{name}", "generate", "model", "--adapter", "adapter", "--prompt", "a")

    def test_examples(self):
        self.pretrain("--set", "train_steps=6")
        self.write("finetune.json", json.dumps({
            "output_dir": "tuned", "checkpoint": {"load": "run"}, "train_batch_size": 2, "num_train_epochs": 1,
            "finetune": {"train_file": "train.jsonl"}}))
        self.expect_kinds("train.jsonl", "finetune", "--config", "finetune.json", kinds=self.NO_FOLDER)

    def test_other_files(self):
        self.model()
        self.expect_kinds("ids.jsonl", "logits", "model", "--tokens", "ids.jsonl", "--output", "out")
        self.expect_kinds("chat.jinja", "generate", "model", "--chat", "--chat-template", "chat.jinja", "--prompt", "a",
                          kinds=self.NO_FOLDER)  # a folder may hold one
        self.expect_kinds("plan.json", "schedule", "show", "--file", "plan.json")
        self.expect_kinds("keys", "serve", "model", "--port", 0, "--api-key-file", "keys")
        self.expect_kinds("prompts.jsonl", "bench", "serve", "--base-url", "http://127.0.0.1:1", "--model", "x",
                          "--dataset-name", "custom", "--dataset-path", "prompts.jsonl")
        self.write("pem", "")
        for files in (("tls", "pem"), ("pem", "tls")):
            self.expect_kinds("tls", "serve", "model", "--port", 0, "--ssl-certfile", files[0],
                              "--ssl-keyfile", files[1])
        self.expect_kinds("secret", "pretrain", "--config", "run.json", environment={
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RANK": "0", "WORLD_SIZE": "2",
            "TRIREME_COMM_SECRET_FILE": "secret"})

    def test_pipes_of_a_shell_are_read(self):
        for given in ('"$0" pretrain --config <(cat run.json) --set train_steps=6',
                      'cat run.json | "$0" pretrain --config /dev/stdin --set train_steps=6 --set output_dir=two'):
            process = self.start("-c", given, harness.TRIREME, program="bash")
            _, stderr = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, stderr)


class Shrinking(tiny_run.RunTest):
    def expect_named(self, path, size):
        """A run that has begun ends with 2 and the name of a file of its data that is cut to so many bytes."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        self.configure(train_steps=100_000, checkpoint={"save_interval": 0}, evaluation={"eval_interval": 0})
        kept = (self.folder / path).read_bytes()
        process = self.start("pretrain", "--config", "run.json")
        end = time.monotonic() + 120 * harness.PATIENCE
        while not (self.folder / "run/metrics.jsonl").exists() or len(self.records()) < 3:
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        os.truncate(self.folder / path, size)
        _, stderr = process.communicate(timeout=120 * harness.PATIENCE)
        (self.folder / path).write_bytes(kept)
        self.assertEqual(process.returncode, 2, stderr)
        self.assertIn(path, stderr)
        self.assertIn(f"it shrank from {len(kept)} bytes while it was read", stderr)

    def test_data_of_a_run(self):
        # To nothing, and within the last page, where nothing faults.
        for path in ("train.bin", "train.idx"):
            for size in (0, (self.folder / path).stat().st_size - 1):
                with self.subTest(path=path, size=size):
                    self.expect_named(path, size)

    def test_weights_that_are_cut_while_models_are_loaded(self):
        """Again and again while a copy is cut and written anew: the file's name, or a model that was whole."""
        golden = harness.SOURCE / "tests/golden"
        shutil.copytree(golden / "llama", self.folder / "model")
        weights = self.folder / "model/model.safetensors"
        whole = (golden / "llama/weights.safetensors").read_bytes()
        weights.write_bytes(whole)
        stop = threading.Event()

        def cut():
            while not stop.is_set():
                os.truncate(weights, 4096)
                weights.write_bytes(whole)

        thread = threading.Thread(target=cut)
        thread.start()
        codes = set()
        try:
            for number in range(20):
                process = self.start("checkpoint", "import", "model", f"out{number}")
                _, stderr = process.communicate(timeout=120 * harness.PATIENCE)
                codes.add(process.returncode)
                if process.returncode != 0:
                    self.assertIn("model.safetensors", stderr)
                self.assertIn(process.returncode, (0, 2), stderr)
        finally:
            stop.set()
            thread.join()
        print(f"exit codes: {sorted(codes)}")


if __name__ == "__main__":
    harness.main()
