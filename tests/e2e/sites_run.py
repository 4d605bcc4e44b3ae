"""Runs whose sites are jobs of their own, and their rendezvous: what tests of them share."""
import itertools
import json
import re
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
