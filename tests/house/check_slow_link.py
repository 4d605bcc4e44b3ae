#!/usr/bin/env python3
"""The tools of slow links: the relay keeps its rate and its data, and the losses of runs become tables."""
import asyncio
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from source import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import slow_link  # noqa: E402


def run(*command):
    return subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=60,
                          check=False)


# A run of two steps, the first of them in shared memory; its loss depends on the settings, and top_k fails.
TRAINER = """#!/usr/bin/env python3
import json, pathlib, sys
if sys.argv[1:] == ["--version"]:
    print("trireme 0.1.0 (commit 0123456789ab)\\nprocessor:  One, 2 cores available")
    sys.exit()
settings = dict(word.split("=", 1) for before, word in zip(sys.argv, sys.argv[1:]) if before == "--set")
if "top_k" in settings.values():
    sys.exit("trireme: error: no such method")
folder = pathlib.Path(settings["output_dir"])
(folder / "checkpoints").mkdir(parents=True)
loss = 2 + 0.25 * ("outer.sites" in settings) + 0.5 * ("outer.warmup_steps" in settings)
with (folder / "metrics.jsonl").open("w") as records:
    for record in ({"step": 1, "comm_window_bytes": 4e6}, {"step": 2, "comm_all_to_all_bytes": 1e6, "validation_loss": loss}):
        print(json.dumps(record), file=records)
"""


class FakeSelector(selectors.SelectSelector):
    """Passes the time that an event loop would wait at once."""

    now = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class FakeWriter:
    """End of a connection; `arrivals` has the time and size of each chunk, and of the end."""

    def __init__(self):
        self.arrivals, self.data = [], b""

    def write(self, data):
        self.arrivals.append((asyncio.get_running_loop().time(), len(data)))
        self.data += data

    def write_eof(self):
        self.write(b"")

    async def drain(self):
        pass


def relay_on_fake_clock(direction, *messages):
    """Relays the messages as connections of their own, all at time 0. Returns the ends."""
    selector = FakeSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    writers = [FakeWriter() for _ in messages]

    async def pump_all():
        pumps = []
        for message, writer in zip(messages, writers):
            reader = asyncio.StreamReader()
            reader.feed_data(message)
            reader.feed_eof()
            pumps.append(slow_link.pump(reader, writer, direction))
        await asyncio.gather(*pumps)

    loop.run_until_complete(pump_all())
    loop.close()
    return writers


class SlowLink(unittest.TestCase):
    def test_a_slow_link_keeps_its_rate(self):
        """10 Mbit/s and 50 ms one way, by a clock of the test."""
        message = os.urandom(1_000_000)
        direction = slow_link.Direction(10, 50)
        end, = relay_on_fake_clock(direction, message)
        self.assertEqual(end.data, message)
        self.assertEqual(direction.relayed, len(message))
        begin, last = end.arrivals[0][0], end.arrivals[-1][0]
        self.assertGreaterEqual(begin, 0.05)
        self.assertLess(begin, 0.06)
        self.assertAlmostEqual(last, 0.05 + 0.8, delta=0.01)
        arrived = 0
        for time, size in end.arrivals:  # no chunk is early or late
            arrived += size
            self.assertAlmostEqual(time, 0.05 + arrived * 8 / 10e6, delta=0.01)

    def test_connections_share_a_slow_link(self):
        direction = slow_link.Direction(8, 0)
        ends = relay_on_fake_clock(direction, b"a" * 500_000, b"b" * 500_000)
        for end in ends:
            self.assertAlmostEqual(end.arrivals[-1][0], 1, delta=0.05)
        self.assertEqual(direction.relayed, 1_000_000)

    def test_a_slow_link_relays_both_directions(self):
        """A connection whose other end returns what it gets, in capitals."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        server.settimeout(30)
        link = subprocess.Popen([sys.executable, "-B", ROOT / "scripts/slow_link.py", "--listen", "127.0.0.1:0", "--to",
                                 f"127.0.0.1:{server.getsockname()[1]}", "--mbit", "1000", "--delay-ms", "2"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(link.wait)
        self.addCleanup(link.kill)
        port = int(re.fullmatch(r"slow_link: listening on 127\.0\.0\.1:(\d+)\n", link.stderr.readline())[1])
        message = b"some data\n" * 20_000
        with socket.create_connection(("127.0.0.1", port), timeout=30) as near:
            far, _ = server.accept()
            far.settimeout(30)
            near.sendall(message)
            near.shutdown(socket.SHUT_WR)
            with far, far.makefile("rb") as got:
                far.sendall(got.read().upper() + b"end")
            with near.makefile("rb") as got:
                self.assertEqual(got.read(), message.upper() + b"end")
        with socket.create_connection(("127.0.0.1", port), timeout=30):  # and one that does not end
            server.accept()[0].close()
            link.send_signal(signal.SIGTERM)
        out, error = link.communicate(timeout=30)
        self.assertEqual((link.returncode, error), (0, ""))
        self.assertEqual(out, f"relayed {len(message)} bytes there, {len(message) + 3} bytes back\n")

    def test_a_slow_link_refuses_bad_input(self):
        script, good = ROOT / "scripts/slow_link.py", ["--listen", "127.0.0.1:0", "--to", "127.0.0.1:1"]
        shown = run(script, "--help")
        self.assertEqual(shown.returncode, 0)
        self.assertIn("scripts/slow_link.py", shown.stdout)
        for arguments, says in (([], "--listen"), (["--listen", "29400", "--to", "a:1"], '"29400" is not HOST:PORT'),
                                ([*good, "--mbit", "0"], "--mbit"), ([*good, "--delay-ms", "-1"], "--delay-ms"),
                                ([*good, "--mbit", "nan"], "--mbit"), ([*good, "--frobnicate"], "--frobnicate"),
                                (["--listen", "192.0.2.1:1", "--to", "a:1"], "cannot listen on 192.0.2.1:1")):
            refused = run(script, *arguments)
            self.assertEqual(refused.returncode, 2, arguments)
            self.assertIn(says, refused.stderr)


class Losses(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def slow_link_losses(self, *arguments):
        trainer = self.folder / "trireme"
        trainer.write_text(TRAINER)
        trainer.chmod(0o755)
        for name in ("train", "valid"):
            (self.folder / f"{name}.bin").touch()
        return run(ROOT / "scripts/bench/slow_link_losses.py", "--trireme", trainer, "--steps", 2, "--data", self.folder,
                   "--out", self.folder / "out", *arguments)

    def test_losses_are_tables(self):
        ran = self.slow_link_losses("--only", "^(exact|powersgd|diloco-50|diloco-50-warmup|average-10)$")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stdout, """2 steps, at 01234567 on One, 2 cores available:

| method | MB | in total | loss | against exact |
|---|---|---|---|---|
| exact | 3.50 | 7 | 2.000 | |
| `powersgd`, rank 4 | 3.50 | 7 | 2.000 | +0.0 % |

2 steps, at 01234567 on One, 2 cores available:

| algorithm | period | loss | | MB | in total | with a warm-up | | MB | in total |
|---|---|---|---|---|---|---|---|---|---|
| `average` | 10 | 2.250 | +12 % | 3.500 | 7 | | | | |
| `diloco` | 50 | 2.250 | +12 % | 3.500 | 7 | 2.750 | +38 % | 1.000 | 7 |
""")
        self.assertRegex(ran.stderr, r"(?m)^\[1/5\] exact: step 2 of 2, loss 2\.000, [\d.]+ min left$")
        self.assertFalse((self.folder / "out/exact/checkpoints").exists())

    def test_losses_are_kept(self):
        only = ("--only", "exact|top_k")
        for rows in (r"\[1/2\] exact: .*\n\[2/2\] top_k", r"\[1/1\] top_k"):
            ran = self.slow_link_losses(*only)
            self.assertEqual(ran.returncode, 1)
            self.assertRegex(ran.stderr, rf"^{rows}: step 0 of 2, failed.*\ntop_k failed with exit code 1, see .*/top_k.log: "
                                         r"trireme: error: no such method\n$")
            self.assertIn("| exact | 3.50 | 7 | 2.000 | |\n", ran.stdout)
        self.assertRegex(self.slow_link_losses(*only, "--steps", 4).stderr, r"^\[1/2\] exact: ")
        self.assertIn("no row has such a name", self.slow_link_losses("--only", "other").stderr)
        (self.folder / "empty").mkdir()
        self.assertIn("/empty/train.bin: prepare the data", self.slow_link_losses("--data", self.folder / "empty").stderr)


if __name__ == "__main__":
    unittest.main()
