"""Sites that are jobs of their own: rounds over TCP, sites that are killed or late, resumption, and bad input."""
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import harness
import tiny_run

SECRET = "of this test: 0123456789abcdef"
QUIET = {"log_interval": 1000}  # what sites print stays unread until they end, and must fit in a pipe
COMPRESSION = {"method": "quantize", "bits": 8, "block": 16, "min_bytes": 1024}


class SitesTest(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.exports = itertools.count()
        self.write("secret", SECRET + "\n")

    def configure_sites(self, sites=2, outer=None, **changes):
        self.configure(outer={"sites": sites, "period": 5, "timeout_s": 60, **(outer or {})},
                       **{"evaluation": {"eval_interval": 0}, "logging": QUIET, **changes})

    def rendezvous(self, *more):
        """Starts a rendezvous; returns its process and its address."""
        process = self.start("rendezvous", "--listen", "127.0.0.1:0", "--secret-file", "secret", *more)
        address = re.fullmatch(r"rendezvous of sites at (127\.0\.0\.1:\d+)\n", process.stdout.readline())
        self.assertTrue(address, "the first line names no address")
        return process, address[1]

    def slow_link(self, address, mbit):
        """Starts a relay to the rendezvous; returns its process and its address."""
        command = [sys.executable, harness.SOURCE / "scripts/slow_link.py", "--listen", "127.0.0.1:0", "--to", address,
                   "--mbit", str(mbit)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        self.addCleanup(self._end, process)
        return process, process.stderr.readline().split()[-1]

    @staticmethod
    def site(index, address, *more, run=None, secret="secret"):
        """Command line of a site that writes to site-<index>."""
        keys = {"outer.site": index, "outer.rendezvous": address, "outer.secret_file": secret,
                "output_dir": run or f"site-{index}"}
        settings = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        return ("pretrain", "--config", "run.json", *settings, *more)

    def end(self, *processes, expect=0):
        """Waits for the end of processes, and returns their errors."""
        errors = []
        for process in processes:
            output, error = process.communicate(timeout=240)
            self.assertEqual(process.returncode, expect, f"{process.args}\n{output[-2000:]}\n{error[-2000:]}")
            errors.append(error)
        return errors

    def rounds(self):
        """Records of the rendezvous so far."""
        path = self.folder / "rounds.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def wait_for(self, what, holds):
        deadline = time.monotonic() + 120 * harness.PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), deadline, f"there is no {what}")
            time.sleep(0.005)

    def wait_for_round(self, sites, absent=None):
        """Waits for a round, after those so far, that has updates of these sites."""
        seen = len(self.rounds())
        self.wait_for(f"round of the sites {sites}",
                      lambda: any(record["sites"] == sites and absent in (None, record["absent"])
                                  for record in self.rounds()[seen:]))

    def parameters(self, step, run):
        """Weights of a checkpoint, whatever the layout of the site that saved it."""
        out = f"exported-{next(self.exports)}"
        self.trireme("checkpoint", "export", f"{run}/checkpoints/step-{step:08d}", out)
        data = (self.folder / out / "model.safetensors").read_bytes()
        return data[8 + int.from_bytes(data[:8], "little"):]

    def assert_equal_weights(self, step, *runs):
        first = self.parameters(step, runs[0])
        self.assertGreater(len(first), 4 * 26000)
        for run in runs[1:]:
            self.assertTrue(self.parameters(step, run) == first, f"the weights of {runs[0]} and {run} differ")


class Sites(SitesTest):
    def run_sites(self, first=(), second=()):
        """Runs two sites and their rendezvous to the end; returns the errors of the rendezvous."""
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        self.end(*[self.start(*self.site(index, address, *more)) for index, more in enumerate((first, second))])
        return self.end(hub)[0]

    def test_equal_to_one_job(self):
        """Two sites have the weights of one job with two sites, bit for bit, also if each has several ranks."""
        quantized = {"compression": COMPRESSION}
        streaming = {"algorithm": "streaming_diloco", "overlap_steps": 3, **quantized}
        adasum = {"algorithm": "adasum", "fragments": 2, "overlap_steps": 2, **quantized}
        for name, ranks, outer in (("exact", 1, {}), ("quantized", 2, quantized), ("streaming", 2, streaming),
                                   ("adasum", 1, {"algorithm": "adasum"}), ("overlapped_adasum", 2, adasum)):
            with self.subTest(name):
                self.configure_sites(outer=outer, train_steps=12)
                self.pretrain("--ranks", 2 * ranks, "--set", f"output_dir={name}")
                self.run_sites(("--ranks", ranks), ("--ranks", ranks))
                self.assert_equal_weights(12, name, "site-0", "site-1")
            self.rename_runs(name)

    def test_sites_of_different_layouts(self):
        for name, outer in (("exact", {}), ("quantized", {"compression": COMPRESSION})):
            with self.subTest(name):
                self.configure_sites(outer=outer, train_steps=12)
                errors = self.run_sites(("--ranks", 2, "--set", "parallel.tensor_model_parallel_size=2"), ())
                self.assert_equal_weights(12, "site-0", "site-1")
                self.assertRegex(errors, r"(?m)^step 12 fragment 0: 2 sites in [\d.]+ s, received ")
                last = self.rounds()[-1]
                self.assertEqual((last["step"], last["sites"], last["absent"], last["not_finite"]), (12, [0, 1], [], []))
                self.assertGreater(last["update_norm"], 0)
                self.assertGreater(last["received_bytes"], 0)
            self.rename_runs(name)

    def test_the_memory_report(self):
        """It has the host memory of rounds, on the first rank more than on others."""
        self.configure_sites(outer={"compression": COMPRESSION}, train_steps=12)
        for ranks in (1, 2):
            output, _ = self.trireme(*self.site(0, "127.0.0.1:1", "--ranks", ranks, "--validate"))
            memory = {name: int(size) for name, size in re.findall(r"(?m)^  (\S.*?)  .*\((\d+) bytes\)$", output)}
            total = memory.pop("total")
            self.assertEqual(sum(memory.values()), total, output)
            # The update, its residual, a code of a byte per weight, the pieces of all ranks, and those of the first.
            expected = memory["parameters"] / 4 * (4 + 4 + 1 + 4 + 4 / ranks)
            self.assertAlmostEqual(memory["rounds of sites (host)"] / expected, 1, delta=0.2, msg=output)

    def rename_runs(self, name):
        for run in ("site-0", "site-1", "rounds.jsonl"):
            (self.folder / run).rename(self.folder / f"{name}-{run}")

    def test_sites_of_this_machine(self):
        self.configure_sites(train_steps=12, train_batch_size=12)
        output, errors = self.pretrain("--sites", 3, "--set", "logging.log_interval=1")
        self.assertIn("iteration       12/      12", output)
        self.assertIn("step 12 fragment 0: 3 sites in ", errors)
        self.assert_equal_weights(12, "run/site-0", "run/site-1", "run/site-2")
        self.assertEqual(sorted(os.listdir(self.folder / "run")), ["site-0", "site-1", "site-2"])

    def test_a_failing_site_of_this_machine(self):
        self.configure_sites(train_steps=12)
        self.pretrain("--sites", 2)
        _, errors = self.pretrain("--sites", 2, expect=2)
        self.assertIn("output_dir run/site-0 holds another run", errors)
        self.assertIn("site 1 has ended with exit code 2", errors)

    def test_killed_and_late_sites(self):
        """The others continue without a site that is killed or late; it returns with the current weights."""
        self.configure_sites(3, {"period": 50, "timeout_s": 2}, train_batch_size=12, train_steps=5000,
                             checkpoint={"save_interval": 100, "keep_last": 2}, scheduler={"type": "constant"})
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        sites = [self.start(*self.site(index, address)) for index in range(3)]
        self.wait_for("checkpoint of site 2", lambda: list(self.folder.glob("site-2/checkpoints/step-*/manifest.json")))
        sites[2].kill()
        self.wait_for_round([0, 1], [2])
        # Every round waits two seconds for a site that is stopped, so that the run does not end meanwhile.
        sites[1].send_signal(signal.SIGSTOP)
        self.wait_for_round([0], [1, 2])
        again = self.start(*self.site(2, address, "--resume", "auto"))
        self.wait_for_round([0, 2], [1])
        sites[1].send_signal(signal.SIGCONT)
        self.wait_for_round([0, 1, 2], [])
        errors = self.end(sites[0], sites[1], again)
        self.assertIn(": site 1 is absent from the round", errors[0])
        self.assertIn(": this site was late for the round and continues from the weights of the others, at step ", errors[1])
        self.assertIn("the sites of the run are at step ", errors[2])
        self.assertIn("site 2 is lost: ", self.end(hub)[0])
        self.assert_equal_weights(5000, "site-0", "site-1", "site-2")

    def test_the_script_of_changing_sites(self):
        script = [sys.executable, "-B", harness.SOURCE / "scripts/bench/changing_sites.py", "--trireme", harness.TRIREME,
                  "--data", self.folder, "--out", self.folder / "out", "--sites", "2", "--changes", "2", "--steps", "12",
                  "--period", "1"]

        def run(*more):
            return subprocess.run([*map(str, script), *more], capture_output=True, stdin=subprocess.DEVNULL, text=True,
                                  timeout=240, check=False)

        ran = run()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(ran.stdout, r"\| without changes \| 0 \| 12 \| 2 to 2 \| [\d.]+ \| [\d.]+ \|\n"
                                     r"\| with changes \| 2 \| 12 \| 1 to 2 \| [\d.]+ \| [\d.]+ \|\n")
        for more, says in ((("--steps", "6"), "2 changes need more than 6 rounds, these are 6"), ((), "exists: give a new folder"),
                           (("--sites", "1"), "--sites must be at least 2")):
            refused = run(*more)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(says, refused.stderr)

    def test_resumption_after_a_kill(self):
        """Sites that continue from checkpoints of one step, between two rounds, end with the bits of a run without a kill."""
        self.configure_sites(train_steps=400, checkpoint={"save_interval": 8, "keep_last": 100})
        self.run_sites()
        self.assert_equal_weights(400, "site-0", "site-1")
        hub, address = self.rendezvous()
        sites = [self.start(*self.site(index, address, run=f"killed-{index}")) for index in range(2)]
        checkpoints = [self.folder / f"killed-{index}/checkpoints/step-00000008/manifest.json" for index in range(2)]
        self.wait_for("checkpoint of both sites", lambda: all(path.exists() for path in checkpoints))
        for process in (hub, *sites):
            process.kill()
            process.wait()
        hub, address = self.rendezvous()
        sites = [self.start(*self.site(index, address, "--resume", f"killed-{index}/checkpoints/step-00000008",
                                       run=f"resumed-{index}")) for index in range(2)]
        self.end(*sites, hub)
        self.assert_equal_weights(400, "site-0", "resumed-0", "resumed-1")
        self.assertEqual(self.losses("resumed-1"), self.losses("site-1")[8:])

    def test_resumption_after_sigterm(self):
        """Sites stop wherever they are; all continue from the one that is farthest."""
        self.configure_sites(outer={"period": 50, "timeout_s": 5}, train_steps=4000, scheduler={"type": "constant"},
                             checkpoint={"save_interval": 0})
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        sites = [self.start(*self.site(index, address)) for index in range(2)]
        self.wait_for_round([0, 1])
        for process in (*sites, hub):
            process.send_signal(signal.SIGTERM)
        for error in self.end(*sites, expect=3):
            self.assertIn("continue with --resume auto", error)
        output, _ = hub.communicate(timeout=60)
        self.assertEqual((hub.returncode, output), (3, "stopped by a signal\n"))
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        sites = [self.start(*self.site(index, address, "--resume", "auto")) for index in range(2)]
        self.end(*sites, hub)
        self.assert_equal_weights(4000, "site-0", "site-1")

    def test_a_stop_in_a_round(self):
        """A site that waits for another one stops by request, with a checkpoint, long before the round closes."""
        self.configure_sites(outer={"period": 1000, "timeout_s": 900}, comm={"timeout": 1000}, train_steps=5000,
                             scheduler={"type": "constant"}, checkpoint={"save_interval": 0})
        hub, address = self.rendezvous()
        sites = [self.start(*self.site(0, address, "--ranks", 2)), self.start(*self.site(1, address))]
        self.wait_for("step of site 1", lambda: self.recorded_steps("site-1") > 0)
        sites[1].send_signal(signal.SIGSTOP)
        self.wait_for("wait of site 0", lambda: self.recorded_steps("site-0") == 999)
        sites[0].send_signal(signal.SIGTERM)
        error, = self.end(sites[0], expect=3)
        self.assertIn("stopped by request at step 1000, without the results of open rounds; ", error)
        self.assertTrue((self.folder / "site-0/checkpoints/step-00001000/manifest.json").exists())
        for process in (sites[1], hub):
            process.kill()

    def test_a_site_that_is_late_for_the_end(self):
        """It ends with the weights of the others, and with a record of their validation loss."""
        self.configure_sites(outer={"period": 1000, "timeout_s": 2}, train_steps=2000, scheduler={"type": "constant"},
                             checkpoint={"save_interval": 0})
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        sites = [self.start(*self.site(index, address)) for index in range(2)]
        self.wait_for("step of site 1", lambda: self.recorded_steps("site-1") > 0)
        sites[1].send_signal(signal.SIGSTOP)
        self.wait_for_round([0], [1])
        self.end(sites[0])
        sites[1].send_signal(signal.SIGCONT)
        self.assertIn("this site was late for the round", self.end(sites[1], hub)[0])
        self.assert_equal_weights(2000, "site-0", "site-1")
        last = [self.records(f"site-{index}")[-1] for index in range(2)]
        self.assertEqual([record["step"] for record in last], [2000, 2000])
        self.assertEqual(last[0]["validation_loss"], last[1]["validation_loss"])

    def test_a_transfer_longer_than_the_timeout_of_ranks(self):
        """The other ranks of a site wait for the first one as long as it waits for a slow link."""
        self.configure_sites(outer={"period": 5, "timeout_s": 2}, train_steps=5)
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        link, slow = self.slow_link(address, mbit=0.25)
        began = time.monotonic()
        sites = [self.start(*self.site(0, address)),
                 self.start(*self.site(1, slow, "--ranks", 2, "--set", "comm.timeout=3"))]
        self.end(*sites, hub)
        self.assertGreater(time.monotonic() - began, 6, "no transfer is slow")
        link.kill()
        self.assert_equal_weights(5, "site-0", "site-1")

    def test_a_lost_rendezvous(self):
        """Sites save and end where the rendezvous does, and the error says how to continue."""
        self.configure_sites(outer={"period": 50}, train_steps=5000, scheduler={"type": "constant"},
                             checkpoint={"save_interval": 0})
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        sites = [self.start(*self.site(index, address)) for index in range(2)]
        self.wait_for("third round", lambda: len(self.rounds()) > 2)
        hub.kill()
        for error in self.end(*sites, expect=5):
            self.assertRegex(error, rf"trireme: error: the rendezvous of the sites at {address} is lost \(.*\): "
                                    r"start it again, then this site with --resume auto\n")
        hub, address = self.rendezvous()
        sites = [self.start(*self.site(index, address, "--resume", "auto", "--set", "train_steps=2000")) for index in range(2)]
        self.end(*sites, hub)
        self.assert_equal_weights(2000, "site-0", "site-1")


class SitesOfThisMachine(SitesTest):
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


class Moves(SitesTest):
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
        without = {"compression": {**COMPRESSION, "bits": 4, "error_feedback": False}}
        with_residuals = {"compression": {**COMPRESSION, "bits": 4}}
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
        compressed = {"compression": {**COMPRESSION, "bits": 4}}
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


class BadInput(SitesTest):
    def setUp(self):
        super().setUp()
        self.configure_sites(outer={"timeout_s": 5}, train_steps=10)

    def fails(self, *command, expect, says):
        """One line of an error, which holds the texts of `says`."""
        _, stderr = self.trireme(*command, expect=expect)
        errors = [line for line in stderr.splitlines() if line.startswith("trireme: error: ")]
        self.assertEqual(len(errors), 1, stderr)
        for text in says:
            self.assertIn(text, errors[0])

    def refused(self, *assignments, says, ranks=1):
        settings = [part for one in assignments for part in ("--set", one)]
        self.assert_refused("pretrain", "--config", "run.json", "--ranks", ranks, *settings, says=says)

    def test_another_model(self):
        hub, address = self.rendezvous()
        first = self.start(*self.site(0, address))
        self.wait_for_line(hub, "site 0 has joined")
        self.fails(*self.site(1, address, "--set", "model.intermediate_size=96"), expect=2,
                   says=[f"the rendezvous at {address} refuses site 1: it differs from site 0: ",
                         "model.intermediate_size is 96, not 64"])
        self.fails(*self.site(1, address, "--set", "outer.period=7", "--set", "optimizer.params.lr=0.25"), expect=2,
                   says=["outer.period is 7, not 5", "optimizer.params.lr is 0.25, not 0.005"])
        # A layout and directories of its own are no difference; a timeout that has no effect is told.
        *_, error = self.end(self.start(*self.site(1, address, "--ranks", 2, "--set", "logging.log_interval=5",
                                                   "--set", "outer.timeout_s=9")), first, hub)
        self.assertIn("site 1 differs from site 0: outer.timeout_s is 9, not 5; rounds wait 5 s for a site", error)
        self.assert_equal_weights(10, "site-0", "site-1")

    def wait_for_line(self, process, text):
        for line in process.stderr:
            if text in line:
                return
        self.fail(f"no line has: {text}")

    def test_two_sites_of_one_index(self):
        hub, address = self.rendezvous()
        first = self.start(*self.site(0, address))
        self.wait_for_line(hub, "site 0 has joined")
        self.fails(*self.site(0, address, run="other"), expect=2,
                   says=[f"the rendezvous at {address} refuses site 0: ", "site 0 is in the run already",
                         "give each site its own outer.site"])
        self.end(self.start(*self.site(1, address, run="other-1")), first, hub)

    def test_a_wrong_secret(self):
        hub, address = self.rendezvous()
        self.write("other", "fedcba9876543210fedcba98\n")
        says = [f"cannot join the rendezvous at {address}: ", "with the secret of this site"]
        self.fails(*self.site(0, address, secret="other"), expect=5, says=says)
        sites = [self.start(*self.site(index, address, run=f"right-{index}")) for index in range(2)]
        self.end(*sites, hub)

    def test_no_rendezvous(self):
        hub, address = self.rendezvous()
        hub.kill()
        hub.wait()
        self.fails(*self.site(0, address, "--set", "outer.timeout_s=1"), expect=5,
                   says=[f"cannot join the rendezvous at {address}: ", "check that it runs there"])
        self.fails(*self.site(0, "no-host.invalid:29400"), expect=2,
                   says=['cannot resolve the address "no-host.invalid" of the sites'])
        hub, address = self.rendezvous()
        self.end(*[self.start(*self.site(index, address)) for index in range(2)], hub)

    def test_secrets(self):
        self.write("short", "abc\n")
        os.mkfifo(self.folder / "fifo")
        for secret, says in (("none", "none"), ("short", "openssl rand -hex 32"), (".", "it is a directory"),
                             ("fifo", "it is a FIFO")):
            for command in (self.site(0, "127.0.0.1:1", secret=secret, run=f"run-{secret}"),
                            ("rendezvous", "--secret-file", secret)):
                self.fails(*command, expect=2, says=[says])
        self.assert_refused("rendezvous", says="--secret-file is required")

    def test_a_secret_that_is_made_as_the_error_says(self):
        self.write("short", "abc\n")
        self.fails("rendezvous", "--secret-file", "short", expect=2,
                   says=["the secret in short has 3 characters; give it 16 to 4096, such as the output of openssl rand -hex 32"])
        self.trireme("rand", "-hex", "-out", "secret", "32", program="openssl")
        hub, address = self.rendezvous()
        self.end(*[self.start(*self.site(index, address)) for index in range(2)], hub)

    def test_records_that_cannot_be_written(self):
        self.fails("rendezvous", "--listen", "127.0.0.1:0", "--secret-file", "secret", "--records", "none/rounds", expect=2,
                   says=["cannot write none/rounds: give another file with --records"])
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        self.end(*[self.start(*self.site(index, address)) for index in range(2)], hub)
        self.assertEqual([record["step"] for record in self.rounds()], [5, 10])

    def test_keys(self):
        remote = ("outer.site=0", "outer.rendezvous=127.0.0.1:29400", "outer.secret_file=secret")
        self.refused("outer.site=2", *remote[1:], says="outer.site: 2 is not below outer.sites 2")
        self.refused(remote[1], remote[2], ranks=2,
                     says=["outer.rendezvous: needs outer.site", "outer.secret_file: needs outer.site"])
        self.refused(remote[0], says=["outer.rendezvous: is required with outer.site",
                                      "outer.secret_file: is required with outer.site"])
        self.refused(*remote, "comm.timeout=5", says="outer.timeout_s: 5 is not below comm.timeout 5")
        for address in ("127.0.0.1", "127.0.0.1:", ":29400", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x"):
            with self.subTest(address):
                says = f'outer.rendezvous: "{address}" is not HOST:PORT, a port being 1 to 65535'
                self.refused(remote[0], f"outer.rendezvous={address}", remote[2], says=says)

    def test_addresses_to_listen_at(self):
        for address in ("127.0.0.1", "127.0.0.1:", ":29400", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:x"):
            with self.subTest(address):
                self.assert_refused("rendezvous", "--secret-file", "secret", f"--listen={address}",
                                    says=f'--listen: "{address}" is not HOST:PORT, a port being 0 to 65535')
        hub, address = self.rendezvous()
        self.assert_refused("rendezvous", "--secret-file", "secret", "--listen", address,
                            says="choose another port, or end the process that uses this one")
        self.assert_refused("rendezvous", "--secret-file", "secret", "--listen", "no-host.invalid:0",
                            says='cannot resolve the address "no-host.invalid"')
        hub.send_signal(signal.SIGTERM)
        self.end(hub, expect=3)

    def test_sites_of_this_machine(self):
        for sites in (0, 1, 1025):
            self.assert_refused("pretrain", "--config", "run.json", "--sites", sites, says="--sites")
        self.assert_refused("pretrain", "--config", "run.json", "--sites", 3, says="train_batch_size: 8 is not divisible")


if __name__ == "__main__":
    harness.main()
