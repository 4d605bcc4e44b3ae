"""The whole program on a GPU that the CPU plays (tests/emulator): what it trains, saves, evaluates and writes is
what it does on the CPU. And the program of this build where there is no GPU."""
import os
import re
import unittest

import harness
import tiny_run

EMULATED = os.environ.get("TRIREME_EMULATED")


def loss_of(printed):
    return float(re.search(r"loss[^0-9]*([0-9.]+)", printed)[1])


class OnGpu(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.configure(train_steps=6, checkpoint={"save_interval": 3})

    def emulated(self, *arguments, **options):
        return self.trireme(*arguments, program=EMULATED, **options)

    def on_gpu(self, *arguments, **options):
        return self.emulated("pretrain", "--config", "run.json", "--device", "cuda", *arguments, **options)

    def assert_close(self, got, want, relative=1e-4):
        self.assertEqual(len(got), len(want))
        for (step, *numbers), (wanted_step, *wanted) in zip(got, want):
            self.assertEqual(step, wanted_step)
            for a, b in zip(numbers, wanted):
                self.assertEqual(a is None, b is None)
                if a is not None:
                    self.assertLessEqual(abs(a - b), relative * abs(b), f"step {step}: {a}, expected {b}")

    def test_a_run_equals_the_cpus(self):
        _, stderr = self.on_gpu("--set", "output_dir=gpu")
        self.assertIn("device cuda:0, ", stderr)
        self.pretrain("--device", "cpu")
        self.assert_close(self.losses("gpu"), self.losses())
        self.on_gpu("--set", "output_dir=again")
        self.assertEqual(self.losses("again"), self.losses("gpu"), "two runs differ in a bit")
        self.assertEqual(self.weights(6, "again"), self.weights(6, "gpu"))

    def test_algorithms_chosen_by_time_are_kept(self):
        chosen = ["--set", "cuda.autotune=true", "--set", "cuda.gemm_algorithms=kept"]
        self.on_gpu("--set", "output_dir=gpu", *chosen)
        path = self.folder / "kept/rank-00000.txt"
        text = path.read_text()
        self.assertRegex(text, r"\Atrireme gemm algorithms 1\ndevice .+\nlibrary cuBLASLt 13\.0\.0\n")
        self.assertGreater(len(text.splitlines()), 20)
        # Others than were chosen: they stay, as they would not if they were chosen again.
        lines = text.splitlines()
        for i, line in enumerate(lines[3:], 3):
            words = line.split()
            words[-1] = f"{int(words[-1], 16) ^ 1:x}"
            lines[i] = " ".join(words)
        path.write_text("\n".join(lines) + "\n")
        self.on_gpu("--set", "output_dir=again", *chosen)
        self.assertEqual(path.read_text().splitlines(), lines)
        self.assertEqual(self.losses("again"), self.losses("gpu"))
        path.write_text(text.replace("device ", "device other "))
        _, stderr = self.on_gpu("--set", "output_dir=other", *chosen, expect=2)
        self.assertRegex(stderr, "kept/rank-00000.txt has algorithms for other .* remove the file to choose again")

    def test_records_of_every_step_though_read_a_step_late(self):
        self.configure(train_steps=7, evaluation={"eval_interval": 3, "eval_iters": 1}, checkpoint={"save_interval": 4},
                       optimizer={"type": "SGD", "params": {"lr": 1e-2}})
        self.on_gpu("--set", "output_dir=gpu")
        self.pretrain("--device", "cpu")
        self.assert_close(self.losses("gpu"), self.losses())
        got, want = self.records("gpu"), self.records()
        self.assertEqual([r["validation_loss"] is None for r in got if "validation_loss" in r],
                         [r["validation_loss"] is None for r in want if "validation_loss" in r])
        computed = {"gemm_ms", "attention_ms", "loss_ms", "optimizer_ms", "communication_ms", "other_ms"}  # by the host
        self.assertEqual([list(r) for r in got], [[name for name in r if name not in computed] for r in want])
        for name in ("step", "lr", "consumed_tokens", "skipped_iterations"):
            self.assertEqual([r[name] for r in got], [r[name] for r in want], name)
        self.assertEqual(sorted(p.name for p in (self.folder / "gpu/checkpoints").iterdir()),
                         sorted(p.name for p in (self.folder / "run/checkpoints").iterdir()))

    def test_divergence_stops_at_the_step_and_names_the_tensor(self):
        self.configure(optimizer={"type": "SGD", "params": {"lr": 1e30}}, max_consecutive_skips=3,
                       gradient_clipping=0, scheduler={"type": "constant"})
        said = {}
        for device in ("cpu", "cuda"):
            _, stderr = self.emulated("pretrain", "--config", "run.json", "--device", device, "--set",
                                      f"output_dir={device}", expect=4)
            said[device] = re.findall(r"(step \d+ skipped: .*? is not finite|stopped at step .*? not finite, the last by \S+)",
                                      stderr)
        self.assertGreater(len(said["cpu"]), 3)
        self.assertEqual(said["cuda"], said["cpu"])
        self.assertEqual([r["step"] for r in self.records("cuda")], [r["step"] for r in self.records("cpu")])
        self.assertEqual([r["skipped_iterations"] for r in self.records("cuda")],
                         [r["skipped_iterations"] for r in self.records("cpu")])

    def test_checkpoints_go_between_devices(self):
        self.on_gpu("--set", "output_dir=gpu")
        self.pretrain("--device", "cpu", "--resume", "gpu/checkpoints/step-00000003", "--set", "output_dir=cpu")
        self.on_gpu("--resume", "gpu/checkpoints/step-00000003", "--set", "output_dir=resumed")
        self.assertEqual(self.weights(6, "resumed"), self.weights(6, "gpu"), "resuming is not exact")
        self.assert_close(self.losses("cpu"), self.losses("gpu")[3:])
        for command in (["eval", "gpu"], ["generate", "gpu", "--prompt", "the oar", "--max-new-tokens", "12",
                                          "--temperature", "0"]):
            on_cpu, _ = self.trireme(*command, "--device", "cpu")
            there, _ = self.emulated(*command, "--device", "cuda")
            if command[0] == "generate":
                self.assertEqual(there, on_cpu)
            else:
                self.assert_close([[0, loss_of(there)]], [[0, loss_of(on_cpu)]])
        # Of more tokens than a GPU rounds to int8.
        evaluate = ["eval", "gpu", "--quantization", "q4_0"]
        on_cpu, there = (self.trireme(*evaluate, "--device", "cpu")[0], self.emulated(*evaluate, "--device", "cuda")[0])
        self.assert_close([[0, loss_of(there)]], [[0, loss_of(on_cpu)]], 2e-3)
        self.assert_refused("serve", "gpu", "--port", 0, "--device", "cuda", "--kv-cache-dtype", "float16", program=EMULATED,
                            says=["--kv-cache-dtype float16", "float32", "--device cpu"])

    def test_a_run_larger_than_the_gpu_is_refused_with_both_sizes(self):
        self.configure(train_micro_batch_size_per_gpu=131072, train_batch_size=131072, train_steps=1,
                       scheduler={"type": "constant"})
        self.assert_refused("pretrain", "--config", "run.json", "--device", "cuda", program=EMULATED,
                            says=["the run needs ", " free of 16.0 GiB", "train_micro_batch_size_per_gpu",
                                  "micro-batches "])
        self.assertFalse((self.folder / "run/metrics.jsonl").exists())

    def test_what_a_gpu_cannot_do_yet_is_refused(self):
        self.configure(zero_optimization={"stage": 1, "offload_optimizer": {"device": "cpu"}})
        self.assert_refused("pretrain", "--config", "run.json", "--device", "cuda", program=EMULATED,
                            says=["zero_optimization.offload_optimizer.device", "set it to none"])

    def test_bfloat16_and_experts(self):
        self.configure(train_steps=2, scheduler={"type": "constant"}, checkpoint={"save_interval": 2}, bf16={"enabled": True},
                       model={"model_type": "mixtral", "vocab_size": 257, "max_position_embeddings": 32,
                              "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
                              "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
                              "num_experts_per_tok": 2})
        self.on_gpu("--set", "output_dir=gpu")
        self.pretrain("--device", "cpu")
        self.assert_close([r[:2] for r in self.losses("gpu")], [r[:2] for r in self.losses()], relative=2e-2)


class WithoutGpu(tiny_run.RunTest):
    def test_cuda_is_refused_with_the_reason(self):
        self.assert_refused("pretrain", "--config", "run.json", "--device", "cuda",
                            says=["device cuda cannot be used: ", 'set "device": "cpu"'])
        self.assertFalse((self.folder / "run").exists())

    def test_auto_says_what_it_chose_and_why(self):
        self.configure(train_steps=1, scheduler={"type": "constant"})
        _, stderr = self.pretrain()
        self.assertRegex(stderr, r"device cpu \(.*; no GPU: .+\)")


if __name__ == "__main__":
    if not EMULATED:
        OnGpu = unittest.skip("TRIREME_EMULATED does not name the program with the emulated GPU")(OnGpu)
    harness.main()
