"""A rank that is lost or stuck costs the requests under way, and nothing else: the server says so soon, keeps its
listener, and is ready again by itself."""
import http.client
import json
import os
import signal
import time
import unittest

from harness import PATIENCE
from served_ranks import LLAMA, PROMPT, ServedRanks

LENGTH = 4096
TOLD_WITHIN, NOT_READY_WITHIN, READY_WITHIN = 3 * PATIENCE, 1 * PATIENCE, 30 * PATIENCE
FOUR = ("--ranks", 4, "--tensor", 2, "--pipeline", 2)
TWO = ("--ranks", 2, "--tensor", 2)


class LostRanks(ServedRanks):
    model, train_steps = {**LLAMA, "max_position_embeddings": LENGTH}, 50

    def readiness(self):
        return self.ask("GET", "/health/ready")[0]

    def wait_until(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)

    @staticmethod
    def hurt(process, how):
        os.kill(process, how)
        return time.monotonic()

    def expect_error(self, answer, since):
        """What is read of an answer ends with an error, soon."""
        text = answer.read().decode()
        self.assertLess(time.monotonic() - since, TOLD_WITHIN)
        if answer.status == 200:
            text = text.rstrip("\n").rsplit("data: ", 1)[1]
        else:
            self.assertEqual(answer.status, 503, text)
            self.assertIsNotNone(answer.headers["Retry-After"])
        error = json.loads(text)["error"]
        self.assertEqual(error["code"], "engine_failure", error)
        self.assertIn("rank", error["message"])

    def prefill(self):
        """Prompts that take thousands of steps to read."""
        connection = self.connect("POST", "/v1/completions", {
            "model": "tiny", "prompt": [[i] * (LENGTH - 10) for i in range(8)], "max_tokens": 1, "stream": True})
        self.wait_until(lambda: self.metric("vllm:num_requests_running") > 0, 10, "nothing runs")
        self.assertEqual(self.metric("vllm:generation_tokens_total"), self.generated)
        return connection.getresponse

    def decode(self):
        """Texts that have begun."""
        _, answer = self.stream(prompt=PROMPT, max_tokens=LENGTH - 50, ignore_eos=True, n=4)
        next(self.events(answer))
        return lambda: answer

    def golden(self):
        """A text, and how many tokens of its prompt were in the cache."""
        answer = self.complete(prompt=4 * PROMPT, max_tokens=20)
        return answer["choices"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def expect_ready_again(self, golden):
        self.wait_until(lambda: self.readiness() == 200, READY_WITHIN, "it does not come back")
        # What the lost ranks had in their caches is not looked for.
        self.assertEqual(self.golden(), (golden, 0))
        text, cached = self.golden()
        self.assertEqual(text, golden)
        self.assertGreater(cached, 0)
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
            self.assertEqual(self.metric(gauge), 0, gauge)

    def lose(self, work, rank, how, golden):
        self.generated = self.metric("vllm:generation_tokens_total")
        before = self.processes()
        answer = work()
        since = self.hurt(before[rank], how)
        self.wait_until(lambda: self.readiness() == 503, NOT_READY_WITHIN, "it still says that it is ready")
        self.expect_error(answer(), since)
        self.expect_ready_again(golden)
        # All ranks are others; the process with the listener is the same.
        self.assertEqual(set(before.values()) & set(self.processes().values()), {before[None]})

    def test_it_outlives_its_ranks(self):
        server = self.serve(*FOUR, "--max-num-batched-tokens", 8)
        golden, _ = self.golden()
        for name, work, rank, how in (("killed in a prompt", self.prefill, 0, signal.SIGKILL),
                                      ("stopped in a prompt", self.prefill, 3, signal.SIGSTOP),
                                      ("killed in texts", self.decode, 2, signal.SIGKILL),
                                      ("stopped in texts", self.decode, 1, signal.SIGSTOP)):
            with self.subTest(name):
                self.lose(work, rank, how, golden)
        # With nothing under way.
        self.hurt(self.processes()[1], signal.SIGKILL)
        self.wait_until(lambda: self.readiness() == 503, NOT_READY_WITHIN, "it still says that it is ready")
        status, error = self.ask("POST", "/v1/completions", {"model": "tiny", "prompt": "a"})
        self.assertEqual((status, error["error"]["code"]), (503, "engine_failure"))
        self.expect_ready_again(golden)
        self.stop(server)
        self.expect_nobody_left()

    def test_a_rank_lost_while_it_stops(self):
        for how in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(how=how):
                server = self.serve(*TWO)
                processes = self.processes()
                answer = self.decode()()
                server.send_signal(signal.SIGTERM)
                self.wait_until(self.refuses, 5, "it does not stop")
                self.expect_error(answer, self.hurt(processes[1], how))
                _, stderr = server.communicate(timeout=20)
                self.assertEqual(server.returncode, 0, stderr)
                self.expect_nobody_left()

    def refuses(self):
        try:
            return self.readiness() == 503
        except (OSError, http.client.HTTPException):
            return True

    def test_ranks_of_a_launcher_end_together(self):
        server = self.serve(*FOUR[2:], ranks=4)
        processes = self.processes()
        self.decode()
        self.hurt(processes[3], signal.SIGKILL)
        server.communicate(timeout=20)
        self.assertNotEqual(server.returncode, 0)
        self.expect_nobody_left()

    def test_no_rank_outlives_the_process_that_started_it(self):
        for launcher in ("local", "mpirun"):
            with self.subTest(launcher=launcher):
                server = self.serve(*TWO, "--launcher", launcher)
                golden, _ = self.golden()
                if launcher == "mpirun":
                    processes = self.processes()
                    answer = self.decode()()
                    self.expect_error(answer, self.hurt(processes[1], signal.SIGKILL))
                    self.expect_ready_again(golden)
                server.kill()
                server.wait(10)
                self.expect_nobody_left()


if __name__ == "__main__":
    unittest.main(verbosity=2)
