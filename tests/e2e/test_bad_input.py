"""What a user can get wrong: one line with the cause and the way out, exit code 2, nothing written or lost."""
import json
import os
import subprocess
import unittest

import harness
import manifest
import tiny_run


class BadText(harness.CommandTest):
    def refused(self, content, says, *arguments):
        if content is not None:
            self.write("text.txt", content)
        self.assert_refused("data", "prepare", "--input", "text.txt", "--output", "out", *arguments, says=says)

    def test_missing_empty_and_binary_text(self):
        self.refused(None, ["text.txt"])
        self.refused("", ["text.txt", "empty"])
        self.refused(b"abc\0def\n" * 100, ["text.txt"])
        self.refused(b"\xff\xfe broken utf-8", ["text.txt"])

    def test_missing_folder_of_the_output(self):
        self.write("text.txt", "some text\n")
        self.trireme("data", "prepare", "--input", "text.txt", "--output", "new/folder/tokens")
        self.trireme("data", "inspect", "new/folder/tokens")
        self.write("text.txt", b"abc\0def\n")  # bad text leaves no folder behind
        self.assert_refused("data", "prepare", "--input", "text.txt", "--output", "newer/folder/tokens",
                            says=["text.txt"])
        self.assert_refused("data", "prepare", "--input", "new", "--output", "text.txt/folder/tokens",
                            says=["text.txt"])

    def test_unknown_tokenizer(self):
        self.refused("some text\n", ["nobody/knows-it", "byte", ".model"], "--tokenizer", "nobody/knows-it")


class BadRun(tiny_run.RunTest):
    def refused(self, *says, arguments=(), **options):
        self.assert_refused("pretrain", "--config", "run.json", *arguments, says=list(says), **options)

    def test_vocabulary_larger_than_the_models(self):
        model = {**tiny_run.config()["model"], "vocab_size": 100}
        self.configure(model=model)
        self.refused("100", "vocab")

    def test_configuration_typos_are_reported_together(self):
        self.configure(train_stepz=5, optimizer={"type": "AdamW", "params": {"lr": "fast"}})
        self.refused("train_stepz", "train_steps", "optimizer.params.lr", "2 problems")

    def test_missing_and_malformed_configuration(self):
        self.write("run.json", '{"train_steps": 5,,}')
        self.refused("run.json:1:", "not valid JSON")
        (self.folder / "run.json").unlink()
        self.refused("run.json")

    def test_batch_sizes_that_do_not_divide(self):
        self.configure(train_batch_size=7)
        self.refused("train_batch_size", "7", "2")

    def test_token_file_shorter_than_one_sequence(self):
        self.write("short.txt", "abc")
        self.trireme("data", "prepare", "--input", "short.txt", "--output", "short")
        self.configure(data={"train_data_path": "short", "tokenizer": "byte"})
        self.refused("token file short", "33")

    def test_validation_that_was_asked_for_but_has_no_data(self):
        self.configure(data={"data_path": "train", "tokenizer": "byte"})  # one text is one document
        ways_out = ["data.valid_data_path", "several documents", "evaluation.eval_interval to 0"]
        self.refused("data.split 969,30,1", "1 document in train", *ways_out)
        self.refused("data.split 969,30,1", arguments=("--validate",))
        self.configure(data={"train_data_path": "train", "tokenizer": "byte"})
        self.refused("evaluation.eval_interval 10", "data.valid_data_path is not set")
        self.write("letter.txt", "a")
        self.trireme("data", "prepare", "--input", "letter.txt", "--output", "letter")
        self.configure(data={"train_data_path": "train", "valid_data_path": "letter", "tokenizer": "byte"},
                       evaluation={"eval_interval": 0})
        self.refused("data.valid_data_path letter", "two tokens")

    def test_no_validation_is_said_once(self):
        self.configure(data={"data_path": "train", "tokenizer": "byte"}, evaluation={"eval_interval": 0},
                       train_steps=6)
        _, stderr = self.pretrain("--ranks", "2")
        said = "the run has no validation loss: data.split 969,30,1"
        self.assertEqual(stderr.count(said), 1, stderr)
        self.assertEqual((self.folder / "run/train.log").read_text().count(said), 1)
        self.assertFalse(any("validation_loss" in record for record in self.records()))
        self.assert_refused("eval", "run", says=["no validation data", "1 document in train", "--data"])
        self.trireme("eval", "run", "--data", "valid")

    def test_missing_and_truncated_token_files(self):
        self.write("train.bin", (self.folder / "train.bin").read_bytes()[:-10])
        self.refused("train.bin")
        (self.folder / "train.idx").unlink()
        self.refused("train.idx")

    def test_output_directory_that_holds_another_run(self):
        self.pretrain("--set", "train_steps=6")
        self.refused("run", "holds another run", "--resume auto")

    def test_a_mistake_of_all_ranks_is_said_once(self):
        self.pretrain("--set", "train_steps=6")
        self.refused("holds another run", arguments=("--ranks", "2"))
        self.assert_refused("eval", "run", "--data", "nowhere", "--ranks", "2", says="nowhere")
        self.assert_refused("eval", "nowhere", "--ranks", "2", says="nowhere")
        self.configure(output_dir="new", data={"train_data_path": "nowhere", "tokenizer": "byte"},
                       evaluation={"eval_interval": 0})
        self.refused("nowhere", arguments=("--ranks", "2"))
        self.configure(train_stepz=5)
        self.refused("train_stepz", arguments=("--ranks", "2"))

    def test_ranks_that_the_backend_does_not_see(self):
        self.configure(comm={"backend": "mpi"})
        self.refused("torchrun variables started 2 processes", "comm.backend mpi sees 1",
                     environment={"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"})

    def test_configuration_that_disagrees_with_the_weights(self):
        self.pretrain("--set", "train_steps=6")
        self.configure(model={**tiny_run.config()["model"], "hidden_size": 64}, output_dir="other")
        self.refused("hidden_size", arguments=("--resume", "run"))
        # A checkpoint whose stored configuration was edited: the weights no longer fit it.
        checkpoint = "run/checkpoints/step-00000006"
        path = self.folder / checkpoint / "manifest.json"
        manifest.edit(path, '"intermediate_size": 64', '"intermediate_size": 96')
        self.assert_refused("eval", checkpoint, says=[checkpoint, "has shape", "expected from the config", "96"])
        manifest.edit(path, "intermediate_size", "intermediate_sizf")
        for command in (("eval", checkpoint), ("eval", checkpoint, "--ranks", 2), ("generate", checkpoint, "--ranks", 2)):
            self.assert_refused(*command, says=[checkpoint, "intermediate_sizf", "intermediate_size"])
        path.write_text(path.read_text().replace("intermediate_sizf", "intermediate_size"))  # without a new seal
        self.assert_refused("eval", checkpoint, says=[str(path.relative_to(self.folder)), "checksum"])

    def test_world_size_the_configuration_cannot_use(self):
        self.configure(train_batch_size=8, gradient_accumulation_steps=2)
        before = self.snapshot()
        process = self.start("pretrain", "--config", "run.json", ranks=3)
        _, stderr = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 2, stderr)
        self.assertIn("train_batch_size", stderr)
        self.assertEqual(stderr.count("trireme: error: "), 1, stderr)  # not once a rank
        self.assertEqual(self.snapshot(), before)

    def test_unusable_output_directory(self):
        self.write("file", "not a folder")
        self.configure(output_dir="file/run")
        self.refused("file/run")

    def test_nothing_to_load(self):
        self.assert_refused("eval", "nowhere", says=["nowhere"])
        (self.folder / "empty").mkdir()
        self.assert_refused("generate", "empty", says=["empty", "no whole checkpoint"])


@unittest.skipUnless(os.geteuid() == 0 and harness.can_mount_tmpfs(), "mounting a small tmpfs needs root")
class FullDisk(tiny_run.RunTest):
    def test_full_disk_during_save_keeps_what_was_there(self):
        disk = self.disk("700k")
        # One checkpoint of about 340 kB fits, a second one beside it does not.
        self.configure(output_dir="disk/run", checkpoint={"save_interval": 10, "keep_last": 0})
        _, stderr = self.pretrain(expect=2)
        self.assertIn("disk/run/checkpoints", stderr)
        self.assertIn("space", stderr)
        names = sorted(p.name for p in (disk / "run/checkpoints").iterdir())
        self.assertEqual(names, ["latest", "step-00000010"])
        self.trireme("checkpoint", "verify", "disk/run/checkpoints/step-00000010")
        self.assertEqual(json.loads(self.trireme("eval", "disk/run", "--json")[0])["checkpoint"],
                         "disk/run/checkpoints/step-00000010")

    def disk(self, size):
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        return disk

    def test_full_disk_under_the_records_does_not_end_a_run(self):
        self.disk("40k")
        self.configure(output_dir="disk/run", train_steps=120,
                       checkpoint={"save": "elsewhere", "save_interval": 50})
        _, stderr = self.pretrain()
        self.assertEqual(stderr.count("cannot write disk/run/metrics.jsonl"), 1, stderr)
        self.assertIn("cannot write disk/run/last_checkpoint", stderr)
        steps = [record["step"] for record in self.records("disk/run")]  # every line is whole
        self.assertEqual(steps, sorted(set(steps)))
        self.assertTrue(0 < len(steps) < 120, len(steps))
        # The checkpoints are found where checkpoint.save put them.
        newest = "elsewhere/step-00000120"
        self.assertEqual(json.loads(self.trireme("eval", "disk/run", "--json")[0])["checkpoint"], newest)
        for command in ("verify", "inspect"):
            self.assertIn(newest, self.trireme("checkpoint", command, "disk/run")[0])

    def test_full_disk_while_data_are_replaced_keeps_the_old(self):
        disk = self.disk("100k")
        self.write("new.txt", tiny_run.text(6000, 3))
        self.write("old.txt", tiny_run.text(6000, 4)[:30000])
        self.trireme("data", "prepare", "--input", "old.txt", "--output", "disk/tokens")
        before = {path.name: path.read_bytes() for path in disk.iterdir()}
        _, stderr = self.trireme("data", "prepare", "--input", "new.txt", "--output", "disk/tokens", "--overwrite",
                                 expect=2)
        self.assertIn("disk/tokens", stderr)
        self.assertEqual({path.name: path.read_bytes() for path in disk.iterdir()}, before)


if __name__ == "__main__":
    harness.main()
