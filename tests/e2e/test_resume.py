"""Continuing a run under a changed configuration: what is allowed gives the run that the new one would have been."""
import re
import shutil

import harness
import tiny_run

CONSTANT = {"type": "constant", "params": {"warmup_steps": 5}}


class Resume(tiny_run.RunTest):
    def resume(self, *settings, **options):
        return self.pretrain("--resume", "auto", *[part for s in settings for part in ("--set", s)], **options)

    def refused(self, *settings, says):
        self.assert_refused("pretrain", "--config", "run.json", "--resume", "auto",
                            *[part for s in settings for part in ("--set", s)], says=says)

    def test_a_constant_rate_can_be_extended(self):
        self.configure(scheduler=CONSTANT)
        self.pretrain("--set", "output_dir=whole")
        self.pretrain("--set", "train_steps=20")
        self.resume("train_steps=30")
        self.assertEqual([r[:3] for r in self.losses()], [r[:3] for r in self.losses("whole")])
        self.assertEqual(self.weights(30), self.weights(30, "whole"))

    def test_fewer_steps_than_are_done_is_said(self):
        self.configure(scheduler=CONSTANT)
        self.pretrain()
        _, stderr = self.resume("train_steps=20")
        self.assertIn("step-00000030 is at step 30 and train_steps is 20: nothing is left to train", stderr)
        self.assertEqual(self.records()[-1]["step"], 30)

    def test_a_decay_to_the_end_cannot(self):
        self.pretrain()  # cosine over train_steps
        self.refused("train_steps=40", says=["learning rate", "train_steps 30 -> 40",
                                             "scheduler.params.decay_steps to 30"])
        self.resume("train_steps=40", "scheduler.params.decay_steps=30")
        self.assertEqual([r["step"] for r in self.records()], list(range(1, 41)))
        self.assertEqual({r["lr"] for r in self.records()[30:]}, {0.0})

    def test_wsd_continues_from_before_its_decay(self):
        self.configure(scheduler={"type": "WSD", "params": {"warmup_steps": 5, "decay_steps": 10}})
        self.pretrain()
        self.refused("train_steps=40", says=["before the decay", "--resume CHECKPOINT"])
        longer = ["--set", "train_steps=40", "--set", "output_dir=longer"]
        self.pretrain("--resume", "run/checkpoints/step-00000020", *longer)
        self.pretrain("--set", "train_steps=40", "--set", "output_dir=whole")
        self.assertEqual(self.weights(40, "longer"), self.weights(40, "whole"))

    def test_more_epochs_change_the_order_which_is_said(self):
        self.configure(scheduler=CONSTANT)
        _, stderr = self.pretrain("--set", "train_steps=10")
        self.assertNotIn("another order", stderr)
        _, stderr = self.resume("train_steps=80")
        self.assertIn("train_steps 10 -> 80: the samples of train have another order (1 epoch", stderr)
        self.assertEqual(self.records()[-1]["step"], 80)

    def test_data_may_move(self):
        self.pretrain("--set", "output_dir=whole")
        self.pretrain()
        for file in (self.folder / "run/checkpoints/step-00000030").iterdir():
            file.unlink()
        (self.folder / "run/checkpoints/step-00000030").rmdir()
        (self.folder / "disk").mkdir()
        for name in ("train.bin", "train.idx"):
            (self.folder / name).rename(self.folder / "disk" / name)
        self.resume("data.train_data_path=disk/train")
        self.assertEqual(self.losses(), self.losses("whole"))
        (self.folder / "disk/train.bin").rename(self.folder / "disk/other.bin")
        (self.folder / "disk/train.idx").rename(self.folder / "disk/other.idx")
        self.refused("data.train_data_path=disk/other", says=["another configuration", "data.train_data_path"])

    def test_records_of_another_run_are_not_overwritten(self):
        self.pretrain("--set", "train_steps=10")
        self.pretrain("--set", "train_steps=10", "--set", "seed=8", "--set", "output_dir=other")
        self.assert_refused("pretrain", "--config", "run.json", "--set", "train_steps=10", "--set", "output_dir=other",
                            "--resume", "run", says=["other", "records of another run", "seed 8 -> 7"])
        (self.folder / "other/resolved_config.json").unlink()
        self.assert_refused("pretrain", "--config", "run.json", "--set", "train_steps=10", "--set", "output_dir=other",
                            "--resume", "run", says=["other", "resolved_config.json"])

    def test_checkpoint_load_is_where_a_new_run_begins(self):
        self.configure(scheduler=CONSTANT)
        self.pretrain("--set", "train_steps=20")
        start = ["--set", "output_dir=more", "--set", "checkpoint.load=run"]
        self.pretrain(*start)
        self.assertEqual([r["step"] for r in self.records("more")], list(range(21, 31)))
        before = self.losses("more")
        self.pretrain("--resume", "auto", *start)  # its own checkpoint comes first
        self.assertEqual(self.losses("more"), before)
        self.assert_refused("pretrain", "--config", "run.json", "--set", "output_dir=new", "--set",
                            "checkpoint.load=nowhere", says=["nowhere"])


class AdviceToBeginAnew(tiny_run.RunTest):
    """Messages that refuse to continue a checkpoint say what to do instead, which works."""

    def refusal(self, *arguments):
        _, stderr = self.pretrain(*arguments, expect=2)
        return stderr

    def converted(self, stderr):
        """What the advice's command makes of the checkpoint."""
        command = re.search(r"trireme (checkpoint convert \S+ weights --to hf), then checkpoint.load \"weights\"", stderr)
        self.assertIsNotNone(command, stderr)
        self.assertNotIn("another output_dir", stderr)
        self.trireme(*command[1].split())
        return "checkpoint.load=weights"

    def test_of_a_loaded_checkpoint(self):
        self.pretrain()
        for i, changes in enumerate((["train_batch_size=16"], ["optimizer.params.lr=1e-3"], ["sequence_length=16"],
                                     ["train_steps=60"])):
            shutil.rmtree(self.folder / "weights", ignore_errors=True)
            other = [part for change in [*changes, f"output_dir=other{i}"] for part in ("--set", change)]
            load = self.converted(self.refusal(*other, "--set", "checkpoint.load=run"))
            _, stderr = self.pretrain(*other, "--set", load)
            self.assertIn("starting at step 0 with the weights of weights", stderr)
            # Learned from: the untrained model's loss is that of a uniform choice.
            self.assertLess(self.records(f"other{i}")[0]["loss"], 4)

    def test_of_a_named_checkpoint(self):
        self.pretrain()
        named = ["--set", "seed=8", "--set", "output_dir=other"]
        stderr = self.refusal(*named, "--resume", "run")
        self.assertIn("without --resume", stderr)
        self.pretrain(*named, "--set", self.converted(stderr))

    def test_of_a_named_checkpoint_of_its_own(self):
        self.pretrain()
        stderr = self.refusal("--set", "seed=8", "--resume", "run/checkpoints/step-00000020")
        self.assertIn("without --resume and another output_dir", stderr)
        self.trireme("checkpoint", "convert", "run/checkpoints/step-00000020", "weights", "--to", "hf")
        self.pretrain("--set", "seed=8", "--set", "checkpoint.load=weights", "--set", "output_dir=other")

    def test_of_other_data(self):
        self.pretrain()
        self.write("train.txt", tiny_run.text(3000, 3))
        self.trireme("data", "prepare", "--input", "train.txt", "--output", "train", "--overwrite")
        stderr = self.refusal("--set", "output_dir=other", "--set", "checkpoint.load=run")
        self.assertIn("put the file back, or start a new run", stderr)
        self.pretrain("--set", "output_dir=other", "--set", self.converted(stderr))

    def test_of_the_runs_own_checkpoints(self):
        self.pretrain()
        other = ["--set", "seed=8"]
        self.assertIn("set them back, or use another output_dir", self.refusal(*other, "--resume", "auto"))
        self.assertIn("choose another output_dir", self.refusal(*other))
        self.pretrain(*other, "--set", "output_dir=other")


if __name__ == "__main__":
    harness.main()
