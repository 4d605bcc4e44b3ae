"""DeepSpeed files in the forms that fine-tuning frameworks ship, named by a run as they are and trained."""
import json

import harness
import tiny_run

FILES = harness.SOURCE / "tests/training/config/deepspeed"
# What each comes to, in our own words.
MEANING = {
    "zero2": {"zero_optimization": {"stage": 2}},
    "zero3": {"zero_optimization": {"stage": 3},
              "scheduler": {"type": "WarmupLR", "params": {"warmup_steps": 3, "warmup_type": "log"}}},
    "zero3_offload": {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW",
                      "params": {"lr": 2e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_steps": 2, "warmup_type": "linear"}},
        "gradient_clipping": 0.5, "gradient_accumulation_steps": 2},
    "auto_monitors": {"zero_optimization": {"stage": 1},
                      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_steps": 3, "warmup_type": "log"}}},
    "megatron_deepspeed": {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}, "train_batch_size": 16,
                           "train_micro_batch_size_per_gpu": 2},
}
# What the run says beside the file; two of the files have optimizers or batch sizes of their own.
RUN = {
    "zero2": {},
    "zero3": {"scheduler": {"params": {"warmup_steps": 3}}},
    "zero3_offload": {"optimizer": None, "scheduler": None, "train_micro_batch_size_per_gpu": "auto"},
    "auto_monitors": {"scheduler": {"params": {"warmup_steps": 3}}},
    "megatron_deepspeed": {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"},
}
STEPS = {"train_steps": 6, "checkpoint": {}, "evaluation": {}}


class DeepSpeed(tiny_run.RunTest):
    def test_each_file_trains_as_the_same_words_of_ours(self):
        self.assertEqual(sorted(path.stem for path in FILES.glob("*.json")), sorted(MEANING))
        for name, meaning in MEANING.items():
            with self.subTest(file=name):
                base = {**STEPS, **RUN[name]}
                run = tiny_run.config(**base, output_dir=f"{name}-ds", deepspeed=f"{name}.json")
                ours = tiny_run.config(**{**base, **meaning}, output_dir=f"{name}-ours")
                self.write(f"{name}.json", (FILES / f"{name}.json").read_text())
                for config in (run, ours):
                    self.write("run.json", json.dumps({k: v for k, v in config.items() if v is not None}))
                    self.pretrain("--validate", "--ranks", 2)
                    self.pretrain("--ranks", 2)
                losses = self.losses(f"{name}-ds")
                self.assertEqual(len(losses), STEPS["train_steps"])
                self.assertLess(losses[-1][1], losses[0][1])
                self.assertEqual(losses, self.losses(f"{name}-ours"))

    def test_a_file_is_given_on_the_command_line(self):
        self.configure(**STEPS)
        self.pretrain("--deepspeed", FILES / "zero2.json", "--ranks", 2)
        resolved = json.loads((self.folder / "run/resolved_config.json").read_text())
        self.assertEqual(resolved["zero_optimization"]["stage"], 2)
        self.assertNotIn("deepspeed", resolved)

    def test_a_file_is_the_configuration_and_flags_are_the_rest(self):
        self.write("model.json", json.dumps(tiny_run.config()["model"]))
        self.trireme("pretrain", "--config", FILES / "megatron_deepspeed.json", "--model", "model.json",
                     "--output-dir", "run", "--train-data-path", "train", "--valid-data-path", "valid",
                     "--train-steps", 3, "--cpu-threads-per-rank", 1)
        self.assertEqual(len(self.records()), 3)
        self.assert_refused("pretrain", "--config", FILES / "zero3.json",
                            says=["set \"deepspeed\" of a run's configuration", "model: is required"])


if __name__ == "__main__":
    harness.main()
