"""A model that several ranks serve says what the same model says in one process, and what `trireme eval` says."""
import json
import os
import re
import signal
import unittest
from pathlib import Path

import served_ranks
import tiny_run
from served_ranks import PROMPT, ServedRanks

SAME_LOGPROB, CLEAR_MARGIN = 1e-4, 1e-3
PROMPTS = [PROMPT, "t", tiny_run.text(40, 3), "rowing as one over a quiet sea by night " * 3]


class Layouts:
    def responses(self):
        """Log-probabilities of prompts; then the greedy tokens behind each, with the two most probable ones."""
        choices = self.complete(prompt=PROMPTS, max_tokens=0, echo=True, logprobs=0)["choices"]
        texts = self.complete(prompt=PROMPTS, max_tokens=30, logprobs=2, ignore_eos=True)["choices"]
        drawn = self.complete(prompt=PROMPT, max_tokens=30, temperature=0.8, seed=5, n=2)["choices"]
        return ([choice["logprobs"]["token_logprobs"][1:] for choice in choices],
                [choice["logprobs"] for choice in texts], [choice["text"] for choice in drawn])

    def assert_same(self, got, want):
        for one, other in zip(got[0], want[0], strict=True):
            self.assertEqual(len(one), len(other))
            for a, b in zip(one, other):
                self.assertAlmostEqual(a, b, delta=SAME_LOGPROB)
        for one, other in zip(got[1], want[1], strict=True):
            for token, same, top in zip(one["tokens"], other["tokens"], other["top_logprobs"], strict=True):
                best = sorted(top.values(), reverse=True)
                if len(best) > 1 and best[0] - best[1] <= CLEAR_MARGIN:
                    break  # from here on the texts may part
                self.assertEqual(token, same)
        self.assertEqual(got[2], want[2])

    def assert_layouts_agree(self, layouts):
        server = self.serve()
        alone = self.responses()
        self.stop(server)
        for layout in layouts:
            with self.subTest(layout=layout):
                server = self.serve(*layout)
                self.assert_same(self.responses(), alone)
                self.assertEqual(self.metric("vllm:kv_cache_usage_perc"), 0)
                self.stop(server)
                self.expect_nobody_left()


class Dense(Layouts, ServedRanks):
    def test_layouts_agree(self):
        self.assert_layouts_agree([("--tensor-parallel-size", 2), ("--ranks", 2, "--pipeline-parallel-size", 2),
                                   ("--ranks", 4, "--tensor-parallel-size", 2, "--pipeline", 2)])

    def test_a_draft_beside_ranks(self):
        """It drafts in the process that has the requests, and changes no text."""
        server = self.serve()
        alone = self.responses()
        self.stop(server)
        draft = ("--speculative-config", json.dumps({"method": "draft_model", "model": "run", "num_speculative_tokens": 3}))
        for layout, ranks in ((("--ranks", 2, "--tensor", 2), None), (("--pipeline", 2), 2),
                              (("--data-parallel-size", 2), None)):
            with self.subTest(layout=layout):
                server = self.serve(*layout, *draft, ranks=ranks)
                self.assert_same(self.responses(), alone)
                text = self.ask("GET", "/metrics")[1]
                true = re.findall(r"(?m)^vllm:spec_decode_num_accepted_tokens_total\{.*\} (\S+)$", text)
                self.assertGreater(sum(map(float, true)), 10)
                self.stop(server) if ranks is None else self.stop_ranks(server)
                self.expect_nobody_left()

    def stop_ranks(self, server):
        os.kill(self.processes()[0], signal.SIGTERM)
        server.communicate(timeout=120)
        self.assertEqual(server.returncode, 0)

    def test_echo_is_what_eval_says(self):
        text = tiny_run.text(20, 9)[:33]  # one window of 32 predictions
        self.write("window.txt", text)
        self.trireme("data", "prepare", "--input", "window.txt", "--output", "window")
        loss = json.loads(self.trireme("eval", "run", "--data", "window", "--json")[0])
        self.assertEqual(loss["tokens"], 32)
        server = self.serve("--ranks", 2, "--tensor", 2)
        reported = self.complete(prompt=text, max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]
        self.assertEqual(len(reported["token_logprobs"]), 33)
        self.assertAlmostEqual(-sum(reported["token_logprobs"][1:]) / 32, loss["loss"], delta=1e-5)
        self.stop(server)

    def test_no_request_may_cost_the_ranks(self):
        server = self.serve("--ranks", 2, "--tensor", 2)
        ranks = self.processes()
        for fields in ({"top_p": 0, "temperature": 2}, {"min_p": 1, "top_k": 1_000_000_000}, {"logprobs": 20, "echo": True},
                       {"repetition_penalty": 0.01, "frequency_penalty": -2, "presence_penalty": 2}, {"seed": -2**63},
                       {"bad_words": [format(i, "016") for i in range(1000)], "n": 8}, {"stop_token_ids": list(range(128))},
                       {"logit_bias": {str(i): 100 * (-1) ** i for i in range(256)}, "n": 8},
                       {"min_tokens": 20, "stop_token_ids": [256]}):
            with self.subTest(fields=fields):
                self.complete(**{"max_tokens": 20, "temperature": 1, **fields})
        self.assertEqual(self.processes(), ranks)
        self.stop(server)

    def test_keys_are_no_arguments_of_ranks(self):
        server = self.serve("--ranks", 2, "--tensor", 2, "--api-key", "secret1", "--admin-api-key=secret2")
        ranks = self.processes()
        for rank, process in ranks.items():
            arguments = Path(f"/proc/{process}/cmdline").read_text()
            self.assertIn("--tensor", arguments)
            self.assertEqual("secret" in arguments, rank is None)
        self.assertEqual(sorted(rank for rank in ranks if rank is not None), [0, 1])
        self.assertEqual([self.ask("GET", "/v1/models", key=key)[0] for key in (None, "secret1")], [401, 200])
        self.stop(server)

    def test_ranks_of_mpirun(self):
        server = self.serve()
        alone = self.responses()
        self.stop(server)
        server = self.serve("--tensor", 2, "--pipeline", 2, ranks=4)
        self.assert_same(self.responses(), alone)
        processes = self.processes()
        self.assertEqual(sorted(processes), [0, 1, 2, 3])
        # Nobody spins while nothing is asked for.
        self.assertLess(self.cores_used(2), 0.01)
        # The ranks that only compute leave signals to the one that has the requests.
        os.kill(processes[2], signal.SIGTERM)
        self.complete(max_tokens=5)
        os.kill(processes[0], signal.SIGTERM)
        _, stderr = server.communicate(timeout=120)
        self.assertEqual(server.returncode, 0, stderr)
        self.expect_nobody_left()

    def test_what_does_not_fit_is_refused(self):
        for arguments, says in ((("--ranks", 3, "--tensor", 3), ["--tensor", "3"]),
                                (("--ranks", 4, "--tensor", 2), ["4 ranks", "hold one copy of the model"]),
                                (("--ranks", 2, "--tensor", 2, "--max-model-len", 512, "--kv-cache-memory-bytes", 4096),
                                 ["--max-model-len 512", "holds"]),
                                (("--tensor", 3), ["--tensor", "3"])):
            with self.subTest(arguments=arguments):
                self.assert_refused("serve", "--model", "run", "--port", 0, *arguments, says=says)
        self.expect_nobody_left()


class Experts(Layouts, ServedRanks):
    model, train_steps = served_ranks.MIXTRAL, 60

    def test_layouts_agree(self):
        self.assert_layouts_agree([("--ranks", 2, "--tensor", 2, "--expert-parallel-size", 2)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
