#!/usr/bin/env python3
"""Parts can be left out: check_parts.py BUILD. Builds the program without MPI and without the server beside BUILD, looks at
what it is linked with, and trains on two ranks over TCP. Most of its objects are in the compiler's cache, which finds
them by paths relative to the build folder: so it lies as deep as BUILD."""
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from source import ROOT

WHOLE = Path(sys.argv.pop(1)).resolve()
BUILD = WHOLE.with_name(f"{WHOLE.name}-parts")
LEFT_OUT = r"lib(mpi|prometheus|ssl|boost)"


def run(*command, **environment):
    return subprocess.run(list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)


class Parts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        werror = re.search(r"TRIREME_WERROR:BOOL=(\w+)", (WHOLE / "CMakeCache.txt").read_text())[1]
        for command in (["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTRIREME_CUDA=OFF",
                         "-DTRIREME_MPI=OFF", "-DTRIREME_SERVING=OFF", "-DTRIREME_TESTS=OFF", f"-DTRIREME_WERROR={werror}"],
                        ["cmake", "--build", BUILD, "--target", "trireme"]):
            ran = run(*command)
            if ran.returncode != 0:
                raise AssertionError(ran.stdout[-4000:] + ran.stderr)
        cls.trireme = BUILD / "trireme"

    def test_is_not_linked_with_what_is_left_out(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", self.trireme).stdout)
        self.assertIn("libgomp.so.1", needed)
        self.assertEqual([name for name in needed if re.match(LEFT_OUT, name)], [])
        self.assertIn("no MPI", run(self.trireme, "--version").stdout)

    def test_says_what_it_has_not(self):
        for words, says in ((["serve", "--model", "x"], "without the server"), (["bench", "serve"], "without the server"),
                            (["route", "--port", "0"], "without the server"), (["eval", "x", "--ranks", 2], "without MPI")):
            ran = run(self.trireme, *words)
            self.assertEqual(ran.returncode, 2, ran.stderr)
            self.assertIn(says, ran.stderr)
        launched = run(self.trireme, "eval", "x", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
        self.assertEqual(launched.returncode, 2)
        self.assertIn("without MPI", launched.stderr)

    def test_trains_over_tcp(self):
        # The socket is held until the end, so that nobody else has its port: rank 0 may listen there all the same.
        with tempfile.TemporaryDirectory() as folder, socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
            (Path(folder) / "text.txt").write_text("All in one boat, and all at one oar. " * 100)
            made = run(self.trireme, "data", "prepare", "-i", f"{folder}/text.txt", "-o", f"{folder}/tokens", "--tokenizer",
                       "byte")
            self.assertEqual(made.returncode, 0, made.stderr)
            settings = {"train_steps": 2, "scheduler.params.warmup_steps": 1, "evaluation.eval_interval": 0,
                        "logging.log_interval": 1, "data.data_path": f"{folder}/tokens", "output_dir": f"{folder}/run"}
            train = [self.trireme, "pretrain", "--config", ROOT / "configs/quickstart.json",
                     *(f"--set={key}={value}" for key, value in settings.items())]
            meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.getsockname()[1])}
            other = subprocess.Popen(list(map(str, train)), env={**os.environ, **meet, "RANK": "1"}, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(other.kill)
            first = run(*train, **meet, RANK="0")
            said = other.communicate(timeout=120)[1]
            self.assertEqual((first.returncode, other.returncode), (0, 0), first.stderr + said)
            self.assertEqual(len((Path(folder) / "run/metrics.jsonl").read_text().splitlines()), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
