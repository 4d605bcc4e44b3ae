"""A server gets other weights while it answers: no request is lost, every text is of the old or of the new ones, and
what is for another model is refused before anything changes."""
import json
import math
import os
import signal
import struct
import tempfile
import threading
import time
import unittest
from pathlib import Path

import harness
import served_ranks
import test_zero
import tiny_run

KEY = "an-admins"
PROMPT = served_ranks.PROMPT
ARGUMENTS = ("--admin-api-key", KEY)
STEPS = 200
LENGTH = 16384  # a text of it is at no end before the weights have changed


class Weights(harness.CommandTest):
    """Runs: `run` and `other` are of one model, `wide` is not; `large` has 25 million bytes of weights."""
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trireme-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.models = Path(folder.name)

    def setUp(self):
        super().setUp()
        if not (self.models / "large").exists():
            self.train()
        for name in ("run", "other", "wide", "large"):
            (self.folder / name).symlink_to(self.models / name)

    def train(self):
        self.write("train.txt", tiny_run.text(2000, 1))
        self.trireme("data", "prepare", "--input", "train.txt", "--output", "train")
        for name, seed, steps, changes in (("run", 7, STEPS, {}), ("other", 8, STEPS, {}),
                                           ("wide", 9, 5, {"hidden_size": 64, "head_dim": 8}),
                                           ("large", 9, 5, {"vocab_size": 200_000})):
            model = {**served_ranks.LLAMA, "max_position_embeddings": LENGTH, **changes}
            config = tiny_run.config(model=model, seed=seed, train_steps=steps,
                                     output_dir=str(self.models / name), checkpoint={}, evaluation={"eval_iters": 0})
            config["data"]["valid_data_path"] = "train"
            self.write("run.json", json.dumps(config))
            self.trireme("pretrain", "--config", "run.json")

    serve, connect, ask = served_ranks.ServedRanks.serve, served_ranks.ServedRanks.connect, served_ranks.ServedRanks.ask
    processes, stop = served_ranks.ServedRanks.processes, served_ranks.ServedRanks.stop
    came_anew, expect_nobody_left = served_ranks.ServedRanks.came_anew, served_ranks.ServedRanks.expect_nobody_left

    def written(self, model, *arguments):
        text, _ = self.trireme("generate", model, "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", 30, *arguments)
        return text.removeprefix(PROMPT).rstrip("\n")

    def complete(self, **fields):
        return self.ask("POST", "/v1/completions", {"model": "tiny", "prompt": PROMPT, "temperature": 0, "max_tokens": 30,
                                                    **fields}, KEY)

    def text(self, **fields):
        status, response = self.complete(**fields)
        self.assertEqual(status, 200, response)
        return response["choices"][0]["text"]

    def replace(self, **fields):
        return self.ask("POST", "/admin/weights", fields, KEY)

    def replace_under_load(self, old, new):
        """Four clients ask without a pause while weights of `other` come."""
        responses, asked, done = [], threading.Event(), threading.Event()

        def client():
            while not done.is_set():
                began, before = time.monotonic(), not asked.is_set()
                status, response = self.complete()
                responses.append((began, before and not asked.is_set(), status, response))

        def wait_for(condition):
            end = time.monotonic() + 120
            while not condition():
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)

        clients = [threading.Thread(target=client, daemon=True) for _ in range(4)]
        self.addCleanup(done.set)
        for one in clients:
            one.start()
        wait_for(lambda: any(before for _, before, _, _ in responses))
        asked.set()
        status, response = self.replace(model="other")
        replaced = time.monotonic()
        wait_for(lambda: any(began > replaced for began, _, _, _ in responses))
        done.set()
        for one in clients:
            one.join()
        self.assertEqual(status, 200, response)
        self.assertEqual(response["version"], 2)
        texts = {True: 0, False: 0}
        for began, was_before, status, response in responses:
            self.assertEqual(status, 200, response)
            text = response["choices"][0]["text"]
            self.assertIn(text, (old, new))
            texts[text == new] += 1
            if was_before:
                self.assertEqual(text, old)
            if began > replaced:
                self.assertEqual(text, new)
        self.assertTrue(texts[True] and texts[False], texts)

    def check(self, *arguments, ranks=None, compare=(), program=harness.TRIREME):
        old, new = self.written("run", *compare), self.written("other", *compare)
        self.assertNotEqual(old, new)
        server = self.serve(*ARGUMENTS, *arguments, ranks=ranks, program=program)
        self.assertEqual(self.text(), old)
        status, response = self.replace(model="wide")
        self.assertEqual((status, response["error"]["param"]), (400, "model"))
        for said in ("wide", "hidden_size: 32 is served, the new one has 64"):
            self.assertIn(said, response["error"]["message"])
        self.assertEqual(self.replace(model="nowhere")[0], 400)
        self.assertEqual(self.text(), old)
        self.replace_under_load(old, new)
        self.assertEqual(self.text(), new)
        return server, old, new

    def test_in_one_process(self):
        server, old, new = self.check()
        # Back again, under texts that go on and on.
        for mode, tokens in (("abort", LENGTH - 50), ("keep", 1000)):
            connection = self.connect("POST", "/v1/completions", {
                "model": "tiny", "prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, "stream": True}, KEY)
            response = connection.getresponse()
            response.readline()
            status, state = self.replace(model="run", mode=mode)
            self.assertEqual(status, 200, state)
            end = response.read().decode().rstrip("\n").rsplit("data: ", 1)[1]
            if mode == "abort":
                self.assertIn("are being replaced", json.loads(end)["error"]["message"])
            else:
                self.assertEqual(end, "[DONE]")
            self.assertEqual(self.text(), old)
        _, state = self.ask("GET", "/admin/weights", key=KEY)
        self.assertEqual((state["step"], state["version"], state["replacing"]), (STEPS, 4, None))
        self.assertEqual(self.ask("POST", "/admin/weights", {"model": "other"})[0], 401)
        self.stop(server)

    def spoil(self, name):
        """Exports `run` with NaN in one weight; returns the name of its tensor."""
        self.trireme("checkpoint", "convert", "run", name, "--to", "hf", "--dtype", "fp32")
        path = self.folder / name / "model.safetensors"
        data = bytearray(path.read_bytes())
        size = int.from_bytes(data[:8], "little")
        tensor = "model.layers.1.mlp.up_proj.weight"
        begin, end = json.loads(data[8:8 + size])[tensor]["data_offsets"]
        at = 8 + size + (begin + end) // 8 * 4
        data[at:at + 4] = struct.pack("<f", math.nan)
        path.write_bytes(data)
        return "layers.1.mlp.up_proj.weight"

    def test_weights_that_are_not_finite(self):
        tensor = self.spoil("nan")
        says = [tensor, "not finite", "--allow-non-finite"]
        self.assert_refused("generate", "nan", "--tokenizer", "byte", "--prompt", PROMPT, says=says)
        self.assert_refused("serve", "nan", "--tokenizer", "byte", "--port", "0", says=says)
        self.write("ids.jsonl", "[1, 2]\n")
        _, stderr = self.trireme("logits", "nan", "--tokens", "ids.jsonl", "--output", "x.safetensors")
        self.assertIn(tensor, stderr)
        self.write("train.txt", tiny_run.text(500, 1))
        self.trireme("data", "prepare", "--input", "train.txt", "--output", "train", "--overwrite")
        config = tiny_run.config(model="nan", output_dir="from-nan", checkpoint={"load": "nan"}, evaluation={"eval_iters": 0})
        config["data"]["valid_data_path"] = "train"
        self.write("run.json", json.dumps(config))
        self.assert_refused("pretrain", "--config", "run.json", says=[tensor, "every step from these weights", "would be skipped"])
        server = self.serve(*ARGUMENTS)
        before = self.text()
        status, response = self.replace(model="nan")
        self.assertEqual(status, 400, response)
        self.assertIn(tensor, json.dumps(response))
        self.assertEqual(self.text(), before)
        self.stop(server)
        server = self.serve(*ARGUMENTS, "--allow-non-finite")
        self.assertEqual(self.replace(model="nan")[0], 200)
        self.assertEqual(self.complete()[0], 500)
        self.stop(server)

    def test_without_memory_for_them(self):
        group = test_zero.MemoryLimit(self, 16 << 20)
        (self.folder / "large").replace(self.folder / "run")
        server = self.serve(*ARGUMENTS)
        text = self.text()
        (group.folder / "cgroup.procs").write_text(str(server.pid))  # what it has taken so far counts elsewhere
        status, response = self.replace()
        self.assertEqual(status, 400, response)
        self.assertRegex(response["error"]["message"], r"need 24\.\d+ MiB .* and \d+\.\d+ MiB are free; .*control group")
        self.assertEqual(self.text(), text)
        group.file.write_text(str(1 << 30))
        status, response = self.replace()
        self.assertEqual((status, response.get("version")), (200, 2), response)
        self.assertEqual(self.text(), text)
        self.stop(server)

    def test_in_fewer_bits(self):
        bits = ("--quantization", "q8_0")
        self.stop(self.check(*bits, compare=bits)[0])

    @unittest.skipUnless("TRIREME_EMULATED" in os.environ, "scripts/test.sh --rest builds the program with the emulated GPU")
    def test_on_a_gpu(self):
        for bits in ((), ("--quantization", "q4_0")):
            self.stop(self.check("--device", "cuda", "--max-model-len", 64, *bits, compare=bits,
                                 program=os.environ["TRIREME_EMULATED"])[0])

    def test_under_mpirun(self):
        server, _, _ = self.check("--tensor", 2, ranks=2)
        self.stop_leader(server)

    def stop_leader(self, server):
        os.kill(self.processes()[0], signal.SIGTERM)
        server.communicate(timeout=120)
        self.assertEqual(server.returncode, 0)

    def test_ranks_that_start_again_have_them_too(self):
        server, _, new = self.check("--ranks", 2, "--pipeline", 2)
        before = self.processes()
        os.kill(before[1], signal.SIGKILL)
        end = time.monotonic() + 120
        while not self.came_anew(before) or self.ask("GET", "/health/ready")[0] != 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        self.assertEqual(self.text(), new)
        self.stop(server)
        self.expect_nobody_left()


if __name__ == "__main__":
    unittest.main(verbosity=2)
