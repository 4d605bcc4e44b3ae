"""ZeRO from outside: every stage trains the same run, states may lie in a file, checkpoints go between layouts."""
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

import harness
import tiny_run

STAGE = "zero_optimization.stage"
OFFLOAD = "zero_optimization.offload_optimizer"


class MemoryLimit:
    """A control group whose processes together get so many bytes; skips the test where none can be made."""

    def __init__(self, test, limit):
        root = Path("/sys/fs/cgroup")
        if (root / "cgroup.controllers").exists():
            parent, file = root, "memory.max"
        else:
            parent, file = root / "memory", "memory.limit_in_bytes"
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="trireme-test-", dir=parent))
        except OSError as error:
            raise unittest.SkipTest(f"no control group can be made: {error}") from error
        test.addCleanup(self.folder.rmdir)
        try:
            self.file = self.folder / file
            self.file.write_text(str(limit))
        except OSError as error:
            raise unittest.SkipTest(f"the control group takes no memory limit: {error}") from error

    def run(self, command, folder):
        script = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return subprocess.run(["sh", "-c", script, "sh", *command], cwd=folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)


def swap_is_off():
    return len(Path("/proc/swaps").read_text().splitlines()) < 2


class Zero(tiny_run.RunTest):
    def test_every_stage_is_the_same_run(self):
        self.configure(train_steps=6, evaluation={"eval_interval": 3, "eval_iters": 1})
        self.pretrain("--ranks", "2", "--set", "output_dir=stage0")
        want = self.losses("stage0")
        for stage in (1, 2, 3):
            self.pretrain("--ranks", "2", "--set", f"output_dir=stage{stage}", "--set", f"{STAGE}={stage}")
            got = self.losses(f"stage{stage}")
            self.assertEqual(len(got), len(want))
            for one, other in zip(got, want):
                for a, b in zip(one, other):
                    if b is not None:
                        self.assertAlmostEqual(a / b, 1, delta=1e-4)

    def test_a_checkpoint_of_stage_3_continues_under_another_layout(self):
        self.configure(train_steps=6, checkpoint={"save_interval": 3, "keep_last": 0})
        self.pretrain("--ranks", "2", "--set", f"{STAGE}=3")
        whole = self.losses()
        self.pretrain("--set", "output_dir=other", "--set", "checkpoint.load=run/checkpoints/step-00000003")
        for one, other in zip(self.losses("other")[-3:], whole[-3:]):
            self.assertEqual(one[0], other[0])
            self.assertAlmostEqual(one[1] / other[1], 1, delta=1e-4)

    def test_states_in_a_file_change_nothing(self):
        self.configure(train_steps=6, bf16={"enabled": True})
        self.pretrain("--set", "output_dir=memory")
        file = ["--set", f"{OFFLOAD}.device=nvme", "--set", f"{OFFLOAD}.nvme_path=states",
                "--set", f"{OFFLOAD}.buffer_size=4096"]
        self.pretrain("--set", "output_dir=file", "--set", "train_steps=6", *file)
        self.assertEqual(self.losses("file"), self.losses("memory"))
        self.assertEqual(self.weights(6, "file"), self.weights(6, "memory"))
        self.assertEqual(list((self.folder / "states").iterdir()), [])

    def test_the_report_says_what_a_rank_stores(self):
        def report(*arguments):
            out, _ = self.pretrain("--validate", *arguments)
            lines = [line.rsplit("(", 1) for line in out.splitlines() if " bytes)" in line]
            return {name.split("  ")[1].strip(): int(size.split()[0]) for name, size in lines}

        one = report("--ranks", "2")
        two = report("--ranks", "2", "--set", f"{STAGE}=1")
        three = report("--ranks", "2", "--set", f"{STAGE}=3")
        self.assertEqual(two["parameters"], one["parameters"])
        self.assertEqual(two["optimizer state"] * 2, one["optimizer state"])
        for name in ("parameters", "gradients", "optimizer state"):
            self.assertEqual(three[name] * 2, one[name])

    def test_optimizer_state_larger_than_the_memory_limit(self):
        model = {"model_type": "llama", "vocab_size": 120000, "max_position_embeddings": 32, "hidden_size": 256,
                 "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
                 "num_key_value_heads": 4, "tie_word_embeddings": True}
        # Few tokens: what is proportional to them shall be little.
        self.configure(model=model, train_steps=3, scheduler={"type": "constant"}, train_batch_size=2, bf16={"enabled": True},
                       evaluation={"eval_iters": 1}, checkpoint={}, sequence_length=8)
        parameters = 120000 * 256
        states = 12 * parameters  # master weights and two moments in fp32
        # Weights and gradients are 6 bytes each; without instructions for bfloat16 a product has 4 more.
        limit = states - (4 << 20)
        group = MemoryLimit(self, limit)
        file = ["--set", f"{OFFLOAD}.device=nvme", "--set", f"{OFFLOAD}.nvme_path=states",
                "--set", f"{OFFLOAD}.buffer_size=65536"]
        run = group.run([harness.TRIREME, "pretrain", "--config", "run.json", "--set", "output_dir=file", *file],
                        self.folder)
        self.assertEqual(run.returncode, 0, run.stdout[-2000:] + run.stderr[-2000:])
        self.pretrain("--set", "output_dir=memory")
        self.assertEqual(self.losses("file"), self.losses("memory"))
        self.assertEqual(self.weights(3, "file"), self.weights(3, "memory"))
        if swap_is_off():
            # The limit is one: without the file the same run does not fit.
            run = group.run([harness.TRIREME, "pretrain", "--config", "run.json", "--set", "output_dir=killed"],
                            self.folder)
            self.assertIn(run.returncode, (-signal.SIGKILL, 128 + signal.SIGKILL))


if __name__ == "__main__":
    harness.main()
