"""Training runs of several ranks whose processes a test can signal, and when their messages came."""
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import harness
import tiny_run

RANKS = 4


class Lines:
    """What a process prints on standard error, each line with the time at which it came."""

    def __init__(self, process):
        self.lines = []
        self.thread = threading.Thread(target=self._read, args=(process.stderr,), daemon=True)
        self.thread.start()

    def _read(self, stream):
        for line in stream:
            self.lines.append((time.monotonic(), line.rstrip("\n")))


class RankRunTest(tiny_run.RunTest):
    """start_mpi() or start_tcp() fills self.pids (by rank), self.roots (what to wait for) and self.outputs."""

    def start_run(self, launcher, **changes):
        """Trains until it is told to stop, and returns in the middle of it."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        self.configure(train_steps=20_000, checkpoint={"save_interval": 0}, evaluation={"eval_interval": 0},
                       **changes)
        getattr(self, "start_" + launcher)()
        self.wait_for(lambda: (self.folder / "run/metrics.jsonl").exists() and len(self.records()) >= 5)

    def start_mpi(self):
        self.follow_mpirun(self.start("pretrain", "--config", "run.json", "--ranks", RANKS))

    def start_mpi_to_files(self):
        """Each rank's standard error goes to a file err.RANK, past mpirun."""
        redirect = ["sh", "-c", 'exec "$@" 2> err.$OMPI_COMM_WORLD_RANK', "sh"]
        self.follow_mpirun(self.start("pretrain", "--config", "run.json",
                                      prefix=[*harness.MPIRUN, "-n", str(RANKS), *redirect]))

    def follow_mpirun(self, root):
        self.roots, self.outputs = [root], [Lines(root)]
        self.wait_for(lambda: len(self.find_ranks()) == RANKS)
        self.pids = self.find_ranks()

    def find_ranks(self):
        """Processes that mpirun started for this test: they run in its folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or Path(os.readlink(entry / "cwd")) != self.folder.resolve():
                    continue
                variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
                if Path(os.readlink(entry / "exe")).name == Path(harness.TRIREME).name:
                    found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(entry.name)
            except (OSError, KeyError):
                continue
        return found

    def start_tcp(self):
        # Held until the end, so that nobody else has it: rank 0 may listen there all the same.
        probe = socket.socket()
        self.addCleanup(probe.close)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        self.roots = [self.start("pretrain", "--config", "run.json", environment={
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(r), "WORLD_SIZE": str(RANKS)})
            for r in range(RANKS)]
        self.outputs = [Lines(root) for root in self.roots]
        self.pids = {r: root.pid for r, root in enumerate(self.roots)}

    def wait_for(self, condition, seconds=240):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "waited in vain: " + self.everything())
            for root in self.roots:
                self.assertIsNone(root.poll(), self.everything())
            time.sleep(0.02)

    def everything(self):
        return "\n".join(line for output in self.outputs for _, line in output.lines)

    def send(self, rank, number):
        os.kill(self.pids[rank], number)

    def end(self, seconds, but=None):
        """Waits for all processes, but that of one rank where it was started alone; their exit codes."""
        codes = {}
        for rank, root in enumerate(self.roots):
            if rank == but and len(self.roots) > 1:
                continue
            try:
                codes[rank] = root.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                self.fail("a rank hangs:\n" + self.everything())
        for rank, output in enumerate(self.outputs):
            if rank in codes:
                output.thread.join(timeout=60)
        return codes

    def running(self):
        """Ranks whose process is still there."""
        alive = []
        for rank, pid in self.pids.items():
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if state != "Z":
                alive.append(rank)
        return alive

    def expect_running(self, ranks, seconds=60):
        """Soon: mpirun does not wait for the ends of all."""
        end = time.monotonic() + seconds
        while self.running() != ranks and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.running(), ranks, self.everything())

    def tearDown(self):
        for pid in getattr(self, "pids", {}).values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
