"""What a run does to a directory that holds something: nothing is started over, shared, or lost without a word."""
import os
import shutil
import signal
import time

import harness
import manifest
import tiny_run

AUTO = ("pretrain", "--config", "run.json", "--resume", "auto")


class OutputDirectory(tiny_run.RunTest):
    def checkpoints(self):
        return sorted((self.folder / "run/checkpoints").glob("step-*"))

    def wait_for(self, condition, process=None):
        end = time.monotonic() + 240
        while not condition():
            self.assertLess(time.monotonic(), end, "waited in vain")
            if process is not None:
                self.assertIsNone(process.poll(), "it has ended")
            time.sleep(0.02)

    def begin_endless(self, run="run", **options):
        self.configure(train_steps=100_000, checkpoint={"save_interval": 0}, evaluation={"eval_interval": 0})
        process = self.start("pretrain", "--config", "run.json", **options)
        path = self.folder / run / "metrics.jsonl"
        self.wait_for(lambda: path.exists() and path.read_text().count("\n") > 3, process)
        return process

    def stop(self, process, expect=3):
        process.send_signal(signal.SIGUSR2)
        _, stderr = process.communicate(timeout=120)
        self.assertEqual(process.returncode, expect, stderr)
        return stderr


class NothingWhole(OutputDirectory):
    """--resume auto where step directories exist and none can be used."""

    def test_missing_shards(self):
        self.pretrain()
        for directory in self.checkpoints():
            for shard in directory.glob("*.safetensors"):
                shard.unlink()
        self.assert_refused(*AUTO, says=["none of the 3 checkpoints", "step-00000010", "step-00000030",
                                         "another output_dir"])

    def test_flipped_bits(self):
        self.pretrain()
        for directory in self.checkpoints():
            shard = next(directory.glob("*.safetensors"))
            data = bytearray(shard.read_bytes())
            data[-5] ^= 1
            shard.write_bytes(data)
        self.assert_refused(*AUTO, says=["none of the 3 checkpoints", "checksum differs"])
        # Nor does a run without --resume take their place, records or not.
        (self.folder / "run/metrics.jsonl").unlink()
        self.assert_refused("pretrain", "--config", "run.json", says="holds another run")
        self.assert_refused("eval", "run", says=["no whole checkpoint", "checksum differs"])

    def test_a_shard_that_is_not_there_yet_is_not_damage(self):
        """A link to a file system that is not mounted: the older checkpoint is whole, and is not taken."""
        self.pretrain()
        newest = next(self.checkpoints()[-1].glob("*.safetensors"))
        newest.rename(self.folder / "kept")
        newest.symlink_to(self.folder / "not-mounted/shard")
        self.assert_refused(*AUTO, says=[newest.name, "No such file", "may be complete"])
        newest.unlink()
        (self.folder / "kept").rename(newest)
        whole = self.losses()
        self.trireme(*AUTO)
        self.assertEqual(self.losses(), whole)

    def test_a_checkpoint_of_another_user_is_not_damage(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become somebody else")
        self.pretrain()
        self.folder.chmod(0o755)
        for path in self.folder.rglob("*"):
            os.chown(path, 65534, 65534)
        for shard in self.checkpoints()[-1].glob("*.safetensors"):
            os.chown(shard, 0, 0)
            shard.chmod(0o600)
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if shutil.which("setpriv") is None or not os.access(harness.TRIREME, os.X_OK):
            self.skipTest("no setpriv")
        probe = self.start("--version", prefix=become)
        probe.communicate()
        if probe.returncode != 0:
            self.skipTest("another user cannot run the program here")
        self.assert_refused(*AUTO, prefix=become, says=["Permission denied", "shard-00000", "may be complete"])

    def test_checkpoints_that_are_elsewhere(self):
        """The folder of checkpoints is empty, as a mount point is; the run's mark says that there were some, and of a run
        of before the records."""
        self.pretrain("--set", "checkpoint.save=disk")
        (self.folder / "disk").rename(self.folder / "unmounted")
        (self.folder / "disk").mkdir()
        for interval in (10, 0):  # the last checkpoint alone is marked too
            self.assert_refused(*AUTO, "--set", "checkpoint.save=disk", "--set", f"checkpoint.save_interval={interval}",
                                says=["last_checkpoint names a checkpoint", "disk holds none"])
        (self.folder / "run/last_checkpoint").unlink()
        self.assert_refused(*AUTO, "--set", "checkpoint.save=disk", says=["30 steps", "every 10", "disk"])
        shutil.rmtree(self.folder / "disk")
        self.assert_refused(*AUTO, "--set", "checkpoint.save=disk", says=["30 steps", "disk"])
        (self.folder / "unmounted").rename(self.folder / "disk")
        self.trireme(*AUTO, "--set", "checkpoint.save=disk")
        self.assertEqual([r["step"] for r in self.records()], list(range(1, 31)))


class InUse(OutputDirectory):
    def test_a_second_run_is_refused_and_names_the_first(self):
        first = self.begin_endless()
        for resume in ([], ["--resume", "auto"]):
            _, stderr = self.trireme("pretrain", "--config", "run.json", *resume, expect=2)
            self.assertIn(f"output_dir run is in use by process {first.pid} on {os.uname().nodename} since ", stderr)
        # Checkpoints in the folder of that run, from another output_dir.
        _, stderr = self.trireme("pretrain", "--config", "run.json", "--set", "output_dir=other", "--set",
                                 "checkpoint.save=run/checkpoints", expect=2)
        self.assertIn(f"checkpoint.save run/checkpoints is in use by process {first.pid} ", stderr)
        self.assertFalse((self.folder / "other").exists())
        self.stop(first)
        self.assertEqual(list((self.folder / "run").rglob("run.lock")), [])
        steps = [r["step"] for r in self.records()]
        self.assertEqual(steps, list(range(1, steps[-1] + 1)))

    def test_rank_0_of_several_holds_it(self):
        first = self.begin_endless(ranks=2)
        holder = (self.folder / "run/run.lock").read_text()
        self.assertRegex(holder, r"^process \d+ on \S+ since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n$")
        _, stderr = self.trireme(*AUTO, ranks=2, expect=2)
        self.assertEqual(stderr.count(f"is in use by {holder.strip()}"), 1, stderr)
        self.stop(first)

    def test_a_killed_run_leaves_no_lock(self):
        first = self.begin_endless()
        first.kill()
        first.communicate()
        self.assertTrue((self.folder / "run/run.lock").exists())
        second = self.start(*AUTO)
        log = self.folder / "run/train.log"
        self.wait_for(lambda: log.read_text().count("no checkpoint yet") == 1, second)
        self.assertIn(f"process {second.pid} ", (self.folder / "run/run.lock").read_text())
        self.stop(second)

    def test_a_refused_run_leaves_no_directory(self):
        self.assert_refused("pretrain", "--config", "run.json", "--set", "output_dir=a/b/c", "--set",
                            "checkpoint.load=nowhere", says="nowhere")


class Removed(OutputDirectory):
    def test_made_again_with_a_word_and_a_checkpoint(self):
        process = self.begin_endless()
        (self.folder / "run").rename(self.folder / "gone")  # at once: the run makes files anew
        shutil.rmtree(self.folder / "gone")
        latest = self.folder / "run/checkpoints/latest"
        self.wait_for(latest.exists, process)
        step = int(latest.read_text()[5:])
        path = self.folder / "run/metrics.jsonl"
        self.wait_for(lambda: path.read_text().count("\n") > 2, process)
        stderr = self.stop(process)
        self.assertIn(f"was removed or replaced while the run wrote to it: created again at step {step}", stderr)
        self.assertEqual(self.records()[0]["step"], step + 1)
        self.assertIn("was removed or replaced", (self.folder / "run/train.log").read_text())
        self.assertTrue((self.folder / "run/resolved_config.json").exists())

    def test_taken_by_another_run(self):
        first = self.begin_endless()
        (self.folder / "run").rename(self.folder / "moved")
        # The name leads to nothing for a moment: whoever of the two makes it again has it.
        second = self.start("pretrain", "--config", "run.json", "--set", "seed=8")
        ends = {}
        self.wait_for(lambda: first.poll() is not None or second.poll() is not None)
        for process in (first, second):
            if process.poll() is None:
                process.send_signal(signal.SIGUSR2)
            _, stderr = process.communicate(timeout=120)
            ends[process.returncode] = stderr
            if process.returncode == 2:
                self.assertRegex(stderr, "in use by process|holds the records of another run|holds another run")
        self.assertEqual(set(ends), {2, 3}, ends)


class OtherTokens(OutputDirectory):
    def test_a_replaced_token_file_is_refused(self):
        self.pretrain("--set", "train_steps=20")
        self.write("train.txt", tiny_run.text(3000, 9))
        self.trireme("data", "prepare", "--input", "train.txt", "--output", "train", "--overwrite")
        self.assert_refused(*AUTO, "--set", "train_steps=20",
                            says=["data.train_data_path train has changed", "expected ", ", got ", "checksum"])

    def test_a_replaced_validation_file_is_refused_and_another_one_is_not(self):
        self.pretrain("--set", "train_steps=20")
        self.write("valid.txt", tiny_run.text(300, 9))
        self.trireme("data", "prepare", "--input", "valid.txt", "--output", "valid", "--overwrite")
        self.assert_refused(*AUTO, "--set", "train_steps=20", says="data.valid_data_path valid has changed")
        self.trireme("data", "prepare", "--input", "valid.txt", "--output", "held_out")
        self.trireme(*AUTO, "--set", "train_steps=20", "--set", "data.valid_data_path=held_out")

    def test_runs_of_before_are_warned_of_once(self):
        self.configure(scheduler={"type": "constant"})
        self.pretrain("--set", "train_steps=20")
        for directory in self.checkpoints():
            manifest.edit(directory / "manifest.json", '"data": [', '"of_later_versions": [')
        for steps, times in ((25, 1), (30, 0)):
            _, stderr = self.trireme(*AUTO, "--set", f"train_steps={steps}")
            self.assertEqual(stderr.count("does not record its token files"), times, stderr)


if __name__ == "__main__":
    harness.main()
