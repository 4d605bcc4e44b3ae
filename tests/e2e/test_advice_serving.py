"""Ways out of a server's errors, followed: what it is started with, and what it is asked."""
import contextlib
import http.client
import http.server
import json
import socket
import threading

import harness
import served_run

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
TALK = {"messages": [{"role": "user", "content": "the oar"}], "max_tokens": 2}
TEXT = {"prompt": "the oar", "max_tokens": 2}
STRING = {"type": "string"}
PATTERN = {"type": "string", "pattern": "^(a|b)*a(a|b){9}$", "minLength": 99}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# Name: what a request is refused for, the advice, and requests that follow it: each a path and a body.
REQUESTS = {
    "echo_of_a_chat": ((CHAT, {**TALK, "echo": True}), "use /v1/completions", (COMPLETIONS, {**TEXT, "echo": True})),
    "functions": ((CHAT, {**TALK, "functions": [TOOL["function"]]}), "use tools", (CHAT, {**TALK, "tools": [TOOL]})),
    "function_call": ((CHAT, {**TALK, "tools": [TOOL], "function_call": {"name": "f"}}), "use tool_choice",
                      (CHAT, {**TALK, "tools": [TOOL], "tool_choice": "none"})),
    "tools_of_a_completion": ((COMPLETIONS, {**TEXT, "tools": [TOOL]}), "use /v1/chat/completions",
                              (CHAT, {**TALK, "tools": [TOOL], "tool_choice": "none"})),
    "empty_tools": ((CHAT, {**TALK, "tools": []}), "tools must not be empty; leave it out instead", (CHAT, TALK)),
    "unknown_constraint": ((COMPLETIONS, {**TEXT, "output_constraint": "a|b"}), "use response_format or structured_outputs",
                           (COMPLETIONS, {**TEXT, "structured_outputs": {"regex": "a|b"}}),
                           (COMPLETIONS, {**TEXT, "response_format": {"type": "json_object"}})),
    "repetition_of_a_repetition": ((COMPLETIONS, {**TEXT, "structured_outputs": {"regex": "a{2}{3}"}}),
                                   "put the inner one into parentheses",
                                   (COMPLETIONS, {**TEXT, "structured_outputs": {"regex": "(a{2}){3}"}})),
    "repetition_from_nothing": ((COMPLETIONS, {**TEXT, "structured_outputs": {"regex": "a{,3}"}}), "write {0,n}",
                                (COMPLETIONS, {**TEXT, "structured_outputs": {"regex": "a{0,3}"}})),
    "class_with_a_name": ((COMPLETIONS, {**TEXT, "structured_outputs": {"regex": "[[:digit:]]"}}), "write its characters",
                          (COMPLETIONS, {**TEXT, "structured_outputs": {"regex": "[0-9]"}})),
    "left_recursion": ((COMPLETIONS, {**TEXT, "structured_outputs": {"grammar": 'root ::= root "a" | "a"'}}),
                       "write it with repetition instead",
                       (COMPLETIONS, {**TEXT, "structured_outputs": {"grammar": 'root ::= "a"+'}})),
    "two_of_one": ((COMPLETIONS, {**TEXT, "structured_outputs": {"json": {"oneOf": [STRING, {**STRING, "maxLength": 3}]}}}),
                   "give them different types or values, or a required property with a different const in each, "
                   "or use anyOf",
                   *((COMPLETIONS, {**TEXT, "structured_outputs": {"json": schema}}) for schema in (
                       {"anyOf": [STRING, {**STRING, "maxLength": 3}]}, {"oneOf": [STRING, {"type": "integer"}]},
                       {"oneOf": [{"enum": ["a"]}, {"enum": ["b", "c"]}]},
                       {"oneOf": [{"type": "object", "required": ["k"], "properties": {"k": {"const": value}}}
                                  for value in ("a", "b")]}))),
    "too_many_states": ((COMPLETIONS, {**TEXT, "structured_outputs": {"json": PATTERN}}), "states: make it simpler",
                        (COMPLETIONS, {**TEXT, "structured_outputs": {"json": {**PATTERN, "minLength": 0}}})),
    "adapter_in_its_place": (("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "adapter", "load_inplace": True}),
                             "unload the adapter first", ("/v1/unload_lora_adapter", {"lora_name": "a"}),
                             ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "adapter"})),
}


class Serving(served_run.ServerTest):
    key = {}

    def raw(self, path, body, **headers):
        """The status and the text of a request with headers of its own."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", path, json.dumps({"model": "tiny", **body}),
                               {"Content-Type": "application/json", **self.key, **headers})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def follow(self, refused, advice, *followed):
        status, text = self.raw(*refused)
        self.assertGreaterEqual(status, 400, text)
        self.assertIn(advice, json.loads(text)["error"]["message"])
        for other in followed:
            status, text = self.raw(*other)
            self.assertEqual(status, 200, text)

    def test_requests(self):
        adapter = self.finetune_adapter("tuned", lambda word: word[::-1])
        (self.folder / adapter).rename(self.folder / "adapter")
        self.write("chat.jinja", TEMPLATE)
        server = self.serve("--chat-template", "chat.jinja", "--max-loras", 2, "--lora-modules", "a=adapter",
                            "--tool-call-parser", "hermes", "--admin-api-key", "admin")
        self.key = {"Authorization": "Bearer admin"}
        for name, (refused, advice, *followed) in REQUESTS.items():
            with self.subTest(name):
                self.follow(refused, advice, *followed)
        status, text = self.raw(COMPLETIONS, TEXT, **{"Content-Encoding": "gzip"})
        self.assertEqual((status, "is not supported: send the body uncompressed" in text), (415, True), text)
        self.assertEqual(self.raw(COMPLETIONS, TEXT)[0], 200)
        self.stop(server)

    def test_keys_for_another_name(self):
        """Both ways out of a request that names another host."""
        server = self.serve()
        status, text = self.raw(COMPLETIONS, TEXT, Host="elsewhere")
        self.assertEqual((status, "give it keys, or use http://localhost" in text), (403, True), text)
        self.assertEqual(self.raw(COMPLETIONS, TEXT, Host="localhost")[0], 200)
        self.stop(server)
        server = self.serve("--api-key", "one")
        self.assertEqual(self.raw(COMPLETIONS, TEXT, Host="elsewhere", Authorization="Bearer one")[0], 200)
        self.stop(server)

    def test_weights_that_have_adapters(self):
        """As the next weights of a server that has adapters of its own."""
        adapter = self.finetune_adapter("tuned", lambda word: word[::-1])
        server = self.serve("--lora-modules", f"a={adapter}", "--admin-api-key", "admin")
        self.key = {"Authorization": "Bearer admin"}
        self.trireme("checkpoint", "merge-lora", "run", "tuned", "merged")
        status, text = self.raw("/admin/weights", {"model": "tuned"})
        self.assertEqual((status, "has adapters; merge them into a model first" in text), (400, True), text)
        self.assertEqual(self.raw("/admin/weights", {"model": "merged"})[0], 200)
        self.stop(server)

    def test_chats_of_a_model_without_a_template(self):
        server = self.serve()
        self.follow((CHAT, TALK), "use /v1/completions", (COMPLETIONS, TEXT))
        self.stop(server)

    def starts(self, *arguments, model="run", port=0):
        """A server that listens, and ends when it is told to."""
        server = self.start("serve", "--model", model, "--port", port, "--threads", 1, *arguments)
        self.assertRegex(server.stdout.readline(), "listening on ")
        self.stop(server)

    def refused(self, advice, *arguments, port=0):
        _, stderr = self.trireme("serve", "--model", "run", "--port", port, *arguments, expect=2)
        self.assertIn(advice, stderr)

    def test_adapters(self):
        adapter = self.finetune_adapter("tuned", lambda word: word[::-1])
        both = "cannot be combined: give all as --lora-modules"
        self.refused(both, "--adapter", adapter, "--lora-modules", f"b={adapter}")
        self.refused(both, "--adapter", adapter, "--max-loras", 1)
        self.starts("--lora-modules", f"a={adapter}", f"b={adapter}", "--max-loras", 2)

    def test_adapters_beside_others(self):
        self.write("tune.jsonl", '{"prompt": "the oar", "completion": " of a ship"}\n')
        self.write("dora.json", json.dumps({
            "output_dir": "dora", "checkpoint": {"load": "run"}, "train_batch_size": 1, "sequence_length": 32,
            "train_steps": 2, "finetune": {"train_file": "tune.jsonl", "lora": {"rank": 4, "use_dora": True}},
            "data": {"tokenizer": "byte"}, "cpu": {"threads_per_rank": 1}}))
        self.trireme("finetune", "--config", "dora.json")
        self.refused("with other adapters; serve it alone with --adapter, or merge it into a model (trireme checkpoint merge-lora)",
                     "--lora-modules", "a=dora/adapter")
        self.starts("--adapter", "dora/adapter")
        self.trireme("checkpoint", "merge-lora", "run", "dora/adapter", "merged")
        self.starts("--tokenizer", "byte", model="merged")

    def test_sizes(self):
        replicas = ("--data-parallel-size", 2)
        self.refused("give a multiple, or leave --ranks out", *replicas, "--ranks", 3)
        self.starts(*replicas, "--ranks", 2)
        self.starts(*replicas)
        self.refused("start that many, or divide it further (trireme serve --data-parallel-size N holds N copies)", "--ranks", 2)
        self.starts()
        self.starts("--ranks", 2, "--tensor", 2)
        self.refused("give at least as many", "--kv-cache-memory-bytes", 16)
        _, stderr = self.trireme("serve", "--model", "run", "--kv-cache-memory-bytes", 16, expect=2)
        least = int(stderr.split(" tokens need ")[1].split(" bytes")[0])
        self.starts("--kv-cache-memory-bytes", least)
        self.refused("tokens; raise --kv-cache-memory-bytes", "--max-model-len", 512, "--kv-cache-memory-bytes", least)
        self.starts("--max-model-len", 512, "--kv-cache-memory-bytes", 512 * least)

    def test_an_address_for_ranks(self):
        two = ("--ranks", 2, "--tensor", 2, "--launcher", "mpirun", "--rank-address")
        self.refused("; name an address of this machine that the others reach", *two, "203.0.113.1")
        self.starts(*two, "127.0.0.1")

    def test_a_server_without_a_model(self):
        """As its list of models says; a name that is given is not looked up."""
        class Fake(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "12")
                self.end_headers()
                self.wfile.write(b'{"data": []}')

            def log_message(self, *_):
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Fake) as fake:
            threading.Thread(target=fake.serve_forever, daemon=True).start()
            bench = ["bench", "serve", "--num-prompts", 2, "--output-len", 2, "--base-url"]
            _, stderr = self.trireme(*bench, f"http://127.0.0.1:{fake.server_address[1]}", expect=1)
            fake.shutdown()
        self.assertIn("/v1/models lists no model: give --model", stderr)
        server = self.serve()
        self.trireme(*bench, f"http://127.0.0.1:{self.port}", "--model", "tiny")
        self.stop(server)

    def test_a_route_that_is_not_relayed(self):
        adapter = self.finetune_adapter("tuned", lambda word: word[::-1])
        server = self.serve("--max-loras", 1, "--admin-api-key", "admin")
        self.key = {"Authorization": "Bearer admin"}
        behind = self.port
        router = self.start("route", "--port", 0, "--server", f"http://127.0.0.1:{behind}")
        self.port = int(router.stdout.readline().rsplit(":", 1)[1])
        self.wait_for(lambda: self.ask("GET", "/health/ready")[0], 200)
        load = ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": adapter})
        status, text = self.raw(*load)
        self.assertEqual((status, "is not relayed: send it to each server directly" in text), (404, True), text)
        self.stop(router)
        self.port = behind
        self.assertEqual(self.raw(*load)[0], 200)
        self.stop(server)

    def test_experts_of_a_layout(self):
        self.refused("the model has no experts to divide; use 1", "--expert-parallel-size", 2, "--tensor", 2, "--ranks", 2)
        self.starts("--expert-parallel-size", 1, "--tensor", 2, "--ranks", 2)

    def test_addresses(self):
        self.refused("is not an address: give one of this machine, such as 127.0.0.1 or 0.0.0.0", "--host", "nowhere.invalid")
        self.starts("--host", "127.0.0.1")
        open_to_all = "give one (--api-key-file), or listen on 127.0.0.1, or allow all clients (--insecure)"
        self.refused(open_to_all, "--host", "0.0.0.0")
        keys = self.write("keys", "a-key-that-is-long-enough\n")
        keys.chmod(0o600)
        for way_out in (("--api-key-file", keys), ("--insecure",)):
            self.starts("--host", "0.0.0.0", *way_out)
        with socket.create_server(("127.0.0.1", 0)) as other:
            self.refused("give another --port, or 0 for one that is free", port=other.getsockname()[1])
        self.starts(port=0)


if __name__ == "__main__":
    harness.main()
