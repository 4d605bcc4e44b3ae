"""Runs mpi_ranks under mpirun: collectives, traffic against the formula and PMPI, failures.

usage: run_mpi_tests.py MPIRUN MPI_RANKS PMPI_LIBRARY
"""
import glob
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

MPIRUN, RANKS, PMPI = sys.argv[1:4]
if not os.path.exists(PMPI):  # mpirun would only warn, and nothing would be counted
    sys.exit(f"{PMPI} does not exist: build the target trireme_pmpi_count")


def mpirun(ranks, *words, extra=(), env=None):
    command = [MPIRUN, "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    command += [*extra, "-n", str(ranks), RANKS, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400,
                          env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)


class Collectives(unittest.TestCase):
    def check(self, ranks, *words):
        done = mpirun(ranks, "collectives", *words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_ring(self):
        self.check(2, "ring", 0)

    def test_window(self):
        self.check(2, "shm", 0)

    def test_virtual_nodes(self):
        self.check(4, "auto", 2)


def sockets(ranks, *words):
    """The same program without MPI: the processes find each other through torchrun's variables."""
    with socket.socket() as reserved:
        # Bound until the end: the kernel gives it to nobody else, and who sets SO_REUSEADDR too may listen on it.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("localhost", 0))
        port = reserved.getsockname()[1]
        environment = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
        processes = [subprocess.Popen([RANKS, *map(str, words)], env={**environment, "RANK": str(rank)},
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                     for rank in range(ranks)]
        outputs = [process.communicate(timeout=400)[0] for process in processes]
    return [process.returncode for process in processes], "".join(outputs)


class Pipelines(unittest.TestCase):
    """Every schedule, with messages too long to be buffered, next to collectives of the same ranks."""

    def test_mpi(self):
        for ranks, algorithm in ((2, "shm"), (3, "ring")):
            done = mpirun(ranks, "pipeline", algorithm, 0)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_tcp(self):
        for _ in range(3):
            codes, output = sockets(3, "pipeline", "auto", 0)
            if "Address already in use" not in output:  # of another test, which had been given the port before
                break
        self.assertEqual(codes, [0, 0, 0], output)


class TrafficOfOneAllReduce(unittest.TestCase):
    """Our counters, a count outside of the program, and the formula agree to the byte."""

    def measure(self, ranks, algorithm, per_node, size):
        with tempfile.TemporaryDirectory() as folder:
            prefix = os.path.join(folder, "count")
            done = mpirun(ranks, "traffic", algorithm, per_node, size,
                          extra=("-x", "LD_PRELOAD=" + PMPI, "-x", "PMPI_COUNT_PREFIX=" + prefix))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            outside = {}
            for path in glob.glob(prefix + ".*.json"):
                with open(path, encoding="utf-8") as file:
                    record = json.load(file)
                outside[record["rank"]] = record["bytes"]
        own = {int(r): (int(s), int(w)) for r, s, w in
               re.findall(r"traffic rank (\d+) sent (\d+) window (\d+)", done.stdout)}
        self.assertEqual(sorted(own), list(range(ranks)), done.stdout)
        self.assertEqual(outside, {r: sent for r, (sent, _) in own.items()})
        return own

    def test_ring(self):
        for ranks, per_node, size in ((2, 0, 1000004), (4, 0, 1000004), (4, 2, 1000012)):
            own = self.measure(ranks, "ring", per_node, size)
            chunk = -(-size // 4 // ranks) * 4
            self.assertEqual(sum(sent for sent, _ in own.values()), 2 * (ranks - 1) * size)
            for sent, window in own.values():
                self.assertLessEqual(abs(sent - 2 * (ranks - 1) * size / ranks), chunk)
                self.assertEqual(window, 0)

    def test_window_and_virtual_nodes(self):
        for ranks, per_node, nodes in ((2, 0, 1), (4, 2, 2)):
            own = self.measure(ranks, "auto", per_node, 1000004)
            self.assertEqual(sum(sent for sent, _ in own.values()), 2 * (nodes - 1) * 1000004)
            for _, window in own.values():
                self.assertEqual(window, 1000004)


class Failures(unittest.TestCase):
    def test_killed_rank_ends_the_run(self):
        start = time.monotonic()
        done = mpirun(3, "die", 1)
        self.assertNotEqual(done.returncode, 0)
        self.assertLess(time.monotonic() - start, 150)  # nobody waited for the dead one
        self.assertIn("signal 9", done.stderr)

    def test_throwing_rank_ends_the_run_and_is_named(self):
        start = time.monotonic()
        done = mpirun(3, "throw", 2)
        self.assertNotEqual(done.returncode, 0)
        self.assertLess(time.monotonic() - start, 150)  # nobody waited for the dead one
        self.assertIn("error: rank program told to throw", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
