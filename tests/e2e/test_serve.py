"""`trireme serve`: the real server on a tiny model, asked with the standard library's client."""
import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import struct
import unittest
from pathlib import Path

import harness
import served_run
import tiny_run
from served_run import LENGTH, PROMPT


class Server(served_run.ServerTest):
    def test_it_outlives_the_reader_of_its_log(self):
        server = self.serve()
        server.stderr.close()
        self.complete(max_tokens=1, unheard_of=1)  # which is logged
        self.assertEqual(self.ask("GET", "/health")[0], 200)
        server.stderr = None
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(60), 0)

    def test_it_writes_what_generate_writes(self):
        server = self.serve()
        printed, _ = self.trireme("generate", "run", "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", 40)
        whole = self.complete(max_tokens=40, echo=True)["choices"][0]
        self.assertEqual(whole["text"] + "\n", printed)
        self.assertRegex(printed, r"[a-z]+ [a-z]+ [a-z]+ [a-z]+ [a-z]+")
        alone = self.complete(max_tokens=40, n=3)
        self.assertEqual({c["text"] for c in alone["choices"]}, {whole["text"][len(PROMPT):]})
        self.assertEqual(alone["usage"]["completion_tokens"], 3 * 40)
        # Streams say the same: greedy and drawn.
        for sampling in ({"temperature": 0}, {"temperature": 0.8, "seed": 3, "top_p": 0.9}):
            want = self.complete(max_tokens=60, stop=["oar"], **sampling)["choices"][0]
            _, response = self.stream(prompt=PROMPT, max_tokens=60, stop=["oar"], **sampling)
            *chunks, last = self.events(response)
            self.assertEqual(last, "[DONE]")
            choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
            self.assertEqual("".join(c["text"] for c in choices), want["text"])
            self.assertEqual(choices[-1]["finish_reason"], want["finish_reason"])
        # The echo's log-probabilities are those that the text was written with.
        text = self.complete(max_tokens=10, logprobs=1, echo=False)["choices"][0]
        reported = self.complete(prompt=PROMPT + text["text"], max_tokens=0, logprobs=0, echo=True)["choices"][0]["logprobs"]
        for one, other in zip(reported["token_logprobs"][-10:], text["logprobs"]["token_logprobs"], strict=True):
            self.assertAlmostEqual(one, other, delta=1e-4)
        self.stop(server)

    def test_what_a_prompt_is_worth(self):
        """Log-probabilities of a prompt are those that `trireme eval` adds up, wherever they are told."""
        text = tiny_run.text(300, 1)[:201]
        self.write("text.txt", text)
        self.trireme("data", "prepare", "--input", "text.txt", "--output", "text")
        report, _ = self.trireme("eval", "run", "--data", "text", "--sequence-length", 200, "--max-samples", 1, "--json")
        server = self.serve("--max-num-batched-tokens", 64)
        choice = self.complete(prompt=text, max_tokens=1, logprobs=2, echo=True, prompt_logprobs=1)["choices"][0]
        first, *reported = choice["logprobs"]["token_logprobs"][:-1]
        self.assertIsNone(first)
        self.assertAlmostEqual(-sum(reported) / 200, json.loads(report)["loss"], delta=1e-5)
        first, *apart = choice["prompt_logprobs"]
        self.assertIsNone(first)
        for letter, logprob, one in zip(text[1:], reported, apart, strict=True):
            own = one[str(ord(letter))]
            self.assertEqual((own["logprob"], own["decoded_token"]), (logprob, letter))
            self.assertEqual([o["rank"] for o in one.values()], [1] if own["rank"] == 1 else [own["rank"], 1])
        # The best of several are theirs.
        asked = {"prompt": text[:40], "temperature": 1, "seed": 5, "max_tokens": 12, "logprobs": 0}
        every = self.complete(n=6, **asked)["choices"]
        best = self.complete(n=2, best_of=6, **asked)["choices"]
        every.sort(key=lambda c: -sum(c["logprobs"]["token_logprobs"]))
        self.assertEqual([c["text"] for c in best], [c["text"] for c in every[:2]])
        self.assertEqual([c["index"] for c in best], [0, 1])
        self.stop(server)

    def test_embeddings(self):
        server = self.serve("--max-num-batched-tokens", 16, "--deterministic")
        texts = ["the oar of a ship", "a sea by night " * 5, "the oar of a ship"]

        def embed(**fields):
            status, response = self.ask("POST", "/v1/embeddings", {"model": "tiny", "input": texts, **fields})
            self.assertEqual(status, 200, response)
            self.assertEqual(response["usage"]["prompt_tokens"], sum(map(len, texts)))
            return [one["embedding"] for one in response["data"]]

        one, other, again = embed()
        self.assertEqual(len(one), 32)
        self.assertEqual(one, again)
        for vector in (one, other):
            self.assertAlmostEqual(sum(x * x for x in vector), 1, delta=1e-5)
        self.assertLess(sum(x * y for x, y in zip(one, other)), 0.999)
        for vector, packed in zip((one, other), embed(encoding_format="base64")):
            self.assertEqual(list(struct.unpack("<32f", base64.b64decode(packed))),
                             [struct.unpack("f", struct.pack("f", x))[0] for x in vector])
        short = embed(dimensions=4)[0]
        scale = sum(x * x for x in one[:4]) ** 0.5
        for got, want in zip(short, one, strict=False):
            self.assertAlmostEqual(got, want / scale, delta=1e-6)
        self.stop(server)

    @unittest.skipUnless("TRIREME_EMULATED" in os.environ, "scripts/test.sh --rest builds the program with the emulated GPU")
    def test_a_gpu_writes_the_same(self):
        printed, _ = self.trireme("generate", "run", "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", 12)
        server = self.serve("--device", "cuda", "--max-model-len", 64, program=os.environ["TRIREME_EMULATED"])
        for choice in self.complete(max_tokens=12, echo=True, n=3)["choices"]:
            self.assertEqual(choice["text"] + "\n", printed)
        self.stop(server)

    @unittest.skipUnless("TRIREME_EMULATED" in os.environ, "scripts/test.sh --rest builds the program with the emulated GPU")
    def test_a_share_of_a_gpu(self):
        program = os.environ["TRIREME_EMULATED"]
        command = ("serve", "--model", "run", "--port", 0, "--device", "cuda")
        for share in (0, 1.01, "nan", "half"):
            self.assert_refused(*command, "--gpu-memory-utilization", share, says="above 0 and at most 1", program=program)
        # Ranks that share a GPU have half of what is left each. (Each emulates one of its own, so that sees its own weights.)
        for layout, ranks in ((), 1), (("--data-parallel-size", 2), 2):
            with self.subTest(ranks=ranks):
                _, said = self.trireme(*command, *layout, "--gpu-memory-utilization", 1e-6, expect=2, program=program)
                found = re.search(r"of (\d+) bytes of GPU 0, (\d+) are in use .*; 0 bytes are left for the cache, and 16 tokens need (\d+)", said)
                total, used, block = map(int, found.groups())
                self.assertEqual(total, 16 << 30)
                self.write("serve.json", json.dumps({"gpu_memory_utilization": (used + 100.5 * ranks * block) / total}))
                server = self.serve("--config", "serve.json", "--device", "cuda", *layout, program=program)
                said = self.stop(server)
                self.assertIn("KV cache of 100 blocks", said)
                self.assertIn("--gpu-memory-utilization sets its size", said)
        # Bytes that are asked for count before it.
        server = self.serve("--config", "serve.json", "--device", "cuda", "--kv-cache-memory-bytes", 40 * block,
                            program=program)
        self.assertIn("KV cache of 40 blocks", self.stop(server))

    def test_types_have_vllms_words_too(self):
        self.write("serve.json", json.dumps({"dtype": "half", "show_hidden_metrics": True}))
        for arguments, want in ((), "float16"), (("--dtype", "auto"), "float32"), (("--dtype", "bfloat16"), "bfloat16"):
            server = self.serve("--config", "serve.json", *arguments)
            self.assertEqual(self.metric("vllm:gpu_cache_usage_perc"), 0)
            self.assertIn(f"model run as tiny, {want}, weights in {want}, on ", self.stop(server))
        self.assert_refused("serve", "run", "--dtype", "float64", says=["--dtype", "float64", "bfloat16"])

    def test_adapters_have_ids_of_their_own(self):
        adapters = {"upper": self.finetune_adapter("upper", str.upper),
                    "backwards": self.finetune_adapter("backwards", lambda word: word[::-1])}
        write = ("generate", "run", "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", 20)
        want = {name: self.trireme(*write, "--adapter", folder)[0] for name, folder in adapters.items()}
        want["tiny"], _ = self.trireme(*write)
        self.assertEqual(len(set(want.values())), 3)
        server = self.serve(*(word for name, folder in adapters.items()
                              for word in ("--lora-modules", f"{name}={folder}")))
        _, models = self.ask("GET", "/v1/models")
        self.assertEqual({model["id"]: model["parent"] for model in models["data"]},
                         {"tiny": None, "upper": "tiny", "backwards": "tiny"})
        for _ in range(2):  # the second time with the prompt in the cache
            reported = re.search(r"\nvllm:lora_requests_info{([^}]*)}", self.ask("GET", "/metrics")[1])
            self.assertIn('max_lora="2"', reported[1])
            for name, text in want.items():
                response = self.complete(model=name, max_tokens=20, echo=True, ignore_eos=True)
                self.assertEqual((response["model"], response["choices"][0]["text"] + "\n"), (name, text))
        self.assertEqual(self.ask("POST", "/v1/completions", {"model": "other", "prompt": PROMPT})[0], 404)
        self.stop(server)
        for ranks in ((), ("--ranks", 2, "--tensor", 2), ("--ranks", 2, "--data-parallel-size", 2)):
            with self.subTest(ranks=ranks):
                self.come_and_go(adapters, want, ranks)
        self.run_what_is_documented(adapters)

    def run_what_is_documented(self, adapters):
        """The commands of docs/guide/serving.md, with the models that are here."""
        named = ("runs/sql/adapter", adapters["upper"]), ("runs/chat/adapter", adapters["backwards"])
        fixed, roomy, load = served_run.documented("Adapters")
        for command in (fixed, roomy, load):
            for at, word in enumerate(command):
                for written, here in (*named, ("BASE", "run"), ("ADMIN-KEY", "admins")):
                    word = word.replace(written, here)
                command[at] = word
        self.write("admin", "admins\n")
        for command, wanted in ((fixed, {"tiny", "sql", "chat"}), (roomy, {"tiny"})):
            self.assertEqual(command[:4], ["trireme", "serve", "--model", "run"])
            server = self.serve(*command[4:])
            _, models = self.ask("GET", "/v1/models", key="admins")
            self.assertEqual({model["id"] for model in models["data"]}, wanted)
            if command is roomy:
                self.assertEqual([*load[:2], *load[3:5]], ["curl", "-s", "-H", "Authorization: Bearer admins"])
                body = json.loads(load[load.index("-d") + 1])
                status, said = self.ask("POST", load[2].removeprefix("localhost:8000"), body, "admins")
                self.assertEqual(status, 200, said)
                fields = {"model": body["lora_name"], "prompt": PROMPT, "max_tokens": 2}
                self.assertEqual(self.ask("POST", "/v1/completions", fields, "admins")[0], 200)
            self.stop(server)

    def come_and_go(self, adapters, want, ranks):
        """With room for one: the same texts, one adapter after the other in its place."""
        server = self.serve("--max-loras", 1, "--max-lora-rank", 8, "--admin-api-key", "admin", *ranks)

        def ask(path, **fields):
            return self.ask("POST", path, fields, "admin")

        def write(model):
            return ask("/v1/completions", model=model, prompt=PROMPT, temperature=0, max_tokens=20, echo=True,
                       ignore_eos=True)

        def expect_texts(*models):
            for model in models:
                status, response = write(model)
                self.assertEqual(status, 200, response)
                self.assertEqual(response["choices"][0]["text"] + "\n", want[model])

        for name, folder in adapters.items():
            status, said = ask("/v1/load_lora_adapter", lora_name=name, lora_path=folder)
            self.assertEqual((status, said), (200, f"Success: LoRA adapter '{name}' added successfully."))
            expect_texts(name, "tiny")
            if ranks:
                self.lose_ranks(server)
                expect_texts(name, "tiny")
            self.assertEqual(ask("/v1/load_lora_adapter", lora_name="third", lora_path=folder)[0], 503)
            self.assertEqual(ask("/v1/unload_lora_adapter", lora_name=name)[0], 200)
            self.assertEqual(write(name)[0], 404)
            expect_texts("tiny")
        for path in ("run", "nowhere", "/dev", "upper/adapter/adapter_config.json"):
            status, response = ask("/v1/load_lora_adapter", lora_name="run", lora_path=path)
            self.assertEqual((status, response["error"]["param"]), (400, "lora_path"), response)
        # Ranks that no adapter has, and one beyond the room: the answer names the key.
        source = self.folder / next(iter(adapters.values()))
        for number, (says, changes) in enumerate((
                ("r is 65537", {"r": 65537}), ("r is 9223372036854775808", {"r": 1 << 63}),
                ("r is 1e+300", {"r": 1e300}), ("r is -1", {"r": -1}), ("--max-lora-rank", {"r": 65536}),
                ("rank_pattern of q_proj is 1e+30", {"rank_pattern": {"q_proj": 1e30}}),
                ("rank_pattern of q_proj is 70000", {"rank_pattern": {"q_proj": 70000}}))):
            folder = self.folder / f"rank{number}{''.join(map(str, ranks))}"
            shutil.copytree(source, folder)
            config = json.loads((folder / "adapter_config.json").read_text())
            (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))
            status, response = ask("/v1/load_lora_adapter", lora_name="huge", lora_path=folder.name)
            self.assertEqual((status, response["error"]["param"]), (400, "lora_path"), response)
            self.assertIn(says, response["error"]["message"])
        self.assertEqual(self.ask("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"})[0], 401)
        expect_texts("tiny")
        self.stop(server)

    def lose_ranks(self, server):
        """Ranks that start again have what was loaded meanwhile."""
        def ranks():
            return {int(number) for file in Path(f"/proc/{server.pid}/task").glob("*/children")
                    for number in file.read_text().split()}
        lost = ranks()
        for rank in lost:
            with contextlib.suppress(ProcessLookupError):  # it found that the other was lost, and has left
                os.kill(rank, signal.SIGKILL)
        self.wait_for(lambda: len(ranks() - lost) == len(lost) and not ranks() & lost)
        self.wait_for(lambda: self.ask("GET", "/health/ready")[0], 200)

    def test_adapters_that_cannot_be_served(self):
        for given, says in (("run", "expected NAME=DIRECTORY"), ("a=run", "adapter_config.json"),
                            ("m=x", "another model is served under this name")):
            self.assert_refused("serve", "--model", "run", "--served-model-name", "m", "--lora-modules", given, says=says)
        self.assert_refused("serve", "--model", "run", "--adapter", "x", "--lora-modules", "a=x", says="cannot be combined")
        self.assert_refused("serve", "--model", "run", "--adapter", "x", "--max-loras", 2, says="cannot be combined")
        self.assert_refused("serve", "--model", "run", "--max-lora-rank", 2, says="--max-loras")

    def test_routes_and_chats(self):
        self.write("chat.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}")
        server = self.serve("--chat-template", "chat.jinja")
        said = self.complete(max_tokens=20)["choices"][0]["text"]
        body = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 20}
        status, chat = self.ask("POST", "/v1/chat/completions", body)
        self.assertEqual((status, chat["choices"][0]["message"]["content"]), (200, said), chat)
        _, response = self.stream("/v1/chat/completions", messages=body["messages"], max_tokens=20,
                                stream_options={"include_usage": True})
        *chunks, last = self.events(response)
        self.assertEqual(last, "[DONE]")
        chunks = [json.loads(chunk) for chunk in chunks]
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual("".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]), said)
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 20)
        models = self.ask("GET", "/v1/models")[1]["data"]
        self.assertEqual([(m["id"], m["max_model_len"]) for m in models], [("tiny", LENGTH)])
        self.assertEqual(self.ask("POST", "/tokenize", {"prompt": "abc"})[1]["tokens"], [97, 98, 99])
        self.assertEqual(self.ask("POST", "/detokenize", {"tokens": [97, 98]})[1]["prompt"], "ab")
        for path in ("/health", "/health/live", "/health/ready", "/version", "/openapi.json"):
            self.assertEqual(self.ask("GET", path)[0], 200, path)
        self.assertGreater(self.metric("vllm:generation_tokens_total"), 59)
        # What is wrong is named; what is not there yet says so.
        for status, param, fields in ((400, "temperature", {"temperature": 3}), (400, "n", {"n": 0}),
                                      (400, "max_tokens", {"max_tokens": LENGTH}), (400, "prompt", {"prompt": []}),
                                      (404, "model", {"model": "other"}), (400, "typical_p", {"typical_p": 1.5}),
                                      (400, "structured_outputs", {"structured_outputs": {"regex": "a**"}})):
            with self.subTest(fields=fields):
                got, error = self.ask("POST", "/v1/completions", {"model": "tiny", "prompt": "a", **fields})
                self.assertEqual((got, error["error"]["param"]), (status, param), error)
        self.assertEqual(self.ask("GET", "/v1/nothing")[0], 404)
        self.stop(server)

    def test_chat_templates_by_name(self):
        self.write("chat/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}")
        self.write("chat/additional_chat_templates/tool_use.jinja",
                   "{{ tools | length }}<tool_call>{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}"
                   "{% for c in m.tool_calls %}{{ c.function.arguments }}{% endfor %}{% endfor %}")
        server = self.serve("--chat-template", "chat")
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
        talk = [{"role": "user", "content": "a"}]

        def tokens(messages, **fields):
            status, response = self.ask("POST", "/v1/chat/completions", {
                "model": "tiny", "messages": messages, "max_tokens": 1, "temperature": 0, **fields})
            return response["usage"]["prompt_tokens"] if status == 200 else response["error"]["param"]
        self.assertEqual(tokens(talk), 1)
        self.assertEqual(tokens(talk, tools=tools), len("1<tool_call>a"))  # also the form of calls is this template's
        self.assertEqual(tokens(talk, tools=tools, chat_template="default"), "tools")
        self.assertEqual(tokens(talk, tools=tools, tool_choice="none"), 1)
        self.assertEqual(tokens(talk, chat_template="rag"), "chat_template")
        self.assertEqual(tokens(talk, documents=[{"text": "x"}]), "documents")
        self.assertEqual(tokens([*talk, {"role": "assistant", "content": "b", "reasoning": "why"}], tools=tools),
                         len("1<tool_call>abwhy"))
        # Arguments that a model has spoiled are answered to.
        for arguments in ('{"c": "echo ', "plain", "[1]"):
            said = [*talk, {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
                {"role": "tool", "tool_call_id": "c", "content": "t"}]
            self.assertEqual(tokens(said, tools=tools), len("1<tool_call>at" + arguments))
        tokens([*talk, {"role": "user", "content": "b", "tone": "dry"}])
        tokens([*talk, {"role": "user", "content": "b", "tone": "dry"}])
        log = self.stop(server)
        self.assertEqual(log.count('a message has text in "tone"'), 1, log)

    def test_keys(self):
        server = self.serve("--api-key", "one", "--api-key", "two", "--admin-api-key", "admin")
        for key, status in ((None, 401), ("tree", 401), ("one", 200), ("two", 200)):
            self.assertEqual(self.ask("GET", "/v1/models", key=key)[0], status, key)
        self.assertEqual(self.ask("GET", "/health")[0], 200)
        self.assertEqual([self.ask("GET", "/metrics", key=key)[0] for key in (None, "one", "admin")], [401, 403, 200])
        self.stop(server)
        server = self.serve("--api-key", "one", "--metrics-access", "open")
        self.assertEqual([self.ask("GET", path)[0] for path in ("/metrics", "/v1/models")], [200, 401])
        self.stop(server)

    def test_allowed_origins(self):
        page, other = "https://page.example", "http://localhost:5173"
        (self.folder / "serve.json").write_text(json.dumps({"allowed_origins": [page, other], "api_key": ["one"]}))

        def allowed(origin, method="GET", **headers):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.addCleanup(connection.close)
            connection.request(method, "/v1/models", headers={"Origin": origin, **headers})
            response = connection.getresponse()
            response.read()
            return response.status, response.getheader("Access-Control-Allow-Origin")

        preflight = {"Access-Control-Request-Method": "POST"}
        for arguments in (("--config", "serve.json"), ("--api-key", "one", "--allowed-origins", f"{page},{other}")):
            server = self.serve(*arguments)
            for origin in (page, other):
                self.assertEqual(allowed(origin, "OPTIONS", **preflight), (200, origin))
                self.assertEqual(allowed(origin), (401, origin))
                self.assertEqual(allowed(origin, Authorization="Bearer one"), (200, origin))
            self.assertEqual(allowed("https://elsewhere", "OPTIONS", **preflight), (403, None))
            self.stop(server)
        self.assert_refused("serve", "--model", "run", "--allowed-origins", "page.example", says=["page.example", "http"])

    def test_metrics_count_exactly(self):
        """As vLLM's own test of its metrics counts, under the names that dashboards read."""
        server = self.serve()
        requests, prompt, tokens = 5, 7, 11
        for i in range(requests):
            self.complete(prompt="o" * prompt, max_tokens=tokens, ignore_eos=True, cache_salt=f"s{i}")
        want = {"vllm:prompt_tokens_total": requests * prompt, "vllm:generation_tokens_total": requests * tokens,
                "vllm:prompt_tokens_cached_total": 0, "vllm:num_preemptions_total": 0,
                "vllm:prefix_cache_queries_total": requests * prompt, "vllm:prefix_cache_hits_total": 0,
                "vllm:time_to_first_token_seconds_count": requests,
                "vllm:inter_token_latency_seconds_count": requests * (tokens - 1),
                "vllm:request_time_per_output_token_seconds_count": requests,
                "vllm:e2e_request_latency_seconds_count": requests,
                "vllm:request_decode_time_seconds_count": requests,
                "vllm:request_prompt_tokens_sum": requests * prompt,
                "vllm:request_generation_tokens_sum": requests * tokens,
                "vllm:request_max_num_generation_tokens_sum": requests * tokens,
                "vllm:request_params_n_sum": requests, "vllm:request_params_max_tokens_sum": requests * tokens,
                "vllm:iteration_tokens_total_sum": requests * (prompt + tokens),
                "vllm:iteration_tokens_total_count": requests * tokens,
                "vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0, "vllm:kv_cache_usage_perc": 0}
        # A step is counted when it is over, which its answer may be before.
        self.wait_for(lambda: {name: self.metric(name) for name in want}, want)
        self.assertGreater(self.metric("vllm:estimated_flops_per_gpu_total"), requests * (prompt + tokens))
        _, text = self.ask("GET", "/metrics")
        for line in text.splitlines():
            self.assertTrue(line.startswith("#") or 'model_name="tiny"' in line, line)
        self.assertIn('vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 5', text)
        self.stop(server)

    def test_prompts_that_wait_are_bounded(self):
        server = self.serve("--max-waiting-tokens", 15)
        held = self.hold(8)
        fields = {"model": "tiny", "prompt": "o" * 15, "max_tokens": 1}
        waits = self.connect("POST", "/v1/completions", fields)
        # The held ones wait too, until a step has begun them.
        self.wait_for(lambda: (self.metric("vllm:num_requests_running"), self.metric("vllm:num_requests_waiting")), (8, 1))
        status, error = self.ask("POST", "/v1/completions", fields)
        self.assertEqual((status, error["error"]["code"]), (429, "queue_full"), error)
        self.assertIn("tokens waiting", error["error"]["message"])
        held.close()
        self.assertEqual(waits.getresponse().status, 200)
        self.stop(server)

    def test_who_goes_away_frees_what_he_had(self):
        server = self.serve()
        held = self.hold(4)
        connection, response = self.stream(prompt=PROMPT, max_tokens=LENGTH - 20, ignore_eos=True)
        next(self.events(response))
        self.assertEqual(self.metric("vllm:num_requests_running"), 5)
        response.close()
        connection.close()
        self.let_go(held)
        self.assertEqual(self.metric("vllm:kv_cache_usage_perc"), 0)
        self.wait_for(lambda: 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 5\n'
                      in self.ask("GET", "/metrics")[1])
        self.stop(server)

    def test_sigterm_lets_requests_end(self):
        server = self.serve()
        connection, response = self.stream(prompt=PROMPT, max_tokens=700, ignore_eos=True,
                                         stream_options={"include_usage": True})
        events = self.events(response)
        next(events)
        server.send_signal(signal.SIGTERM)
        *_, usage, last = events
        self.assertEqual((json.loads(usage)["usage"]["completion_tokens"], last), (700, "[DONE]"))
        connection.close()
        _, stderr = server.communicate(timeout=120)
        self.assertEqual(server.returncode, 0, stderr)

    def test_time_to_end_is_bounded(self):
        server = self.serve("--shutdown-timeout", 0)
        _, response = self.stream(prompt=PROMPT, max_tokens=LENGTH - 20, ignore_eos=True)
        events = self.events(response)
        next(events)
        server.send_signal(signal.SIGTERM)
        *_, last = events
        self.assertIn("error", json.loads(last))
        _, stderr = server.communicate(timeout=120)
        self.assertEqual(server.returncode, 0, stderr)

    def test_what_cannot_be_served_is_refused(self):
        for arguments, says in (
                (("--host", "0.0.0.0"), ["0.0.0.0", "API key"]), (("--host", "nowhere.invalid"), "nowhere.invalid"),
                (("--max-model-len", LENGTH + 1), [f"{LENGTH + 1}", f"{LENGTH} positions"]),
                (("--max-model-len", 512, "--kv-cache-memory-bytes", 4096), ["--max-model-len 512", "holds"]),
                (("--max-num-seqs", 9, "--max-num-batched-tokens", 8), ["--max-num-batched-tokens 8", "--max-num-seqs 9"]),
                (("--gpu-memory-utilization", 0.5, "--device", "cpu"),
                 ["--gpu-memory-utilization 0.5", "CPU", "--kv-cache-memory-bytes"]),
                (("--ssl-keyfile", "key.pem"), "--ssl-certfile"), (("--adapter", "nowhere"), "nowhere")):
            with self.subTest(arguments=arguments):
                self.assert_refused("serve", "--model", "run", "--port", 0, *arguments, says=says)
        self.assert_refused("serve", "--model", "nowhere", says="nowhere")

    def searched(self, prompt, width, length, penalty):
        """Beam search by a client that asks for one token after the other: the texts as ids, the best first."""
        end = 256
        beams, texts = [((), 0.0)], []
        for tokens in range(1, length + 1):
            longer = []
            for ids, total in beams:
                response = self.complete(prompt=[*prompt, *ids], max_tokens=1, logprobs=2 * width, return_tokens_as_token_ids=True)
                top = response["choices"][0]["logprobs"]["top_logprobs"][0]
                longer += [((*ids, int(name.removeprefix("token_id:"))), total + value) for name, value in top.items()]
            longer.sort(key=lambda beam: -beam[1])
            texts += [(total / tokens ** penalty, ids) for ids, total in longer[:width] if ids[-1] == end]
            beams = [beam for beam in longer if beam[0][-1] != end][:width]
            if tokens == length:
                texts += [(total / tokens ** penalty, ids) for ids, total in beams]
            texts = sorted(texts, reverse=True)[:width]
            if len(texts) == width and texts[-1][0] >= beams[0][1] / tokens ** penalty:
                break
        return texts

    def test_beams_are_those_of_a_search_by_hand(self):
        for layout in ((), ("--ranks", 2, "--tensor", 2)):
            server = self.serve("--deterministic", *layout)
            _, asked = self.ask("POST", "/tokenize", {"model": "tiny", "prompt": PROMPT})
            for width, length, penalty in ((1, 20, 1), (3, 12, 1), (4, 24, 0.2), (4, 10, 2)):
                with self.subTest(layout=layout, width=width, length=length, penalty=penalty):
                    response = self.complete(use_beam_search=True, n=width, max_tokens=length, length_penalty=penalty,
                                           logprobs=0, return_tokens_as_token_ids=True)
                    wanted = self.searched(asked["tokens"], width, length, penalty)
                    self.assertEqual(len(wanted), width)
                    for choice, (score, ids) in zip(response["choices"], wanted, strict=True):
                        got = choice["logprobs"]
                        self.assertEqual(got["tokens"], [f"token_id:{i}" for i in ids])
                        self.assertEqual(choice["finish_reason"], "stop" if ids[-1] == 256 else "length")
                        self.assertAlmostEqual(sum(got["token_logprobs"]) / len(ids) ** penalty, score, places=6)
            self.assertGreater(self.metric("vllm:prefix_cache_hits_total"), 0)
            self.stop(server)


if __name__ == "__main__":
    harness.main()
