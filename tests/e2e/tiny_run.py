"""A run small enough for a test: text, token files, a configuration, and how to read what a run wrote."""
import json
import os
import random
import re
import signal
import time
from pathlib import Path

import harness

WORDS = "the oar of a ship with three ranks rowing as one over a quiet sea by night".split()


def text(words, seed):
    source = random.Random(seed)
    return " ".join(source.choice(WORDS) for _ in range(words)) + "\n"


def config(**changes):
    """The tiny configuration with top-level keys replaced."""
    base = {
        "model": {"model_type": "llama", "vocab_size": 257, "max_position_embeddings": 32,
                  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True},
        "output_dir": "run", "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
        "sequence_length": 32, "train_steps": 30, "seed": 7,
        "optimizer": {"type": "AdamW", "params": {"lr": 5e-3}},
        "scheduler": {"type": "cosine", "params": {"warmup_steps": 5}},
        "data": {"train_data_path": "train", "valid_data_path": "valid", "tokenizer": "byte"},
        "checkpoint": {"save_interval": 10, "keep_last": 3},
        "evaluation": {"eval_interval": 10, "eval_iters": 2},
        "cpu": {"threads_per_rank": 1},
    }
    base.update(changes)
    return base


class RunTest(harness.CommandTest):
    """Tests that train: setUp() leaves token files train and valid, and run.json."""

    def setUp(self):
        super().setUp()
        self.write("train.txt", text(3000, 1))
        self.write("valid.txt", text(300, 2))
        for name in ("train", "valid"):
            self.trireme("data", "prepare", "--input", f"{name}.txt", "--output", name)
        self.configure()

    def configure(self, **changes):
        self.write("run.json", json.dumps(config(**changes)))

    def pretrain(self, *arguments, **options):
        return self.trireme("pretrain", "--config", "run.json", *arguments, **options)

    def records(self, run="run"):
        text = (self.folder / run / "metrics.jsonl").read_text()
        whole = text[:text.rfind("\n") + 1]  # of a run that goes on
        return [json.loads(line) for line in whole.splitlines()]

    def recorded_steps(self, run="run"):
        path = self.folder / run / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def wait_for_steps(self, process, steps):
        """Waits until the run has so many steps on record; fails if its process ends before, or after four minutes."""
        deadline = time.monotonic() + 240 * harness.PATIENCE
        ended = False
        while self.recorded_steps() < steps:
            if ended:
                self.fail(f"the run ended before {steps} steps: {process.communicate(timeout=240)}")
            self.assertLess(time.monotonic(), deadline, f"the run has no {steps} steps")
            time.sleep(0.002)
            ended = process.poll() is not None

    def kill_at(self, steps):
        """Runs or resumes on two ranks; kills both once so many steps more are on record."""
        steps += self.recorded_steps()
        process = self.start("pretrain", "--config", "run.json", "--ranks", "2", "--resume", "auto")
        self.wait_for_steps(process, steps)
        ranks = self.ranks_of_this_run()
        self.assertEqual(len(ranks), 2)
        for rank in ranks:
            os.kill(rank, signal.SIGKILL)
        process.communicate(timeout=240)

    def assert_members_are_documented(self, run="run"):
        """Every member of the records has a row in docs/reference/metrics.md."""
        page = (harness.SOURCE / "docs/reference/metrics.md").read_text()
        missing = []
        for member in sorted({member for record in self.records(run) for member in record}):
            name = re.sub(r"^expert_load_\d+_", "expert_load_3_", member)
            if name != "comm_window_bytes":
                name = re.sub(r"^comm_\w+_bytes$", "comm_<kind>_bytes", name)
            if not re.search(rf"(?m)^\|[^|]*`{re.escape(name)}`", page):
                missing.append(member)
        self.assertEqual(missing, [], "docs/reference/metrics.md does not have them")

    def losses(self, run="run"):
        """What must be the same bits in two equal runs, step by step."""
        return [(r["step"], r["loss"], r["grad_norm"], r.get("validation_loss")) for r in self.records(run)]

    def weights(self, step, run="run"):
        """The checksums of every tensor of a checkpoint."""
        path = self.folder / run / "checkpoints" / f"step-{step:08d}" / "manifest.json"
        manifest = json.loads(path.read_text())
        return json.dumps(manifest["tensors"], sort_keys=True)

    def ranks_of_this_run(self):
        """Process numbers of the ranks that run in self.folder."""
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == os.path.realpath(self.folder):
                    if b"OMPI_COMM_WORLD_RANK" in Path(f"/proc/{entry}/environ").read_bytes():
                        found.append(int(entry))
            except OSError:
                continue
        return found
