"""`trireme serve --deterministic`: a storm of requests writes bit for bit what each of them writes alone. CI has the
storm of 64 in one process, and one of 12 over ranks of each model. An argument is the seed that chooses other ranks, or
"all": 64 requests in every layout."""
import concurrent.futures
import json
import random
import re
import sys
import time

import harness
import served_run
from served_ranks import MIXTRAL

SAMPLE = "1"  # its seed, or "all"
MIXED = ({}, {"n": 2}, {"echo": True}, {"structured_outputs": {"regex": r"[a-f]{9,30}-\d{3}"}}, {},
         {"frequency_penalty": 0.5, "repetition_penalty": 1.1}, {"stop": ["oar", "sea"]})
# Tokens of a prompt: read whole where it is alone, and in the storm by and by.
WHOLE, CHUNK = 256, 24
BLOCKS, BLOCK_BYTES = 18, 4096  # of one rank


def requests(count):
    """Greedy and drawn texts."""
    for number, prompt in enumerate(served_run.prompts(count, 5)):
        sampling = {"temperature": 0} if number % 2 == 0 else {"temperature": 0.9, "top_p": 0.95, "seed": number}
        yield {"prompt": prompt, "max_tokens": 5 + 16 * (number % 5), "logprobs": 2,
               "ignore_eos": True, "echo": number % 8 == 5, **sampling}


def mixed_requests(count):
    """Of all kinds, each greedy and drawn. Three of eight have short prompts and long texts, which the cache has no room for
    when they begin together."""
    for number, fields in enumerate(requests(count)):
        kind = MIXED[number % len(MIXED)]
        tokens = 100 if number % 8 in (0, 1, 5) else fields["max_tokens"]
        yield {**fields, "max_tokens": tokens, "echo": False, "ignore_eos": "structured_outputs" not in kind, **kind}


class Deterministic(served_run.ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        print("layouts:", SAMPLE if SAMPLE == "all" else f"the sample of seed {SAMPLE}", flush=True)

    def response(self, fields):
        """Texts and log-probabilities of the choices, streamed or not."""
        if not fields.get("stream"):
            return {c["index"]: (c["text"], c["logprobs"], c["finish_reason"]) for c in self.complete(**fields)["choices"]}
        connection, response = self.stream(**fields)
        choices = {}
        for event in self.events(response):
            for choice in [] if event == "[DONE]" else json.loads(event)["choices"]:
                text, logprobs, _ = choices.setdefault(choice["index"], ("", {}, None))
                for name, values in (choice["logprobs"] or {}).items():
                    logprobs.setdefault(name, []).extend(values)
                choices[choice["index"]] = (text + choice["text"], logprobs, choice["finish_reason"])
        connection.close()
        return choices

    def leave(self, fields, seconds):
        """Goes away after the first event of a stream, or so soon after asking for a whole answer."""
        fields = {**fields, "max_tokens": 60}
        if seconds is None:
            connection, response = self.stream(**fields)
            next(self.events(response))
            response.close()
        else:
            connection = self.connect("POST", "/v1/completions", {"model": "tiny", "temperature": 0, **fields})
            time.sleep(seconds)
        connection.close()

    def alone(self, wanted, *arguments):
        """What a server says to one request after the other: whole prompts, nothing cached, nothing preempted."""
        server = self.serve(*arguments, "--max-num-batched-tokens", WHOLE)
        responses = {}
        for shared in (False, True):  # several texts share their prompt
            responses |= {n: self.response({**fields, "cache_salt": f"alone {n}"}) for n, fields in enumerate(wanted)
                        if shared == ("n" in fields)}
            self.assertEqual(self.metric("vllm:prefix_cache_hits_total") > 0, shared)
        self.assertEqual(self.metric("vllm:num_preemptions_total"), 0)
        self.stop(server)
        return [responses[n] for n in range(len(wanted))]

    def together(self, wanted):
        """What it says when they come as one, and others who leave; how many sequences these were."""
        source = random.Random(len(wanted))
        leaving = [(fields, source.choice((None, None, 0, source.random() / 2))) for fields in wanted[::4]]
        # Who waits to be computed is bounded, and of some requests two texts are.
        with concurrent.futures.ThreadPoolExecutor(28) as threads:
            tasks = [(self.response, {**fields, "stream": n % 3 == 0}) for n, fields in enumerate(wanted)]
            for n, one in enumerate(leaving):
                tasks.insert(5 * n, (self.leave, *one))
            futures = [threads.submit(*task) for task in tasks]
            responses = [future.result() for future, task in zip(futures, tasks) if task[0] == self.response]
        # Who left too late had his text written to its end.
        least = sum(seconds is None for _, seconds in leaving) // 2
        self.wait_for(lambda: self.aborted() >= least or self.leave(leaving[0][0], None))
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
            self.wait_for(lambda: self.metric(name), 0)
        return responses, self.aborted()

    def aborted(self):
        """Texts left by their clients."""
        return int(re.search(r'(?m)^vllm:request_success_total\{.*finished_reason="abort".*\} (\d+)$',
                             self.ask("GET", "/metrics")[1])[1])

    def storm(self, count, ranks=1, layout=()):
        wanted = list(mixed_requests(count))
        self.assertGreater(max(len(fields["prompt"]) for fields in wanted), 5 * CHUNK)
        long = {"prompt": 30 * served_run.PROMPT[:8], "max_tokens": 10, "ignore_eos": True, "logprobs": 1}
        arguments = ("--deterministic", "--max-model-len", WHOLE, *layout)
        *alone, long_alone = self.alone([*wanted, long], *arguments)
        server = self.serve(*arguments, "--max-num-batched-tokens", CHUNK,
                            "--kv-cache-memory-bytes", BLOCKS * BLOCK_BYTES // ranks)
        began = time.monotonic()
        for _ in range(8):  # a busy machine may spread the requests so that nothing is preempted
            got, aborted = self.together(wanted)
            for one, want, fields in zip(got, alone, wanted, strict=True):
                self.assertEqual(one, want, fields)
            preempted, hits = self.metric("vllm:num_preemptions_total"), self.metric("vllm:prefix_cache_hits_total")
            if preempted > 0:
                break
        seconds = time.monotonic() - began
        print(f"{self.model['model_type']}, {' '.join(map(str, layout)) or 'one process'}: {count} requests in "
              f"{seconds:.1f} s, {aborted} texts left by their clients, {preempted:g} preemptions, {hits:g} tokens of prompts cached: "
              "equal bit for bit, 0 blocks in use", flush=True)
        self.assertGreater(preempted, 0)
        self.assertGreater(hits, 0)
        # What needs nearly all blocks has them.
        self.assertEqual(self.response(long), long_alone)
        self.assertEqual(self.metric("vllm:num_preemptions_total"), preempted)
        self.stop(server)

    def storms(self, layouts):
        count = 64
        if SAMPLE != "all":
            count, layouts = 12, [random.Random(int(SAMPLE)).choice(layouts)]
        for ranks, layout in layouts:
            with self.subTest(layout=layout):
                self.storm(count, ranks, layout)


class Dense(Deterministic):
    def test_a_storm_of_requests(self):
        self.storm(64)

    def test_storms_over_ranks(self):
        self.storms([(2, ("--tensor-parallel-size", 2)), (2, ("--pipeline-parallel-size", 2)),
                     (4, ("--tensor-parallel-size", 2, "--pipeline-parallel-size", 2))])

    def test_drafts_change_nothing(self):
        """Speculative decoding writes the same texts, here over a cache in 8 bits, and some of its draft tokens are accepted."""
        wanted = [fields for fields in requests(12) if not fields["echo"]]
        cache = ("--kv-cache-dtype", "int8")
        server = self.serve("--deterministic", *cache)
        self.assertIn('cache_dtype="int8"', self.ask("GET", "/metrics")[1])
        plain = [self.response({**fields, "max_tokens": 80}) for fields in wanted]
        self.stop(server)
        for method, least, most in (("ngram", 0.05, 0.99), ("draft_model", 0.9, 1)):
            config = {"method": method, "num_speculative_tokens": 4}
            if method == "draft_model":
                config["model"] = "run"
            server = self.serve("--deterministic", *cache, "--speculative-config", json.dumps(config))
            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                got = threads.map(lambda fields: self.response({**fields, "max_tokens": 80, "stream": True}), wanted)
                for fields, one, want in zip(wanted, got, plain, strict=True):
                    self.assertEqual(one, want, fields)
            drafts, drafted, true = (self.metric(f"vllm:spec_decode_num_{what}_total")
                                     for what in ("drafts", "draft_tokens", "accepted_tokens"))
            self.assertGreater(drafts, 10)
            self.assertGreater(true, drafted * least)
            self.assertLessEqual(true, drafted * most)
            self.assertIn(self.metric("trireme:spec_decode_active"), (0, 1))
            self.assertGreater(self.metric("trireme:step_draft_seconds_sum"), 0)
            self.stop(server)

    def test_drafts_keep_to_grammars(self):
        """What a grammar makes repeat itself is drafted, by a lookup and by a model that knows no grammar."""
        wanted = [{"prompt": prompt, "max_tokens": 120, "structured_outputs": {"regex": regex}, "logprobs": 1, **sampling}
                  for prompt in ("the oar", "the ship and ")
                  for regex in (r"(sea:[ab],){12}", r"[a-z ]{90,110}")
                  for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 3})]
        plain = []
        for method in (None, "ngram", "draft_model"):
            config = {"method": method, "num_speculative_tokens": 4, **({"model": "run"} if method == "draft_model" else {})}
            server = self.serve("--deterministic", *(("--speculative-config", json.dumps(config)) if method else ()))
            responses = [self.response(fields) for fields in wanted]
            plain = plain or responses
            self.assertEqual(responses, plain, method)
            if method:
                self.assertGreater(self.metric("vllm:spec_decode_num_accepted_tokens_total"), 50, method)
            self.stop(server)

    def test_what_speculation_refuses(self):
        words = {chr(33 + i): i for i in range(61)}
        self.write("tokenizer.json", json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": None, "model": {"type": "BPE", "vocab": words, "merges": []}}))
        draft = {"method": "draft_model", "model": "run", "num_speculative_tokens": 2}
        for config, says, *more in (
                ({}, "num_speculative_tokens"), ("{", "--speculative-config"),
                ({"method": "eagle", "num_speculative_tokens": 2}, "eagle"),
                ({"method": "ngram", "num_speculative_tokens": 0}, "num_speculative_tokens is 0, expected 1 to 64"),
                ({"method": "ngram", "num_speculative_tokens": 2, "depth": 1}, "depth"),
                ({"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 9}, "prompt_lookup_min"),
                ({"method": "ngram", "num_speculative_tokens": 2, "model": "run"}, '"model" requires'),
                ({"method": "draft_model", "num_speculative_tokens": 2}, 'needs "model"'),
                ({**draft, "model": ""}, "expected a directory"), ({**draft, "model": "nowhere"}, "nowhere"),
                ({**draft, "prompt_lookup_max": 3}, "prompt_lookup_max requires"),
                (draft, ["257", "61", "the model's tokenizer"], "--tokenizer", "tokenizer.json"),
                ({**draft, "model": "nowhere"}, "nowhere", "--tensor", 2),
                (draft, ["--kv-cache-memory-bytes 4096", "for each of 2 replicas"], "--data-parallel-size", 2,
                 "--kv-cache-memory-bytes", 4096)):
            config = config if isinstance(config, str) else json.dumps(config)
            self.assert_refused("serve", "--model", "run", "--port", 0, "--speculative-config", config, *more, says=says)


class Experts(Deterministic):
    model, train_steps = MIXTRAL, 60

    def test_storms(self):
        experts = ("--tensor-parallel-size", 2, "--expert-parallel-size", 2)
        if SAMPLE == "all":
            self.storm(64)
        self.storms([(2, experts), (4, (*experts, "--pipeline-parallel-size", 2))])


if __name__ == "__main__":
    if len(sys.argv) > 1 and (sys.argv[-1] == "all" or sys.argv[-1].isdigit()):
        SAMPLE = sys.argv.pop()
    harness.main()
