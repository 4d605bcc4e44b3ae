"""What `trireme serve` can do, done together: with --deterministic, draft tokens, adapters, weights in blocks, constraints and
ranks each request has bit for bit the answer that it has alone."""
import concurrent.futures
import json

import harness
import served_run

GUESSES = ("--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 3}))
DRAFT = ("--speculative-config", json.dumps({"method": "draft_model", "model": "run", "num_speculative_tokens": 3}))
CONSTRAINTS = (None, {"regex": r"[a-f]{2,5}-\d{3}"}, None, {"choice": ["the oar", "the ship", "a quiet sea"]}, None)


def requests(count):
    for number, prompt in enumerate(served_run.prompts(count, 7)):
        sampling = {"temperature": 0} if number % 3 == 0 else {"temperature": 0.9, "top_k": 40, "seed": number}
        constraint = CONSTRAINTS[number % len(CONSTRAINTS)]
        yield {"prompt": prompt, "max_tokens": 12 + 9 * (number % 4), "logprobs": 1,
               "n": 1 + number % 2, "model": ("tiny", "upper")[number % 4 // 2],
               **({"structured_outputs": constraint} if constraint else {"ignore_eos": True}), **sampling}


class Together(served_run.ServerTest):
    def response(self, fields):
        """Texts and log-probabilities of a request's choices, streamed or not."""
        if not fields.get("stream"):
            return {c["index"]: (c["text"], c["logprobs"]["token_logprobs"]) for c in self.complete(**fields)["choices"]}
        connection, response = self.stream(**fields)
        choices = {}
        for event in self.events(response):
            for choice in [] if event == "[DONE]" else json.loads(event)["choices"]:
                text, logprobs = choices.setdefault(choice["index"], ("", []))
                logprobs += (choice["logprobs"] or {"token_logprobs": []})["token_logprobs"]
                choices[choice["index"]] = (text + choice["text"], logprobs)
        connection.close()
        return choices

    def test_a_storm_with_everything(self):
        adapter = ("--lora-modules", f"upper={self.finetune_adapter('upper', str.upper)}")
        wanted = list(requests(20))
        for features in ((*adapter, *GUESSES, "--quantization", "q8_0"),
                         (*adapter, *GUESSES, "--ranks", 2, "--tensor", 2),
                         (*adapter, *DRAFT, "--quantization", "q4_0", "--ranks", 2, "--pipeline-parallel-size", 2),
                         (*adapter, *GUESSES, "--dtype", "bf16")):
            with self.subTest(features=features):
                server = self.serve("--deterministic", "--max-num-batched-tokens", 24, "--max-model-len", 256, *features)
                alone = [self.response({**fields, "cache_salt": f"alone {n}"}) for n, fields in enumerate(wanted)]
                with concurrent.futures.ThreadPoolExecutor(20) as threads:
                    got = [threads.submit(self.response, {**fields, "stream": n % 3 == 0})
                           for n, fields in enumerate(wanted)]
                    for one, want, fields in zip(got, alone, wanted, strict=True):
                        self.assertEqual(one.result(), want, fields)
                self.assertGreater(self.metric("vllm:prefix_cache_hits_total"), 0)
                if GUESSES[0] in features:
                    self.assertGreater(self.metric("vllm:spec_decode_num_accepted_tokens_total"), 0)
                self.wait_for(lambda: self.metric("vllm:kv_cache_usage_perc"), 0)
                self.stop(server)


if __name__ == "__main__":
    harness.main()
