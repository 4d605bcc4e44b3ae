"""A model that is there twice behind one listener: both replicas answer, as one process does; one that is lost costs its
own requests only, and comes back with the weights that are served by then."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
import unittest

import served_ranks
import tiny_run
from served_ranks import LLAMA, PROMPT

LENGTH = 32768
KEY = "an-admins"
TWO = ("--data-parallel-size", 2)
PROMPTS = [PROMPT, "t", tiny_run.text(40, 3), "rowing as one over a quiet sea by night " * 3, "a ship", "ranks"]
NOTICED_WITHIN, BACK_WITHIN = 15, 60


class Replicas(served_ranks.ServedRanks):
    model, train_steps = {**LLAMA, "max_position_embeddings": LENGTH}, 200

    def setUp(self):
        super().setUp()
        if not (self.trained.parent / "other").exists():
            self.pretrain("--set", "seed=8", "--set", f"output_dir={self.trained.parent / 'other'}")
        (self.folder / "other").symlink_to(self.trained.parent / "other")

    def connect(self, method, path, body=None, key=None):
        return super().connect(method, path, body, KEY)

    def metrics(self, name):
        """Of the engines, in their order."""
        found = sorted(re.findall(rf'(?m)^{re.escape(name)}\{{engine="(\d)"[^}}]*\}} (\S+)$', self.ask("GET", "/metrics")[1]))
        self.assertEqual([engine for engine, _ in found], ["0", "1"])
        return [float(value) for _, value in found]

    def wait_until(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)

    def texts(self):
        with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as threads:
            responses = threads.map(lambda prompt: self.complete(prompt=prompt, max_tokens=30, ignore_eos=True), PROMPTS)
            return [response["choices"][0]["text"] for response in responses]

    def written(self):
        server = self.serve("--admin-api-key", KEY)
        old = self.texts()
        self.assertEqual(self.ask("POST", "/admin/weights", {"model": "other"})[0], 200)
        new = self.texts()
        self.stop(server)
        self.assertTrue(all(a != b for a, b in zip(old, new)), (old, new))
        return old, new

    def serve_two(self, *arguments):
        server = self.serve("--admin-api-key", KEY, *TWO, *arguments)
        self.ranks = self.processes()
        return server

    def lose(self, replica):
        """Kills a rank of that replica."""
        size = (len(self.ranks) - 1) // 2
        os.kill(self.processes()[replica * size], signal.SIGKILL)

    def expect_both(self, texts):
        before = self.metrics("vllm:generation_tokens_total")
        self.assertEqual(self.texts(), texts)
        self.assertTrue(all(b > a for a, b in zip(before, self.metrics("vllm:generation_tokens_total"))))

    def expect_back(self, replica):
        """That replica computes requests again."""
        before = self.metrics("vllm:generation_tokens_total")[replica]

        def works():
            self.assertEqual(self.ask("GET", "/health/ready")[0], 200)
            asked = {"model": "tiny", "prompt": f"{time.monotonic()}", "max_tokens": 1}
            # 503: it came to the replica before its loss was noticed.
            self.assertIn(self.ask("POST", "/v1/completions", asked)[0], (200, 503))
            return self.metrics("vllm:generation_tokens_total")[replica] > before
        self.wait_until(works, BACK_WITHIN, f"replica {replica} does not come back")

    def lose_one_of_two(self, texts):
        """Long texts on both, streamed and not; those of one replica end with an error, those of the other go on."""
        clients = [self.connect("POST", "/v1/completions", {"model": "tiny", "prompt": [[i]], "max_tokens": LENGTH - 50,
                                                            "ignore_eos": True, "stream": i < 5}) for i in range(6)]
        ends, sockets, read_of = {}, [client.sock for client in clients], [0] * 6

        def read(number):
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # who goes on is left
                for line in clients[number].getresponse():
                    read_of[number] += 1
                    line = line.removeprefix(b"data: ")
                    if line.startswith((b'{"error"', b"[DONE]")):
                        ends[number] = line.decode()
        readers = [threading.Thread(target=read, args=(number,)) for number in range(6)]
        for reader in readers:
            reader.start()
        running = []  # on each: three, or not quite where another was slow to tell what it had

        def runs():
            running[:] = self.metrics("vllm:num_requests_running")
            return sum(running) == 6 and min(running) > 0
        self.wait_until(runs, 60, "not six on both")
        ready, done = [], threading.Event()

        def watch():
            while not done.is_set():
                ready.append(self.ask("GET", "/health/ready")[0])
        watcher = threading.Thread(target=watch)
        watcher.start()
        self.lose(1)
        self.wait_until(lambda: self.metrics("vllm:num_requests_running")[1] == 0, NOTICED_WITHIN, "nobody notices")
        self.assertEqual(self.texts(), texts)  # by the other one
        self.wait_until(lambda: len(ends) == running[1], 60, "not all responses ended")
        self.expect_back(1)
        done.set()
        watcher.join()
        self.assertEqual(self.metrics("vllm:num_requests_running")[0], running[0])
        streams, before = set(range(5)) - set(ends), list(read_of)
        self.assertTrue(streams)
        self.wait_until(lambda: all(read_of[i] > before[i] for i in streams), 60, "a text of the other replica stands still")
        for end in ends.values():
            self.assertEqual(json.loads(end)["error"]["code"], "engine_failure")
        self.assertEqual(set(ready), {200})
        # The ranks of the other one are those of before.
        now, size = self.processes(), (len(self.ranks) - 1) // 2
        for rank, process in self.ranks.items():
            self.assertEqual(now[rank] == process, rank is None or rank < size, rank)
        for leaving in sockets:
            with contextlib.suppress(OSError):  # the server has closed it
                leaving.shutdown(socket.SHUT_RDWR)
        for reader in readers:
            reader.join()
        self.assertEqual(len(ends), running[1])

    def replace_while_one_is_lost(self, model):
        self.lose(0)
        status, response = self.ask("POST", "/admin/weights", {"model": model})
        self.assertEqual(status, 200, response)
        self.expect_back(0)

    def test_they_answer_as_one_does(self):
        old, new = self.written()
        server = self.serve_two()
        self.assertEqual(sorted(rank for rank in self.ranks if rank is not None), [0, 1])
        self.expect_both(old)
        self.assertLess(self.cores_used(1), 0.02)
        self.lose_one_of_two(old)
        self.expect_both(old)
        self.assertEqual(self.ask("POST", "/admin/weights", {"model": "other"})[0], 200)
        self.expect_both(new)
        self.replace_while_one_is_lost("run")
        self.expect_both(old)
        self.replace_while_one_is_lost("other")
        self.expect_both(new)
        self.lose(1)
        self.expect_back(1)
        self.expect_both(new)
        self.assertEqual(self.metric("trireme:weights_version"), 4)
        self.stop(server)
        self.expect_nobody_left()

    def test_each_of_several_ranks(self):
        server = self.serve()
        texts = self.texts()
        self.stop(server)
        server = self.serve_two("--tensor-parallel-size", 2)
        self.assertEqual(sorted(rank for rank in self.ranks if rank is not None), [0, 1, 2, 3])
        self.expect_both(texts)
        self.lose_one_of_two(texts)
        self.stop(server)
        self.expect_nobody_left()

    def test_what_does_not_fit_is_refused(self):
        for arguments, says in (((*TWO, "--ranks", 3), ["--ranks 3", "2 replicas", "a multiple"]),
                                ((*TWO, "--ranks", 4), ["2 ranks", "hold one copy of the model"]),
                                ((*TWO, "--launcher", "mpirun"), ["--launcher mpirun", "trireme route"]),
                                ((*TWO, "--launcher", "srun"), ["machines of its own", "trireme route"]),
                                (("--data-parallel-size", 65), "65")):
            with self.subTest(arguments=arguments):
                self.assert_refused("serve", "--model", "run", "--port", 0, *arguments, says=says)
        stderr = self.trireme("serve", "--model", "run", "--port", 0, *TWO, ranks=2, expect=2)[1]
        self.assertIn("hold one copy of the model", stderr)
        self.assertIn("trireme route", stderr)
        self.expect_nobody_left()


if __name__ == "__main__":
    unittest.main(verbosity=2)
