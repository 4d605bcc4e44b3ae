#!/usr/bin/env python3
"""Ranks that meet over TCP: their ports close once they have met, and a wait for one that never comes ends in time."""
import os
import socket
import threading
import time
from pathlib import Path

import harness
import rank_processes
import served_ranks


def listening_ports(pids):
    """Ports at which these processes accept TCP connections."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                sockets.add(os.readlink(link))
            except OSError:
                continue
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                ports.add(int(fields[1].split(":")[1], 16))
    return ports


def variable(pid, name):
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(v.split("=", 1) for v in variables if "=" in v)[name]


class Ports(rank_processes.RankRunTest):
    def test_of_training(self):
        self.start_run("tcp")
        self.assertEqual(listening_ports(self.pids.values()), set())
        port = int(variable(self.pids[0], "MASTER_PORT"))
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)


class ServedPorts(served_ranks.ServedRanks):
    def test_of_serving(self):
        for replicas in (1, 2):
            server = self.serve("--ranks", 2, *(("--tensor", 2) if replicas == 1 else ("--data-parallel-size", 2)))
            ranks = self.processes()
            self.assertEqual(len(ranks), 3)  # and the front process
            self.assertEqual(listening_ports(ranks.values()), {self.port})
            for rank, pid in ranks.items():
                if rank is None:
                    continue
                with self.assertRaises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", int(variable(pid, "MASTER_PORT"))), timeout=10)
            server.terminate()
            server.communicate(timeout=60 * harness.PATIENCE)


class Deadline(rank_processes.RankRunTest):
    TIMEOUT = 3  # seconds

    def wait_alone(self, rank, visitor):
        """A rank of two that waits for the other; a stranger visits its port all the time."""
        probe = socket.socket()  # held until the end, so that nobody else has the port
        self.addCleanup(probe.close)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        self.configure(comm={"timeout": self.TIMEOUT})
        begin, visits, stop = time.monotonic(), [0], threading.Event()
        process = self.start("pretrain", "--config", "run.json", environment={
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"})

        def visit():
            while not stop.wait(0.05):
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=1) as stranger:
                        visitor(stranger)
                        visits[0] += 1
                except OSError:
                    continue

        thread = threading.Thread(target=visit)
        thread.start()
        try:
            _, stderr = process.communicate(timeout=20 * self.TIMEOUT * harness.PATIENCE)
        finally:
            stop.set()
            thread.join()
        self.assertGreaterEqual(time.monotonic() - begin, self.TIMEOUT)
        self.assertEqual(process.returncode, 5, stderr)
        return stderr, visits[0]

    def test_strangers_do_not_renew_it(self):
        for name, visitor in (("silent", lambda stranger: time.sleep(0.2)), ("gone", lambda stranger: None),
                              ("talking", lambda stranger: stranger.sendall(b"GET / HTTP/1.1\r\n\r\n"))):
            with self.subTest(name):
                stderr, visits = self.wait_alone(0, visitor)
                self.assertGreater(visits, 3)
                self.assertIn("1 of 2 ranks have not connected (rank 1) within 3 s (comm.timeout)", stderr)
                self.assertEqual(stderr.count(" for 1 of 2 ranks (rank 1); giving up after 3 s"), 1, stderr)

    def test_of_a_rank_without_its_first(self):
        stderr, _ = self.wait_alone(1, lambda stranger: None)
        self.assertIn("rank 1 found no rank 0 at 127.0.0.1:", stderr)
        self.assertIn("within 3 s (comm.timeout)", stderr)


if __name__ == "__main__":
    harness.main()
