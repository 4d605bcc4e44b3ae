"""Runs the real binary: what the end-to-end tests share. TRIREME names the binary; with TRIREME_ISA (avx2, portable) every
command is limited to that instruction set."""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

TRIREME = os.environ["TRIREME"]
ISA = ["--isa", os.environ["TRIREME_ISA"]] if "TRIREME_ISA" in os.environ else []
SOURCE = Path(__file__).resolve().parents[2]
SANITIZED = "TRIREME_SANITIZED" in os.environ  # ten times as slow, and its allocator keeps what is freed
PATIENCE = 4 if SANITIZED else 1  # bounds of time are so many times as long
# Under mpirun: as root in a container, and with more ranks than cores.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def can_mount_tmpfs():
    """Root inside a container may still lack the right to mount."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], stderr=subprocess.DEVNULL, check=False)
        if mounted.returncode == 0:
            subprocess.run(["umount", folder], check=True)
        return mounted.returncode == 0


def has_read(connection):
    """Whether the process at the other end, on this machine, has taken all that was sent to it."""
    ends = [f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
            for host, port in (connection.getpeername(), connection.getsockname())]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == ends:
            return int(fields[4].split(":")[1], 16) == 0
    return False


def skip_unless_lower_isa():
    """Exits with 77 (ctest: skipped) where TRIREME_ISA is not below the best instruction set of this machine."""
    version = subprocess.run([TRIREME, "--version"], capture_output=True, text=True, check=True).stdout
    best, built = re.search(r"kernels: +(\w+) \(built: ([^)]*)\)", version).groups()
    order = ["avx512", "avx2", "portable"]
    if order.index(ISA[1]) <= order.index(best):
        print(f"skipped: {ISA[1]} is not below this machine's best instruction set, {best}")
        sys.exit(77)
    if ISA[1] not in built.split():
        print(f"skipped: {ISA[1]} is not in this build ({built})")
        sys.exit(77)
    print(f"instruction set: {ISA[1]}")


class Noise:
    """The longest that a thread of ours overslept: how far this machine is from prompt."""

    def __enter__(self):
        self.worst, self.stop = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._measure, daemon=True)
        self.thread.start()
        return self

    def _measure(self):
        while not self.stop.is_set():
            begin = time.monotonic()
            time.sleep(0.01)
            self.worst = max(self.worst, time.monotonic() - begin - 0.01)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


class CommandTest(unittest.TestCase):
    """Each test runs in an empty folder, self.folder, which is removed afterwards."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trireme-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, *arguments, ranks=None, environment=None, prefix=(), program=TRIREME):
        """The process, started in self.folder with pipes for its outputs and no input; prefix: what starts it."""
        command = [program, *ISA, *map(str, arguments)]
        environment = dict(environment or {})
        if ranks is not None or "--ranks" in command or "WORLD_SIZE" in environment:
            # Open MPI unloads its plugins at the end: what they leaked has no name to suppress it by.
            environment["ASAN_OPTIONS"] = "detect_leaks=0"
        if ranks is not None:
            command = [*MPIRUN, "-n", str(ranks), *command]
        command = [*prefix, *command]
        process = subprocess.Popen(command, cwd=self.folder, env={**os.environ, **environment},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        self.addCleanup(self._end, process)
        return process

    @staticmethod
    def _end(process):
        """No test leaves a process behind, whatever it did; what one that should have ended has told is shown."""
        running = process.poll() is None
        if running:
            os.killpg(process.pid, signal.SIGKILL)
        _, output = process.communicate()
        if running and output:
            print(f"{process.args} was still running, and has written:\n{output[-4000:]}", file=sys.stderr)

    def trireme(self, *arguments, expect=0, timeout=300, **options):
        """Runs to the end and returns (stdout, stderr); the exit code must be `expect`."""
        process = self.start(*arguments, **options)
        stdout, stderr = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, expect, f"trireme {arguments}\n{stdout[-2000:]}\n{stderr[-2000:]}")
        return stdout, stderr

    def assert_refused(self, *arguments, says, **options):
        """Exit code 2, a message that holds every string of `says`, and no file made, changed or lost."""
        before = self.snapshot()
        _, stderr = self.trireme(*arguments, expect=2, **options)
        errors = [line for line in stderr.splitlines() if line.startswith("trireme: error: ")]
        self.assertEqual(len(errors), 1, stderr)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, stderr)
        self.assertEqual(self.snapshot(), before)

    def snapshot(self):
        return {str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
                for path in sorted(self.folder.rglob("*"))}

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


class ShareLoader(unittest.TestLoader):
    """Loads the cases of TRIREME_TEST_SHARE=i/n: every nth, from the ith on."""

    def loadTestsFromModule(self, module, *, pattern=None):
        cases = list(flatten(super().loadTestsFromModule(module, pattern=pattern)))
        index, count = map(int, os.environ.get("TRIREME_TEST_SHARE", "0/1").split("/"))
        if count > len(cases):
            raise ValueError(f"TRIREME_TEST_SHARE={index}/{count} of {len(cases)} cases: some shares are empty")
        return self.suiteClass(cases[index::count])


def flatten(suite):
    for case in suite:
        if isinstance(case, unittest.TestSuite):
            yield from flatten(case)
        else:
            yield case


def main():
    if ISA:
        skip_unless_lower_isa()
    unittest.main(verbosity=2, testLoader=ShareLoader())
