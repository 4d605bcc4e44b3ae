#!/usr/bin/env python3
"""Parts can be left out: check_parts.py BUILD. Builds the program beside BUILD without MPI and the server, without the
trainer, and without all three; looks at what each is linked with, trains on two ranks over TCP with the first and
computes logits with the others. Most of the objects are in the compiler's cache, which finds them by paths relative to the
build folder: so each lies as deep as BUILD."""
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
LEFT_OUT = r"lib(mpi|prometheus|ssl|boost)"
# Namespaces and classes of the trainer: a program without it defines and calls none of them.
TRAINER = r"\btrireme::(RunConfig|FlatOptimizer|TrainStep|PretrainRun|load_run_config|save_train_checkpoint)\b"
BASE = ROOT / "tests/golden/peft/base"


def run(*command, **environment):
    return subprocess.run(list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)


def build(name, *parts):
    """The program without these parts; their names are the ends of CMake's options."""
    folder = WHOLE.with_name(f"{WHOLE.name}-{name}")
    cache = (WHOLE / "CMakeCache.txt").read_text()
    werror, isa = re.search(r"TRIREME_WERROR:BOOL=(\w+)", cache)[1], re.search(r"TRIREME_ISA:STRING=(\w+)", cache)[1]
    for command in (["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTRIREME_CUDA=OFF",
                     "-DTRIREME_TESTS=OFF", f"-DTRIREME_WERROR={werror}", f"-DTRIREME_ISA={isa}", *(f"-DTRIREME_{part}=OFF" for part in parts)],
                    ["cmake", "--build", folder, "--target", "trireme"]):
        ran = run(*command)
        if ran.returncode != 0:
            raise AssertionError(ran.stdout[-4000:] + ran.stderr)
    return folder / "trireme"


def needed(program):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", program).stdout)


def symbols_of_trainer(program):
    return re.findall(TRAINER, run("nm", "-C", program).stdout)


class WithoutTheTrainer(unittest.TestCase):
    def logits(self, program):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "ids.jsonl").write_text("[1, 2, 3, 4]\n")
            ran = run(program, "logits", BASE, "--tokens", f"{folder}/ids.jsonl", "--output", f"{folder}/out.safetensors",
                      "--device", "cpu")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            return (Path(folder) / "out.safetensors").read_bytes()

    def check(self, program, server):
        self.assertNotEqual(symbols_of_trainer(WHOLE / "trireme"), [])
        self.assertEqual(symbols_of_trainer(program), [])
        self.assertEqual(self.logits(program), self.logits(WHOLE / "trireme"))
        for words in (["pretrain", "--config", "x"], ["finetune"], ["data", "prepare"], ["eval", "x"], ["report", "x"],
                      ["rendezvous", "--secret-file", "x"], ["config", "reference"], ["bench", "train"]):
            ran = run(program, *words)
            self.assertEqual(ran.returncode, 2, ran.stderr)
            self.assertIn("without the trainer (-DTRIREME_TRAINING=OFF)", ran.stderr)
        served = run(program, "serve", "--model", BASE / "nothing")
        self.assertEqual(served.returncode, 2)
        self.assertIn("no such run" if server else "without the server", served.stderr)

    def test_serves_without_it(self):
        self.check(build("inference", "TRAINING"), server=True)

    def test_computes_logits_alone(self):
        program = build("logits", "TRAINING", "SERVING", "MPI")
        self.check(program, server=False)
        self.assertEqual([name for name in needed(program) if re.match(LEFT_OUT, name)], [])


class Parts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.trireme = build("parts", "MPI", "SERVING")

    def test_is_not_linked_with_what_is_left_out(self):
        self.assertIn("libgomp.so.1", needed(self.trireme))
        self.assertEqual([name for name in needed(self.trireme) if re.match(LEFT_OUT, name)], [])
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
