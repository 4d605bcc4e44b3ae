"""Sites that are jobs of their own: rounds over TCP, sites that are killed or late, resumption, and bad input."""
import os
import re
import signal
import subprocess
import sys
import time

import harness
import sites_run


class Sites(sites_run.SitesTest):
    def run_sites(self, first=(), second=()):
        """Runs two sites and their rendezvous to the end; returns the errors of the rendezvous."""
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        self.end(*[self.start(*self.site(index, address, *more)) for index, more in enumerate((first, second))])
        return self.end(hub)[0]

    def test_equal_to_one_job(self):
        """Two sites have the weights of one job with two sites, bit for bit, also if each has several ranks."""
        quantized = {"compression": sites_run.COMPRESSION}
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
        for name, outer in (("exact", {}), ("quantized", {"compression": sites_run.COMPRESSION})):
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
        self.configure_sites(outer={"compression": sites_run.COMPRESSION}, train_steps=12)
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

    def test_a_stop_in_the_last_round(self):
        """A site that stops there repeats the last step, and ends with the weights of the others."""
        self.configure_sites(3, {"period": 1000, "timeout_s": 8}, comm={"timeout": 1000}, train_batch_size=12,
                             train_steps=1000, scheduler={"type": "constant"}, checkpoint={"save_interval": 0})
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        sites = [self.start(*self.site(index, address)) for index in range(3)]
        self.wait_for("step of site 2", lambda: self.recorded_steps("site-2") > 0)
        sites[2].send_signal(signal.SIGSTOP)  # it keeps the rendezvous alive
        self.wait_for("wait of site 1", lambda: self.recorded_steps("site-1") == 999)
        sites[1].send_signal(signal.SIGTERM)
        self.end(sites[1], expect=3)
        self.assertEqual(self.saved("site-1"), ["step-00000999"])
        self.end(sites[0])
        self.end(self.start(*self.site(1, address, "--resume", "auto")))
        sites[2].send_signal(signal.SIGCONT)
        self.end(sites[2], hub)
        self.assert_equal_weights(1000, "site-0", "site-1", "site-2")

    def saved(self, run):
        return sorted(path.name for path in self.folder.glob(f"{run}/checkpoints/step-*"))

    def test_a_rendezvous_lost_in_the_last_round(self):
        """The round is not lost with it: the sites repeat the last step, and then the round."""
        self.configure_sites(outer={"period": 1000, "timeout_s": 900}, comm={"timeout": 1000}, train_steps=1000,
                             scheduler={"type": "constant"}, checkpoint={"save_interval": 0})
        hub, address = self.rendezvous()
        sites = [self.start(*self.site(index, address)) for index in range(2)]
        self.wait_for("step of site 1", lambda: self.recorded_steps("site-1") > 0)
        sites[1].send_signal(signal.SIGSTOP)
        self.wait_for("wait of site 0", lambda: self.recorded_steps("site-0") == 999)
        hub.kill()
        hub.wait()
        sites[1].send_signal(signal.SIGCONT)
        self.end(*sites, expect=5)
        self.assertEqual([self.saved(f"site-{index}") for index in range(2)], [["step-00000999"]] * 2)
        hub, address = self.rendezvous("--records", "rounds.jsonl")
        self.end(*[self.start(*self.site(index, address, "--resume", "auto")) for index in range(2)], hub)
        self.assert_equal_weights(1000, "site-0", "site-1")
        self.assertEqual([(record["step"], record["sites"]) for record in self.rounds()], [(1000, [0, 1])])
        for index in range(2):
            records = self.records(f"site-{index}")
            self.assertEqual([record["step"] for record in records], list(range(1, 1001)))
            self.assertLess(records[-1]["validation_loss"], records[0]["loss"] - 0.5)

    def test_a_site_that_is_moved_back(self):
        """What it has trained since is dropped, and no later start of the sites continues from it."""
        self.configure_sites(outer={"period": 50, "timeout_s": 2}, train_steps=300_000, scheduler={"type": "constant"},
                             checkpoint={"save_interval": 0})

        def stop(*processes):
            for process in processes:
                process.send_signal(signal.SIGTERM)
            self.end(*processes, expect=3)

        hub, address = self.rendezvous()
        sites = [self.start(*self.site(index, address)) for index in range(2)]
        self.wait_for("step of both sites", lambda: all(self.recorded_steps(f"site-{index}") > 50 for index in range(2)))
        stop(sites[0])
        near = self.records("site-0")[-1]["step"]
        self.wait_for("later step of site 1", lambda: self.records("site-1")[-1]["step"] > near + 500)
        stop(sites[1])
        far, = self.saved("site-1")
        hub.kill()
        hub, address = self.rendezvous()
        sites = [self.start(*self.site(0, address, "--resume", "auto"))]
        seen = self.recorded_steps("site-0")
        self.wait_for("step of site 0", lambda: self.recorded_steps("site-0") > seen)
        sites.append(self.start(*self.site(1, address, "--resume", "auto")))
        self.wait_for("checkpoint of site 1", lambda: len(self.saved("site-1")) > 1)
        stop(*sites)
        self.assertIn(f"{far}.dropped", self.saved("site-1"))
        self.assertNotIn(far, self.saved("site-1"))

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


class BadInput(sites_run.SitesTest):
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
