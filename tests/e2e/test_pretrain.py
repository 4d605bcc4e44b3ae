"""Training runs from outside: what they write, signals, resuming, ranks, evaluation, generation."""
import json
import pathlib
import re
import shutil
import signal
import time

import harness
import tiny_run


class Pretrain(tiny_run.RunTest):
    def test_run_directory(self):
        self.pretrain()
        self.assertEqual(sorted(p.name for p in (self.folder / "run").iterdir()),
                         ["checkpoints", "last_checkpoint", "metrics.jsonl", "resolved_config.json", "train.log"])
        records = self.records()
        self.assertEqual([r["step"] for r in records], list(range(1, 31)))
        self.assertLess(records[-1]["loss"], 0.7 * records[0]["loss"])
        self.assertEqual([r["step"] for r in records if "validation_loss" in r], [10, 20, 30])
        self.assert_members_are_documented()
        for key in ("loss", "grad_norm", "lr", "tokens", "tokens_per_second", "step_ms", "model_tflops",
                    "flops_formula", "arena_bytes"):
            self.assertIn(key, records[0])
        # No allocator call after the first step.
        self.assertEqual(records[1]["allocation_count"], records[-1]["allocation_count"])
        log = (self.folder / "run" / "train.log").read_text()
        self.assertIn("lm loss:", log)
        self.assertIn("validation loss at iteration 30", log)
        self.assertRegex(log, "saved .*step-[0-9]")  # what scripts/trireme.sbatch looks for
        # The resolved configuration is a configuration: it gives the same run.
        self.trireme("pretrain", "--config", "run/resolved_config.json", "--set", "output_dir=again",
                     "--set", "checkpoint.save=again/checkpoints")
        self.assertEqual(self.losses("again"), self.losses())
        self.assertEqual(self.weights(30, "again"), self.weights(30))

    def test_masks_know_the_end_of_documents_in_later_commands(self):
        data = {"train_data_path": "train", "valid_data_path": "valid", "tokenizer": "byte", "eod_mask_loss": True}
        self.configure(data=data, train_steps=6)
        self.pretrain()
        resolved = json.loads((self.folder / "run/resolved_config.json").read_text())
        self.assertEqual(resolved["data"]["eod_token_id"], 256)
        self.trireme("eval", "run", "--data", "valid")
        self.configure(data={**data, "eod_token_id": 10}, train_steps=7)  # other masks: another run
        _, stderr = self.pretrain("--resume", "auto", expect=2)
        self.assertIn("data.eod_token_id 256 -> 10", stderr)

    def test_test_data_is_evaluated_once_at_the_end(self):
        data = {"train_data_path": "train", "valid_data_path": "valid", "tokenizer": "byte"}
        self.configure(data={**data, "test_data_path": "valid"})
        self.pretrain()
        self.assertEqual([r["step"] for r in self.records() if "test_loss" in r], [30])
        self.assertEqual(self.records()[-1]["test_loss"], self.records()[-1]["validation_loss"])
        self.assertIn("validation loss at iteration 30 on test set | lm loss value: ",
                      (self.folder / "run/train.log").read_text())
        self.write("letter.txt", "a")
        self.trireme("data", "prepare", "--input", "letter.txt", "--output", "letter")
        self.configure(data={**data, "test_data_path": "letter"}, output_dir="other")
        self.assert_refused("pretrain", "--config", "run.json", says="data.test_data_path")

    def test_validate_writes_nothing(self):
        before = self.snapshot()
        out, _ = self.pretrain("--validate")
        self.assertIn("configuration is valid", out)
        self.assertIn("activations and scratch", out)
        self.assertEqual(self.snapshot(), before)

    def test_stop_by_signal_and_resume(self):
        self.pretrain("--set", "output_dir=whole")
        self.configure(train_steps=100_000, output_dir="run")  # which nobody waits for
        process = self.start("pretrain", "--config", "run.json")
        self.wait_for_steps(process, 3)
        process.send_signal(signal.SIGUSR1)  # saves and goes on
        self.wait_for_steps(process, 30)
        process.send_signal(signal.SIGUSR2)  # saves and stops
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 3)
        stopped = self.records()[-1]["step"]
        self.assertIn(f"step-{stopped:08d}", [p.name for p in (self.folder / "run/checkpoints").iterdir()])
        self.assertEqual((self.folder / "run/checkpoints/latest").read_text().strip(), f"step-{stopped:08d}")
        self.assert_refused("pretrain", "--config", "run.json", says=["holds another run", "--resume auto"])

    def test_a_signal_before_the_first_step_waits_for_it(self):
        self.configure(train_steps=100_000)
        for _ in range(50):
            process = self.start("pretrain", "--config", "run.json")
            caught, end = 0, time.monotonic() + 120
            while process.poll() is None and time.monotonic() < end and not caught >> (signal.SIGUSR2 - 1) & 1:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                caught = int(status.split("SigCgt:")[1].split()[0], 16) if "SigCgt:" in status else 0
            process.send_signal(signal.SIGUSR2)
            if not (self.folder / "run").exists():
                break
            process.kill()  # too late: its steps may have begun
            process.wait()
            shutil.rmtree(self.folder / "run")
        else:
            self.fail("never in time")
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 3)
        self.assertEqual([r["step"] for r in self.records()], [1])

    def test_resumed_run_is_bit_exact(self):
        self.pretrain("--set", "output_dir=whole")
        process = self.start("pretrain", "--config", "run.json")
        self.wait_for_steps(process, 12)
        process.kill()
        process.communicate()
        self.pretrain("--resume", "auto")
        self.assertEqual(self.losses(), self.losses("whole"))
        self.assertEqual(self.weights(30), self.weights(30, "whole"))

    def test_resume_auto_starts_and_explains(self):
        self.pretrain("--resume", "auto")
        before = self.losses()
        self.pretrain("--resume", "auto")  # finished: nothing left to do
        self.assertEqual(self.losses(), before)
        self.configure(seed=8)
        self.assert_refused("pretrain", "--config", "run.json", "--resume", "auto",
                            says=["another configuration", "seed 7 -> 8"])

    def test_damaged_checkpoint_is_passed_over(self):
        self.pretrain()
        shard = next((self.folder / "run/checkpoints/step-00000030").glob("*.safetensors"))
        data = bytearray(shard.read_bytes())
        data[-5] ^= 1
        shard.write_bytes(data)
        _, error = self.trireme("checkpoint", "verify", "run/checkpoints/step-00000030", expect=2)
        self.assertIn(shard.name, error)
        for command in (("eval",), ("generate",), ("pretrain", "--config", "run.json", "--resume")):
            self.assert_refused(*command, "run/checkpoints/step-00000030", says=["damaged", shard.name])
        whole = self.losses()
        _, stderr = self.pretrain("--resume", "auto")
        self.assertIn("step-00000030", stderr)
        self.assertEqual(self.losses(), whole)

    def test_ranks_change_nothing_but_the_order_of_sums(self):
        self.pretrain("--set", "output_dir=one")
        self.pretrain("--ranks", "2", "--set", "output_dir=two")
        self.pretrain("--set", "output_dir=four", "--set", "comm.ranks_per_node=2", ranks=4)
        for run in ("two", "four"):
            for one, many in zip(self.records("one"), self.records(run), strict=True):
                self.assertAlmostEqual(one["loss"], many["loss"], delta=1e-5 * one["loss"])
        self.pretrain("--ranks", "2", "--set", "output_dir=again")
        self.assertEqual(self.losses("again"), self.losses("two"))

    def test_checkpoint_of_two_ranks_continues_on_one(self):
        self.pretrain("--ranks", "2", "--set", "train_steps=30", "--set", "checkpoint.save_interval=10")
        for name in ("step-00000030",):
            for file in (self.folder / "run/checkpoints" / name).iterdir():
                file.unlink()
            (self.folder / "run/checkpoints" / name).rmdir()
        self.pretrain("--resume", "auto")
        self.assertEqual([r["step"] for r in self.records()], list(range(1, 31)))

    def test_eval_and_generate(self):
        self.pretrain("--set", "evaluation.eval_iters=0")
        out, _ = self.trireme("eval", "run", "--json")
        last = self.records()[-1]
        self.assertAlmostEqual(json.loads(out)["loss"], last["validation_loss"], delta=1e-5)
        two, _ = self.trireme("eval", "run", "--json", "--ranks", "2")
        self.assertAlmostEqual(json.loads(two)["loss"], last["validation_loss"], delta=1e-5)
        arguments = ["generate", "run", "--prompt", "the oar", "--max-new-tokens", "16", "--seed", "3"]
        first, _ = self.trireme(*arguments)
        self.assertTrue(first.startswith("the oar"))
        self.assertGreater(len(first), len("the oar") + 8)
        self.assertEqual(self.trireme(*arguments)[0], first)

    def test_every_precision_trains(self):
        for name, keys in {"bf16": ["bf16.enabled=true"],
                           "fp16": ["fp16.enabled=true"],
                           "sr": ["bf16.enabled=true", "optimizer.master_weights=false",
                                  "optimizer.state_dtype=bf16"],
                           "selective": ["activation_checkpointing.granularity=selective"],
                           "full": ["activation_checkpointing.granularity=full"]}.items():
            settings = [part for key in keys for part in ("--set", key)]
            self.pretrain("--set", f"output_dir={name}", *settings)
            records = self.records(name)
            self.assertLess(records[-1]["loss"], 0.75 * records[0]["loss"], name)

    def test_divergence_names_the_tensor_and_stops(self):
        self.configure(optimizer={"type": "SGD", "params": {"lr": 1e30}}, max_consecutive_skips=3,
                       gradient_clipping=0, scheduler={"type": "constant"})
        _, stderr = self.pretrain(expect=4)
        self.assertIn("is not finite", stderr)
        self.assertIn("3 steps in a row", stderr)
        self.assertTrue(self.records()[-1]["skipped"])
        # Every rank sees it, one says it.
        _, stderr = self.pretrain("--set", "output_dir=two", ranks=2, expect=4)
        said = [line for line in stderr.splitlines() if " skipped: " in line]
        self.assertEqual(len(said), len({line.split("warning: ")[1] for line in said}), stderr)
        self.assertFalse([line for line in said if "[rank" in line])

    def kept(self, folder):
        return sorted(path.name for path in (self.folder / folder / "checkpoints").glob("step-*"))

    def test_divergence_keeps_the_checkpoints_from_before(self):
        """Nothing is saved in a row of skipped steps, so no older checkpoint is pushed out."""
        self.configure(optimizer={"type": "SGD", "params": {"lr": 1e30}}, max_consecutive_skips=6,
                       gradient_clipping=0, scheduler={"type": "constant"},
                       checkpoint={"save_interval": 1, "keep_last": 2})
        for ranks in (1, 2):
            _, stderr = self.pretrain("--set", f"output_dir=of{ranks}", ranks=ranks, expect=4)
            first = next(record["step"] for record in self.records(f"of{ranks}") if record["skipped"])
            self.assertGreater(first, 1)
            self.assertEqual(self.kept(f"of{ranks}")[-1], f"step-{first - 1:08}")
            self.assertIn(f"the newest checkpoint to continue is of{ranks}/checkpoints/step-{first - 1:08}", stderr)
            self.assertIn(f"the checkpoint of step {first} is saved after the next step", stderr)

    def test_a_run_that_ends_in_skipped_steps_has_diverged(self):
        self.configure(optimizer={"type": "SGD", "params": {"lr": 1e30}}, train_steps=3, gradient_clipping=0,
                       scheduler={"type": "constant"})
        _, stderr = self.pretrain(expect=4)
        self.assertIn("ended at step 3: ", stderr)
        self.assertIn("no checkpoint was saved before step ", stderr)
        # The one of the end is there to be looked at, and no run goes on with it.
        self.assertEqual(self.kept("run"), ["step-00000003"])
        _, stderr = self.pretrain("--resume", "auto", expect=4)
        self.assertIn("run/checkpoints/step-00000003 is the end of a run that diverged, and none before it", stderr)
        _, stderr = self.pretrain("--resume", "run/checkpoints/step-00000003", expect=4)
        self.assertIn("and none before it can be continued; lower optimizer.params.lr or raise the warm-up, in "
                      "another output_dir\n", stderr)
        self.pretrain("--set", "optimizer.params.lr=1e-3", "--set", "output_dir=lower")

    def test_the_way_out_of_a_diverged_run(self):
        """Lower rates make another run: its weights can be those of the newest good checkpoint."""
        # DeepSpeed's warm-up: the first step has the rate 0, so its checkpoint is sound.
        self.configure(optimizer={"type": "SGD", "params": {"lr": 1e30}}, train_steps=4, gradient_clipping=0,
                       scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 4}}, checkpoint={"save_interval": 1})
        _, ended = self.pretrain(expect=4)
        for path in (self.folder / "run/checkpoints").glob("step-0000000[23]"):
            shutil.rmtree(path)
        _, named = self.pretrain("--resume", "run/checkpoints/step-00000004", expect=4)
        ended, named = [re.search(r"the newest checkpoint to continue is (\S+) \(or an older one, if the loss was already "
                                  r"rising there\); lower optimizer.params.lr or raise the warm-up, in another output_dir, and "
                                  r"start a new run from the weights alone: trireme (checkpoint convert \1 weights --to hf), "
                                  r"then checkpoint.load \"weights\"\n", stderr) for stderr in (ended, named)]
        self.assertIsNotNone(ended)
        self.assertEqual(named[1], "run/checkpoints/step-00000001")
        self.trireme(*named[2].split())
        self.configure(optimizer={"type": "SGD", "params": {"lr": 1e-3}}, train_steps=4, output_dir="lower", scheduler={},
                       checkpoint={"load": "weights"})
        self.pretrain()
        self.assertFalse(any(record["skipped"] for record in self.records("lower")))

    def test_other_types_are_the_way_out_of_float16(self):
        """Gradients that are too large for float16 at the scale which was given."""
        fp16 = {"fp16": {"enabled": True, "loss_scale": 2.0 ** 40}}
        self.configure(train_steps=3, scheduler={}, **fp16)
        _, stderr = self.pretrain(expect=4)
        self.assertIn("lower optimizer.params.lr, raise the warm-up, or use bf16 or fp32, in another output_dir\n", stderr)
        for other in ({"bf16": {"enabled": True}}, {}):
            self.configure(train_steps=3, scheduler={}, output_dir=f"of{len(other)}", **other)
            self.pretrain()

    def test_what_a_loss_scale_finds_out_is_no_divergence(self):
        """Steps whose gradients overflow at a loss scale that falls then: also as the last of a run."""
        fp16 = {"enabled": True, "initial_scale_power": 60, "hysteresis": 1}
        self.configure(fp16=fp16, train_steps=2, scheduler={"type": "constant"}, checkpoint={"save_interval": 1})
        self.pretrain()
        self.assertTrue(all(record["skipped"] for record in self.records()))
        self.assertEqual(self.kept("run"), ["step-00000001", "step-00000002"])
        self.configure(fp16=fp16, train_steps=3, scheduler={"type": "constant"}, checkpoint={"save_interval": 1})
        self.pretrain("--set", "train_steps=2", "--set", "output_dir=more")
        _, stderr = self.pretrain("--set", "output_dir=more", "--resume", "auto")
        self.assertIn("continuing more/checkpoints/step-00000002", stderr)

    def test_resume_auto_passes_over_the_end_of_a_diverged_run(self):
        self.configure(optimizer={"type": "SGD", "params": {"lr": 1e30}}, train_steps=3, gradient_clipping=0,
                       scheduler={"type": "constant"}, checkpoint={"save_interval": 1, "keep_last": 1})
        _, stderr = self.pretrain(expect=4)
        kept = self.kept("run")
        self.assertEqual(kept[-1], "step-00000003")
        self.assertEqual(len(kept), 2)
        self.assertIn(f"the newest checkpoint to continue is run/checkpoints/{kept[0]}", stderr)
        _, stderr = self.pretrain("--resume", "auto", expect=4)
        self.assertRegex(stderr, "run/checkpoints/step-00000003 was saved after [12] steps? .*; using an older one")
        self.assertIn(f"continuing run/checkpoints/{kept[0]}", stderr)


if __name__ == "__main__":
    harness.main()
