"""Training over two hosts, which scripts/test_two_hosts.sh makes and names in the environment."""
import json
import os
import re
import shlex
import signal
import subprocess
import time

import harness
from rank_processes import Lines, RankRunTest

HOSTS = [os.environ["TRIREME_HOST_A"], os.environ["TRIREME_HOST_B"]]
ADDRESSES = [os.environ["TRIREME_ADDRESS_A"], os.environ["TRIREME_ADDRESS_B"]]
PORT = 29500
AFTER_A_DEATH, AFTER_A_STOP = 3.5, 20  # tests/e2e/test_lost_rank.py says why


class TwoHosts(RankRunTest):
    def on_host(self, host, name):
        """What makes a command run on that host, under that host name."""
        return ["ip", "netns", "exec", HOSTS[host], "unshare", "--uts", "sh", "-c",
                f'hostname "{name}" && exec "$@"', "sh"]

    def variables(self, rank, ranks):
        return {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT), "RANK": str(rank),
                "WORLD_SIZE": str(ranks)}

    def start_hosts(self):
        per_host = self.ranks // 2
        self.roots = [self.start("pretrain", "--config", "run.json", environment=self.variables(r, self.ranks),
                                 prefix=self.on_host(r // per_host, "ab"[r // per_host])) for r in range(self.ranks)]
        self.outputs = [Lines(root) for root in self.roots]
        self.pids = {r: root.pid for r, root in enumerate(self.roots)}

    def start_mpi_hosts(self):
        """mpirun on host a, which starts its daemon on host b through a stand-in for ssh."""
        enter = [" ".join(map(shlex.quote, self.on_host(host, name))) for host, name in enumerate("ab")]
        agent = self.write("agent", f'#!/bin/sh\nshift\nexec {enter[1]} sh -c "$*"\n')
        agent.chmod(0o755)
        half = self.ranks // 2
        launcher = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", str(agent),
                    "-H", f"{ADDRESSES[0]}:{half},{ADDRESSES[1]}:{half}"]
        self.roots = [self.start("pretrain", "--config", "run.json", prefix=[*self.on_host(0, "a"), *launcher])]
        self.outputs = [Lines(self.roots[0])]
        self.wait_for(lambda: len(self.find_ranks()) == self.ranks)
        self.pids = self.find_ranks()

    def one_process(self):
        self.configure(output_dir="one")
        self.pretrain()
        return self.losses("one")

    def expect_losses(self, losses):
        reference = self.one_process()
        self.assertEqual(len(losses), len(reference))
        for ours, theirs in zip(losses, reference):
            self.assertEqual(ours[0], theirs[0])
            for a, b in zip(ours[1:], theirs[1:]):
                if b is not None:  # float32: the order of additions differs
                    self.assertLess(abs(a - b), 1e-4 * abs(b), f"step {ours[0]}: {ours} and {theirs}")

    def train(self, ranks, transport="tcp", **changes):
        self.ranks = ranks
        self.configure(**changes)
        self.start_hosts() if transport == "tcp" else self.start_mpi_hosts()
        codes = self.end(300)
        self.assertEqual(set(codes.values()), {0}, self.everything())
        log = (self.folder / "run/train.log").read_text()
        self.assertIn(f"{ranks} ranks over {transport} on 2 hosts, 2 nodes", log)
        self.expect_losses(self.losses())

    def test_one_rank_each(self):
        self.train(2)

    def test_two_ranks_each(self):
        self.train(4)

    def test_two_ranks_each_as_one_ring(self):
        self.train(4, comm={"algorithm": "ring"})

    def test_two_ranks_each_over_mpi(self):
        self.train(4, "mpi")

    def test_a_pipeline_between_hosts_of_tensor_parallel_ranks(self):
        self.train(4, parallel={"tensor_model_parallel_size": 2, "sequence_parallel": True,
                                "pipeline_model_parallel_size": 2, "pipeline_schedule": "zb_h1"})

    def test_a_ring_of_keys_and_sharded_weights_between_hosts(self):
        self.train(4, "mpi", parallel={"context_parallel_size": 4}, zero_optimization={"stage": 3})

    def interrupted(self, ranks, victim, number, limit, says):
        """Signals a rank in the middle of a run; the others must name it in time."""
        self.ranks = ranks
        self.start_run("hosts")
        with harness.Noise() as noise:
            since = time.monotonic()
            self.send(victim, number)
            self.expect_all_named(since, limit, says, noise, [r for r in range(ranks) if r != victim],
                                  [victim])

    def expect_all_named(self, since, limit, says, noise, survivors, victims):
        for r in survivors:
            self.assertEqual(self.roots[r].wait(timeout=240), 5, self.everything())
            self.outputs[r].thread.join(timeout=60)
        pattern = re.compile(rf"trireme: error: rank (\d+) of .* stopped: rank (\d+) \(process \d+ on [ab]\) {says}")
        for r in survivors:
            found = [(when, match) for when, line in self.outputs[r].lines if (match := pattern.fullmatch(line))]
            self.assertEqual(len(found), 1, self.everything())
            when, match = found[0]
            self.assertEqual(int(match[1]), r)
            self.assertIn(int(match[2]), victims)
            print(f"named after {when - since:.3f} s", flush=True)
            self.assertLess(when - since, limit + 4 * noise.worst)

    def test_killed_rank(self):
        self.interrupted(4, 3, signal.SIGKILL, AFTER_A_DEATH, "died(: its connection ended)?")

    def test_killed_rank_zero(self):
        self.interrupted(4, 0, signal.SIGKILL, AFTER_A_DEATH, "died(: its connection ended)?")

    def test_stopped_rank_with_a_neighbour(self):
        self.interrupted(4, 2, signal.SIGSTOP, AFTER_A_STOP, r"has not run for [\d.]+ s: it was stopped.*")

    def test_stopped_rank_that_is_alone_on_its_host(self):
        self.interrupted(2, 1, signal.SIGSTOP, AFTER_A_STOP, r"has not run for [\d.]+ s: stopped, or .*")

    def test_cut_cable(self):
        self.ranks = 2
        self.start_run("hosts")
        cable = ["ip", "-n", HOSTS[1], "link", "set", os.environ["TRIREME_CABLE"]]
        with harness.Noise() as noise:
            since = time.monotonic()
            subprocess.run([*cable, "down"], check=True)
            self.addCleanup(subprocess.run, [*cable, "up"], check=True)
            self.expect_all_named(since, 60, r"has not run for [\d.]+ s: its machine or the network hangs", noise,
                                  [0, 1], [0, 1])

    def test_cut_cable_under_mpirun(self):
        """MPI says nothing of a dead network: the wait ends after comm.timeout, and names who did not answer.

        Open MPI may spend more than ten seconds in one call then, which count as one.
        """
        self.ranks = 2
        self.start_run("mpi_hosts", comm={"timeout": 5})
        cable = ["ip", "-n", HOSTS[1], "link", "set", os.environ["TRIREME_CABLE"]]
        with harness.Noise() as noise:
            since = time.monotonic()
            subprocess.run([*cable, "down"], check=True)
            self.addCleanup(subprocess.run, [*cable, "up"], check=True)
            self.wait_for_line(r"trireme: error: rank 0 of .* stopped: waited \d+ s for rank 1 \(comm.timeout\)")
            self.assertLess(time.monotonic() - since, 45 + 4 * noise.worst)

    def wait_for_line(self, pattern):
        end = time.monotonic() + 120
        while not re.search(pattern, self.everything()):
            self.assertLess(time.monotonic(), end, self.everything())
            time.sleep(0.02)

    def test_containers_with_one_host_name(self):
        """Two process namespaces of one machine, two ranks in each: nobody opens a stranger's memory."""
        self.ranks = 4
        self.configure()
        self.roots = []
        for host in range(2):
            ranks = "".join(f'RANK={r} "$@" & ' for r in (2 * host, 2 * host + 1))
            prefix = ["ip", "netns", "exec", HOSTS[host], "unshare", "--pid", "--fork", "--mount-proc", "sh", "-c",
                      ranks + "wait", "sh"]
            self.roots.append(self.start("pretrain", "--config", "run.json", prefix=prefix,
                                         environment=self.variables(0, 4)))
        self.outputs = [Lines(root) for root in self.roots]
        self.assertEqual(self.end(300), {0: 0, 1: 0}, self.everything())
        self.assertIn("4 ranks over tcp on 1 host, 2 nodes", (self.folder / "run/train.log").read_text())
        self.assertGreater(json.loads((self.folder / "run/metrics.jsonl").read_text().splitlines()[1])
                           ["comm_window_bytes"], 0)
        self.expect_losses(self.losses())

    def test_serving(self):
        """Plans go over TCP, on the address that is named; the texts are those of one process."""
        self.ranks = 2
        self.configure()
        self.pretrain()
        prompt, words = "the oar of a", 12
        expected, _ = self.trireme("generate", "run", "--prompt", prompt, "--temperature", 0, "--max-new-tokens", words)
        self.roots = [self.start("serve", "--model", "run", "--served-model-name", "tiny", "--port", PORT + 1, "--tensor", 2,
                                 "--rank-address", ADDRESSES[0], environment=self.variables(r, 2),
                                 prefix=self.on_host(r, "ab"[r])) for r in range(2)]
        self.outputs = [Lines(root) for root in self.roots]
        self.assertIn("listening", self.roots[0].stdout.readline(), self.everything())
        body = {"model": "tiny", "prompt": prompt, "temperature": 0, "max_tokens": words, "echo": True}
        code = ("import json, sys, urllib.request as r; print(json.load(r.urlopen(r.Request("
                f"'http://127.0.0.1:{PORT + 1}/v1/completions', sys.argv[1].encode(), "
                "{'Content-Type': 'application/json'})))['choices'][0]['text'])")
        client = self.start("-c", code, json.dumps(body), program="python3",
                            prefix=["ip", "netns", "exec", HOSTS[0]])
        text, errors = client.communicate(timeout=120)
        self.assertEqual(text, expected, errors + self.everything())
        os.killpg(self.roots[0].pid, signal.SIGTERM)
        self.assertEqual(self.end(120), {0: 0, 1: 0}, self.everything())


if __name__ == "__main__":
    harness.main()
