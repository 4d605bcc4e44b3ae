"""Everything that ends a training run from outside saves first: signals, a closed terminal, a closed output; one rank or several."""
import os
import re
import shutil
import signal
import time

import harness
import tiny_run

STOPPED = 3


class Stop(tiny_run.RunTest):
    def begin(self, ranks=None, prefix=(), log_interval=1, **options):
        """A run that nobody waits for, in the middle of it."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        self.configure(train_steps=300_000, checkpoint={"save_interval": 0}, evaluation={"eval_interval": 0},
                       logging={"log_interval": log_interval})
        arguments = ["pretrain", "--config", "run.json", *(["--ranks", ranks] if ranks else [])]
        process = self.start(*arguments, prefix=prefix, **options)
        path = self.folder / "run/metrics.jsonl"
        end = time.monotonic() + 240
        while not path.exists() or path.read_text().count("\n") < 4:
            self.assertLess(time.monotonic(), end, "no steps")
            self.assertIsNone(process.poll(), process.args)
            time.sleep(0.02)
        return process

    def expect_saved(self, process, expect=STOPPED, says="stopped by request at step"):
        """The exit code, and a whole checkpoint of the last step on record; standard error."""
        if process.stdout.closed:  # communicate() wants both
            stderr = process.stderr.read()
            process.wait(timeout=240)
        else:
            _, stderr = process.communicate(timeout=240)
        self.assertEqual(process.returncode, expect, stderr)
        self.assertIn(says, (self.folder / "run/train.log").read_text())
        last = self.records()[-1]["step"]
        latest = (self.folder / "run/checkpoints/latest").read_text().strip()
        self.assertEqual(latest, f"step-{last:08d}")
        self.trireme("checkpoint", "verify", f"run/checkpoints/{latest}")
        self.assertFalse((self.folder / "run/run.lock").exists())
        return stderr

    def test_signals_of_one_process(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                process = self.begin()
                process.send_signal(number)
                self.expect_saved(process)

    def test_signals_at_any_instruction(self):
        """Handlers use no memory of the products that they interrupt."""
        process = self.begin()
        for _ in range(1000 if harness.SANITIZED else 5000):
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.0003)
            if process.poll() is not None:
                break
        process.send_signal(signal.SIGUSR2)
        self.expect_saved(process)

    def test_signals_of_ranks_that_trireme_starts(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                process = self.begin(ranks=2)
                process.send_signal(number)
                self.assertIn(f"{number.name}: saving and stopping after this step", self.expect_saved(process))

    def begin_unread(self, size):
        """A run that has printed so many bytes, which wait for their reader."""
        process = self.begin(ranks=2)
        end = time.monotonic() + 240
        while (self.folder / "run/train.log").stat().st_size < size:
            self.assertLess(time.monotonic(), end, "the run stands still")
            self.assertIsNone(process.poll())
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        return process

    def test_an_output_that_nobody_reads_holds_up_nothing(self):
        """Far more than all pipes on the way have room for; signals and the end come through."""
        process = self.begin_unread(1600 << 10)
        self.assertEqual(process.wait(timeout=120), STOPPED)
        self.assertIn("stopped by request at step", (self.folder / "run/train.log").read_text())

    def test_an_output_that_is_read_late_has_the_last_lines(self):
        process = self.begin_unread(600 << 10)
        stdout, stderr = process.communicate(timeout=120)
        self.assertEqual(process.returncode, STOPPED, stderr)
        self.assertIn("bytes of output were dropped because nobody read them", stdout)
        self.assertEqual(int(re.findall(r"iteration +(\d+)/", stdout)[-1]), self.records()[-1]["step"])

    def test_a_second_interrupt_ends_the_ranks(self):
        process = self.begin(ranks=2)
        for rank in self.ranks_of_this_run():
            os.kill(rank, signal.SIGSTOP)  # they do not take up the first one
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if "SIGINT: saving and stopping" in line:
                break
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        self.assertNotEqual(process.returncode, 0, stderr)
        self.assertEqual(self.ranks_of_this_run(), [])

    def test_nohup(self):
        """What ignores SIGHUP goes on."""
        for ranks in (None, 2):
            with self.subTest(ranks=ranks):
                process = self.begin(ranks, prefix=["nohup"])
                process.send_signal(signal.SIGHUP)
                metrics = self.folder / "run/metrics.jsonl"
                size = metrics.stat().st_size
                while metrics.stat().st_size < size + 8192:  # some steps more; reading them all could outlast the run
                    self.assertIsNone(process.poll())
                    time.sleep(0.02)
                process.send_signal(signal.SIGTERM)
                self.expect_saved(process)

    def test_closed_output(self):
        """As where `| tee` dies."""
        for ranks in (None, 2):
            with self.subTest(ranks=ranks):
                process = self.begin(ranks)
                process.stdout.close()
                self.expect_saved(process)

    def test_signals_to_mpirun(self):
        """mpirun kills its ranks soon after its SIGTERM, reads nothing from them in between, and ends with its own code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name):
                process = self.begin(prefix=[*harness.MPIRUN, "--mca", "odls_base_sigkill_timeout", "15", "-n", "2"],
                                     environment={"ASAN_OPTIONS": "detect_leaks=0"})
                process.send_signal(number)
                self.expect_saved(process, expect=1)
                log = (self.folder / "run/train.log").read_text()
                self.assertIn("SIGTERM: saving and stopping after this step; mpirun kills its ranks", log)

    def test_a_rank_that_never_comes(self):
        """Half of the ranks run another program."""
        other = ["-n", "1", "sleep", "600"]
        self.configure(comm={"timeout": 1})
        process = self.start("pretrain", "--config", "run.json",
                             prefix=[*harness.MPIRUN, *other, ":", "-n", "1"])
        _, stderr = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 5, stderr)
        self.assertIn("waiting in MPI_Init for 10 s: 1 of 2 ranks called MPI_Init on this machine (1)", stderr)
        self.assertIn("trireme: error: waited 30 s in MPI_Init (comm.timeout): 1 of 2 ranks", stderr)
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    harness.main()
