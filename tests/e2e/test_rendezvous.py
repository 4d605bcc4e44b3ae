#!/usr/bin/env python3
"""Ranks that meet over TCP close their ports once they have met."""
import os
import socket
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


if __name__ == "__main__":
    harness.main()
