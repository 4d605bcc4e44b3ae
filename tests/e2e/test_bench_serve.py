"""`trireme bench serve`: its figures are what a server of known delays has done, and a real server bears it."""
import json
import re
import statistics
import subprocess

import fake_openai
import harness
import served_run

# How much later than it was sent a token may be seen, at the median. The machine may be busy: once in TRIES is enough, as what
# is measured wrongly is wrong every time.
LATE, TRIES = 0.05, 12


class Late(AssertionError):
    pass


class BenchServe(served_run.ServerTest):
    def fake(self, *arguments, **options):
        server = fake_openai.FakeServer(*arguments, **options)
        self.addCleanup(server.close)
        return server

    def bench(self, url, *arguments, expect=0):
        """The results, and what was printed."""
        printed, said = self.trireme("bench", "serve", "--base-url", url, "--output", "result.json", "--save-detailed",
                                     *arguments, expect=expect)
        return json.loads((self.folder / "result.json").read_text()), printed, said

    @staticmethod
    def assert_in_time(got, wanted, late):
        if abs(got - wanted) > late:
            raise Late(f"{got} s, not {wanted} s")

    @staticmethod
    def until_in_time(check):
        for left in reversed(range(TRIES)):
            try:
                return check()
            except Late:
                if left == 0:
                    raise

    def assert_times_are(self, server, result, skip):
        """The times of the results against the fake's own, whose first `skip` requests were the warm-up."""
        sent = server.sent[skip:]
        self.assertEqual(len(sent), len(result["ttfts"]))
        wanted_ttft = [times[1] - times[0] for times in sent]
        wanted_itl = [after - before for times in sent for before, after in zip(times[1:], times[2:], strict=False)]
        got_itl = [gap for gaps in result["itls"] for gap in gaps]
        self.assertEqual(len(got_itl), len(wanted_itl))
        for got, wanted in ((result["ttfts"], wanted_ttft), (got_itl, wanted_itl)):
            self.assert_in_time(statistics.median(got), statistics.median(wanted), LATE)
        self.assertAlmostEqual(result["median_ttft_ms"], 1e3 * statistics.median(result["ttfts"]), places=6)
        self.assertAlmostEqual(result["mean_itl_ms"], 1e3 * statistics.mean(got_itl), places=6)
        tpots = [(e2e - ttft) / (n - 1) for e2e, ttft, n in zip(result["e2els"], result["ttfts"], result["output_lens"],
                                                                strict=True)]
        self.assertAlmostEqual(result["mean_tpot_ms"], 1e3 * statistics.mean(tpots), places=6)

    def test_a_closed_loop_of_known_delays(self):
        self.until_in_time(self.closed_loop)

    def closed_loop(self):
        server = self.fake([0.2, 0.25, 0.4])
        result, printed, _ = self.bench(server.url, "--num-prompts", 8, "--max-concurrency", 4, "--input-len", 5,
                                        "--output-len", 3, "--goodput", "ttft:100000", "tpot:100000")
        self.assertEqual((result["completed"], result["failed"], result["num_warmups"]), (8, 0, 4))
        self.assertEqual(server.max_under_way, 4)
        self.assertEqual(result["model_id"], "fake")
        self.assertEqual((result["total_input_tokens"], result["total_output_tokens"]), (88, 24))
        self.assertTrue(result["tokens_counted_by_server"])
        self.assert_times_are(server, result, skip=4)
        self.assertGreaterEqual(min(result["ttfts"]), 0.199)
        self.assertGreaterEqual(result["duration"], 0.8)  # two waves
        self.assertAlmostEqual(result["request_throughput"], 8 / result["duration"])
        self.assertAlmostEqual(result["output_throughput"], 24 / result["duration"])
        self.assertAlmostEqual(result["total_token_throughput"], 112 / result["duration"])
        self.assertAlmostEqual(result["request_goodput"], 8 / result["duration"])
        for word in ("TTFT", "P99", "tokens/s", "goodput"):
            self.assertIn(word, printed)
        body = server.requests[-1]
        self.assertEqual((len(body["prompt"]), body["max_tokens"], body["ignore_eos"]), (5, 3, True))
        self.assertNotEqual(server.requests[0]["prompt"], server.requests[-1]["prompt"])

    def test_arrivals_are_a_poisson_process(self):
        self.until_in_time(self.arrivals)

    def arrivals(self):
        server = self.fake([0.3, 0.31])
        result, _, _ = self.bench(server.url, "--num-prompts", 40, "--request-rate", 40, "--num-warmups", 0, "--backend",
                                  "openai-chat", "--goodput", "ttft:1", "--extra-body", '{"top_k": 3}',
                                  "--input-len", 2, "--seed", 5)
        self.assertEqual((result["completed"], result["max_concurrency"]), (40, None))
        self.assert_times_are(server, result, skip=0)
        self.assertEqual(result["request_goodput"], 0)
        # The last of 40 comes after a second, and its answer takes another 0.31.
        self.assertGreaterEqual(result["duration"], 1.3)
        self.assert_in_time(max(result["sent"]), 1, 2 * LATE)
        self.assertGreater(server.max_under_way, 4)  # nobody waits for another
        self.assertEqual(server.requests[0]["top_k"], 3)
        self.assertEqual(server.requests[0]["messages"][0]["role"], "user")

    def test_what_fails_is_counted_and_named(self):
        full = self.fake([], status=503)
        _, said = self.trireme("bench", "serve", "--base-url", full.url, "--num-prompts", 3, expect=1)
        self.assertIn("status 503: the fake is full", said)
        result, _, said = self.bench(full.url, "--num-prompts", 3, "--num-warmups", 0, expect=1)
        self.assertEqual((result["completed"], result["failed"]), (0, 3))
        self.assertIn("3 of 3 requests failed: status 503: the fake is full", said)
        stalled = self.fake([0, 0.01, 0.02], stalls_after=2)
        result, _, said = self.bench(stalled.url, "--num-prompts", 2, "--num-warmups", 0, "--timeout", 5, expect=1)
        self.assertIn("reading a response body took longer than 5 s", said)
        silent = self.fake([0.01, 0.02], usage=False)
        result, _, said = self.bench(silent.url, "--num-prompts", 2, "--input-len", 6)
        self.assertEqual((result["total_input_tokens"], result["total_output_tokens"]), (12, 4))
        self.assertFalse(result["tokens_counted_by_server"])
        self.assertIn("counted the events of its streams instead", said)
        _, said = self.trireme("bench", "serve", "--base-url", "http://127.0.0.1:1", expect=1)
        self.assertIn("http://127.0.0.1:1: connecting", said)

    def test_refused(self):
        for arguments, says in ((("--base-url", "localhost:8000"), "localhost:8000"),
                                (("--goodput", "itl:3"), "itl:3"),
                                (("--dataset-name", "custom"), "--dataset-path"),
                                (("--dataset-path", "x"), "--dataset-path"),
                                (("--extra-body", "{", "--model", "m"), "--extra-body"),
                                (("--input-len", 3, "--random-prefix-len", 4), "--random-prefix-len 4"),
                                (("--api-key", "a\nb"), "--api-key"),
                                (("--max-concurrency", 0), "--max-concurrency"),
                                (("--request-rate", -1), "--request-rate")):
            with self.subTest(arguments=arguments):
                self.assert_refused("bench", "serve", *arguments, says=says)

    def test_a_real_server(self):
        self.write("chat.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}")
        server = self.serve("--api-key", "key", "--chat-template", "chat.jinja")
        for backend in ("openai", "openai-chat"):
            result, _, _ = self.bench(f"http://127.0.0.1:{self.port}", "--num-prompts", 24, "--max-concurrency", 8, "--input-len",
                                      12, "--output-len", 8, "--api-key", "key", "--backend", backend)
            self.assertEqual((result["completed"], result["failed"]), (24, 0))
            self.assertEqual(result["output_lens"], 24 * [8])
            if backend == "openai":
                self.assertEqual(result["input_lens"], 24 * [12])
            for ttft, gaps, e2e in zip(result["ttfts"], result["itls"], result["e2els"], strict=True):
                self.assertLessEqual(ttft + sum(gaps), e2e + 1e-9)
        self.write("prompts.jsonl", '{"prompt": "the oar", "output_tokens": 5}\n{"prompt": "of a ship"}\n')
        result, _, _ = self.bench(f"http://127.0.0.1:{self.port}", "--num-prompts", 4, "--api-key", "key", "--dataset-name",
                                  "custom", "--dataset-path", "prompts.jsonl", "--output-len", 6)
        self.assertEqual(result["input_lens"], [7, 9, 7, 9])
        self.assertLessEqual(max(result["output_lens"][::2]), 5)
        _, said = self.trireme("bench", "serve", "--base-url", f"http://127.0.0.1:{self.port}", expect=1)
        self.assertIn("status 401", said)
        self.stop(server)

    def test_what_drafting_is_worth(self):
        ran = subprocess.run([harness.SOURCE / "scripts/bench/speculation.py", "--trireme", harness.TRIREME, "--threads", "2",
                              "--requests", "1", "--tokens", "32", "--rounds", "1"],
                             capture_output=True, text=True, timeout=500, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        row = re.search(r"\| llama-15m \| bf16 \| 4 \| (\d+) % \| [01] of 1 \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", ran.stdout)
        accepted, without, with_drafts, gain = map(float, row.groups())
        self.assertGreater(accepted, 0)
        self.assertAlmostEqual(gain, with_drafts / without, delta=0.02)


if __name__ == "__main__":
    harness.main()
