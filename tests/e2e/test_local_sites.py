"""Sites of one machine: those of pretrain --sites, and moves between sites of one job and jobs of their own."""
import json
import os
import shutil
import signal

import harness
import sites_run


class SitesOfThisMachine(sites_run.SitesTest):
    """Signals to the process that starts the sites, and fine-tuning on sites."""

    def begin(self, *more):
        """Sites in the middle of a run, and how many steps both have on record."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        self.configure_sites(outer={"period": 50}, train_steps=300_000, scheduler={"type": "constant"},
                             checkpoint={"save_interval": 0})
        process = self.start("pretrain", "--config", "run.json", "--sites", 2, *more)
        self.wait_for_both("step", lambda run: self.recorded_steps(run) > 4)
        return process

    def wait_for_both(self, what, holds):
        self.wait_for(f"{what} of both sites", lambda: all(holds(f"run/site-{index}") for index in range(2)))

    def saved_steps(self, run):
        return sorted(path.parent.name for path in self.folder.glob(f"{run}/checkpoints/step-*/manifest.json"))

    def expect_saved(self, process):
        error, = self.end(process, expect=3)
        self.assertEqual(error.count("stopped by request at step "), 2, error)
        for index in range(2):
            last = self.records(f"run/site-{index}")[-1]["step"]
            self.assertEqual(self.saved_steps(f"run/site-{index}")[-1], f"step-{last:08d}")

    def processes(self):
        """Processes that run in self.folder."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/cwd") == os.path.realpath(self.folder):
                    found.append(int(entry))
            except OSError:
                continue
        return found

    def test_sigterm_and_resumption(self):
        """SIGTERM reaches all sites, which save; --resume auto continues all."""
        process = self.begin()
        process.send_signal(signal.SIGTERM)
        self.expect_saved(process)
        steps = max(self.recorded_steps(f"run/site-{index}") for index in range(2)) + 20
        self.pretrain("--sites", 2, "--resume", "auto", "--set", f"train_steps={steps}")
        self.assert_equal_weights(steps, "run/site-0", "run/site-1")

    def test_signals(self):
        """SIGUSR1 reaches all sites, which save and continue; so does each signal by which a run stops."""
        for number in (signal.SIGUSR2, signal.SIGHUP, signal.SIGINT):
            with self.subTest(number.name):
                process = self.begin()
                process.send_signal(signal.SIGUSR1)
                self.wait_for_both("checkpoint", self.saved_steps)
                self.assertIsNone(process.poll())
                process.send_signal(number)
                self.expect_saved(process)
                self.assertTrue(all(len(self.saved_steps(f"run/site-{index}")) > 1 for index in range(2)))

    def test_a_signal_during_start_up(self):
        """Sites that have just been started take up a request after their first step."""
        self.configure_sites(outer={"period": 50}, train_steps=300_000, scheduler={"type": "constant"})
        process = self.start("pretrain", "--config", "run.json", "--sites", 2)
        self.wait_for("handler", lambda: self.has_signal(process.pid, "SigCgt", signal.SIGUSR2))
        process.send_signal(signal.SIGUSR2)
        self.expect_saved(process)
        self.assertEqual(self.saved_steps("run/site-0"), ["step-00000001"])

    def test_an_interrupt_of_sites_of_several_ranks(self):
        """A terminal sends it to the process group, of which the sites are no part: they get it once."""
        process = self.begin("--ranks", 2)
        os.killpg(process.pid, signal.SIGINT)
        self.expect_saved(process)

    def test_a_signal_that_sites_get_twice(self):
        """A scheduler sends it to all processes, so that a site gets it from there and from its parent."""
        process = self.begin()
        for pid in self.processes():
            os.kill(pid, signal.SIGTERM)
        self.expect_saved(process)

    def test_a_closed_output(self):
        process = self.begin("--set", "logging.log_interval=1")
        process.stdout.close()
        errors = process.stderr.read()
        self.assertEqual(process.wait(timeout=240), 3, errors)
        self.assertEqual(errors.count("stopped by request at step "), 2, errors)
        for index in range(2):
            self.assertEqual(len(self.saved_steps(f"run/site-{index}")), 1)

    def test_no_site_outlives_its_parent(self):
        """Neither its end by SIGKILL nor by a second interrupt."""
        for more in ((), ("--ranks", 2)):
            for name in ("SIGKILL", "SIGINT"):
                with self.subTest(name, more=more):
                    process = self.begin(*more)
                    others = [pid for pid in self.processes() if pid != process.pid]
                    self.assertGreaterEqual(len(others), 2)
                    if name == "SIGINT":
                        for pid in others:
                            os.kill(pid, signal.SIGSTOP)  # they do not take up the first one
                        process.send_signal(signal.SIGINT)
                        self.wait_for("first interrupt", lambda: not self.has_signal(process.pid, "SigCgt", signal.SIGINT))
                    process.send_signal(getattr(signal, name))
                    self.assertEqual(process.wait(timeout=60), -getattr(signal, name))
                    self.wait_for("end of the sites", lambda: not self.processes())

    @staticmethod
    def has_signal(pid, mask, number):
        """Whether a mask of /proc/PID/status has the signal."""
        lines = harness.Path(f"/proc/{pid}/status").read_text().splitlines()
        signals, = [int(line.split()[1], 16) for line in lines if line.startswith(f"{mask}:")]
        return signals >> (number - 1) & 1

    def test_finetuning(self):
        """train_steps auto, from the examples that all sites share."""
        self.configure(output_dir="base", train_steps=4, scheduler={"type": "constant"}, checkpoint={}, evaluation={})
        self.pretrain()
        self.write("train.jsonl", "".join(json.dumps({"prompt": f"{i} ", "completion": f"of {i}"}) + "\n" for i in range(24)))
        tuned = {"output_dir": "tuned", "checkpoint": {"load": "base"}, "train_batch_size": 8,
                 "train_micro_batch_size_per_gpu": 2, "sequence_length": 32, "seed": 5, "train_steps": "auto",
                 "finetune": {"train_file": "train.jsonl", "num_train_epochs": 2, "packing": False},
                 "evaluation": {"eval_interval": 0}, "outer": {"sites": 2, "period": 2},
                 "data": {"tokenizer": "byte"}, "cpu": {"threads_per_rank": 1}}
        self.write("tune.json", json.dumps(tuned))
        tune = ("finetune", "--config", "tune.json")
        self.trireme(*tune, "--sites", 2)
        self.trireme(*tune, "--ranks", 2, "--set", "output_dir=one-job")
        steps = self.records("one-job")[-1]["step"]
        self.assertEqual(steps, 6)  # two epochs of 24 examples
        self.assert_equal_weights(steps, "one-job", "tuned/site-0", "tuned/site-1")
        self.assert_refused("pretrain", "--config", "tune.json", "--sites", 2, says="run it with trireme finetune")


class Moves(sites_run.SitesTest):
    """A run of one job with sites continues as sites that are jobs of their own, and the reverse."""

    def checkpoint(self, step, run):
        return f"{run}/checkpoints/step-{step:08d}"

    def continue_remotely(self, checkpoint, *more):
        """Continues one checkpoint as two sites; returns the errors of the sites."""
        hub, address = self.rendezvous()
        errors = self.end(*[self.start(*self.site(index, address, "--resume", checkpoint, *more)) for index in range(2)])
        self.end(hub)
        return errors

    def test_remote_sites_continue_one_job(self):
        """Bit for bit, between two rounds; but not with residuals, as the rendezvous starts without that of the sums."""
        without = {"compression": {**sites_run.COMPRESSION, "bits": 4, "error_feedback": False}}
        with_residuals = {"compression": {**sites_run.COMPRESSION, "bits": 4}}
        for name, ranks, outer in (("exact", 1, {}), ("quantized", 2, without), ("residuals", 2, with_residuals)):
            with self.subTest(name):
                self.configure_sites(outer=outer, train_steps=14, checkpoint={"save_interval": 7, "keep_last": 9})
                self.pretrain("--ranks", 2 * ranks, "--set", f"output_dir={name}")
                errors = self.continue_remotely(self.checkpoint(7, name), "--ranks", ranks)
                self.assertNotIn("lost", "".join(errors))
                self.assert_equal_weights(14, "site-0", "site-1")
                same = self.parameters(14, name) == self.parameters(14, "site-0")
                self.assertEqual(same, name != "residuals")
                for site in range(2):
                    (self.folder / f"site-{site}").rename(self.folder / f"{name}-site-{site}")

    def test_one_job_continues_a_remote_site(self):
        """After a round, bit for bit if the optimizer has no state; else with the state of the site that saved."""
        sgd = {"type": "SGD", "params": {"lr": 0.1}}
        compressed = {"compression": {**sites_run.COMPRESSION, "bits": 4}}
        for name, outer, optimizer, warnings in (("exact", {}, sgd, 0), ("residuals", compressed, sgd, 1)):
            with self.subTest(name):
                self.configure_sites(outer=outer, train_steps=15, optimizer=optimizer,
                                     checkpoint={"save_interval": 5, "keep_last": 9})
                hub, address = self.rendezvous()
                self.end(*[self.start(*self.site(index, address, run=f"{name}-{index}")) for index in range(2)], hub)
                _, errors = self.pretrain("--ranks", 2, "--set", f"output_dir={name}",
                                          "--resume", self.checkpoint(5, f"{name}-1"))
                lost = "is the checkpoint of site 1 alone: what the other sites and the rendezvous had not yet sent is lost"
                self.assertEqual(errors.count(lost), warnings, errors)
                same = self.parameters(15, name) == self.parameters(15, f"{name}-0")
                self.assertEqual(same, name == "exact")

if __name__ == "__main__":
    harness.main()
