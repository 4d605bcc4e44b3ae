"""`trireme serve --deterministic`: a storm of requests writes bit for bit what each of them writes alone."""
import concurrent.futures
import json

import harness
import served_run


def requests(count):
    """Greedy and drawn texts."""
    for number, prompt in enumerate(served_run.prompts(count, 5)):
        sampling = {"temperature": 0} if number % 2 == 0 else {"temperature": 0.9, "top_p": 0.95, "seed": number}
        yield {"prompt": prompt, "max_tokens": 5 + 16 * (number % 5), "logprobs": 2,
               "ignore_eos": True, "echo": number % 8 == 5, **sampling}


class Deterministic(served_run.ServerTest):
    def answer(self, fields):
        """Text and log-probabilities, streamed or not."""
        if not fields.get("stream"):
            choice = self.complete(**fields)["choices"][0]
            return choice["text"], choice["logprobs"]
        connection, answer = self.stream(**fields)
        text, logprobs = "", {}
        for event in self.events(answer):
            choice = {} if event == "[DONE]" else json.loads(event)["choices"][0]
            text += choice.get("text", "")
            for name, values in (choice.get("logprobs") or {}).items():
                logprobs.setdefault(name, []).extend(values)
        connection.close()
        return text, logprobs

    def leave(self, fields):
        """Goes away after the first event."""
        connection, answer = self.stream(**{**fields, "max_tokens": 60})
        next(self.events(answer))
        answer.close()
        connection.close()

    def test_a_storm_of_requests(self):
        server = self.serve("--deterministic", "--max-num-batched-tokens", 24,
                            "--max-model-len", 256, "--kv-cache-memory-bytes", 18 * 4096)
        wanted = list(requests(64))
        alone = [self.answer({**fields, "cache_salt": f"alone {n}"}) for n, fields in enumerate(wanted)]
        self.assertEqual(self.metric("vllm:num_preemptions_total"), 0)
        self.assertEqual(self.metric("vllm:prefix_cache_hits_total"), 0)
        with concurrent.futures.ThreadPoolExecutor(36) as threads:
            gone = [threads.submit(self.leave, fields) for fields in wanted[::5]]
            got = [threads.submit(self.answer, {**fields, "stream": n % 3 == 0}) for n, fields in enumerate(wanted)]
            for one in gone:
                one.result()
            for number, (one, want) in enumerate(zip(got, alone, strict=True)):
                self.assertEqual(one.result(), want, wanted[number])
        self.assertGreater(self.metric("vllm:num_preemptions_total"), 0)
        self.assertGreater(self.metric("vllm:prefix_cache_hits_total"), 0)
        self.wait_for(lambda: self.metric("vllm:num_requests_running"), 0)
        self.assertEqual(self.metric("vllm:kv_cache_usage_perc"), 0)
        self.stop(server)

    def test_guesses_change_nothing(self):
        """Speculative decoding writes the same texts, here over a cache in 8 bits, and some of what it guesses is true."""
        wanted = [fields for fields in requests(12) if not fields["echo"]]
        cache = ("--kv-cache-dtype", "int8")
        server = self.serve("--deterministic", *cache)
        self.assertIn('cache_dtype="int8"', self.ask("GET", "/metrics")[1])
        plain = [self.answer({**fields, "max_tokens": 80}) for fields in wanted]
        self.stop(server)
        for method, least, most in (("ngram", 0.05, 0.99), ("draft_model", 0.9, 1)):
            config = {"method": method, "num_speculative_tokens": 4}
            if method == "draft_model":
                config["model"] = "run"
            server = self.serve("--deterministic", *cache, "--speculative-config", json.dumps(config))
            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                got = threads.map(lambda fields: self.answer({**fields, "max_tokens": 80, "stream": True}), wanted)
                for fields, one, want in zip(wanted, got, plain, strict=True):
                    self.assertEqual(one, want, fields)
            drafts, guessed, true = (self.metric(f"vllm:spec_decode_num_{what}_total")
                                     for what in ("drafts", "draft_tokens", "accepted_tokens"))
            self.assertGreater(drafts, 10)
            self.assertGreater(true, guessed * least)
            self.assertLessEqual(true, guessed * most)
            self.assertIn(self.metric("trireme:spec_decode_active"), (0, 1))
            self.assertGreater(self.metric("trireme:step_draft_seconds_sum"), 0)
            self.stop(server)

    def test_guesses_keep_to_grammars(self):
        """What a grammar makes repeat itself is guessed, by a lookup and by a model that knows no grammar."""
        wanted = [{"prompt": prompt, "max_tokens": 120, "structured_outputs": {"regex": regex}, "logprobs": 1, **sampling}
                  for prompt in ("the oar", "the ship and ")
                  for regex in (r"(sea:[ab],){12}", r"[a-z ]{90,110}")
                  for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 3})]
        plain = []
        for method in (None, "ngram", "draft_model"):
            config = {"method": method, "num_speculative_tokens": 4, **({"model": "run"} if method == "draft_model" else {})}
            server = self.serve("--deterministic", *(("--speculative-config", json.dumps(config)) if method else ()))
            answers = [self.answer(fields) for fields in wanted]
            plain = plain or answers
            self.assertEqual(answers, plain, method)
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
                ({"method": "ngram", "num_speculative_tokens": 0}, "from 1 to 64"),
                ({"method": "ngram", "num_speculative_tokens": 2, "depth": 1}, "depth"),
                ({"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 9}, "prompt_lookup_min"),
                ({"method": "ngram", "num_speculative_tokens": 2, "model": "run"}, '"model" goes with'),
                ({"method": "draft_model", "num_speculative_tokens": 2}, 'needs "model"'),
                ({**draft, "model": ""}, "not a directory"), ({**draft, "model": "nowhere"}, "nowhere"),
                ({**draft, "prompt_lookup_max": 3}, "prompt_lookup_max goes with"),
                (draft, ["257", "61", "the model's tokenizer"], "--tokenizer", "tokenizer.json"),
                ({**draft, "model": "nowhere"}, "nowhere", "--tensor", 2),
                (draft, ["--kv-cache-memory-bytes 4096", "for each of 2 replicas"], "--data-parallel-size", 2,
                 "--kv-cache-memory-bytes", 4096)):
            config = config if isinstance(config, str) else json.dumps(config)
            self.assert_refused("serve", "--model", "run", "--port", 0, "--speculative-config", config, *more, says=says)


if __name__ == "__main__":
    harness.main()
