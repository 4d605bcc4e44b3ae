"""Structured output and tool calls of `trireme serve`, of a model that knows nothing of either."""
import json
import threading
import time

import harness
import served_run
import tiny_run

TEMPLATE = """{% for t in tools or [] %}{{ t | tojson }} <tool_call>
{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}"""
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1,
                                                                                         "maximum": 7}},
    "required": ["city", "days"]}}}
NOW = {"type": "function", "function": {"name": "now"}}


class Structured(served_run.ServerTest):
    def ask_for(self, expect=200, **fields):
        status, response = self.ask("POST", "/v1/completions", {"model": "tiny", "prompt": served_run.PROMPT, "max_tokens": 300,
                                                              "temperature": 1, "seed": 5, **fields})
        self.assertEqual(status, expect, response)
        return response["choices"] if status == 200 else response["error"]

    def chat(self, **fields):
        body = {"model": "tiny", "messages": [{"role": "user", "content": "How is the sea?"}], "max_tokens": 300, "seed": 5,
                **fields}
        return self.ask("POST", "/v1/chat/completions", body)

    def test_texts_are_what_they_must_be(self):
        self.write("chat.jinja", TEMPLATE)
        server = self.serve("--chat-template", "chat.jinja")
        for one in self.ask_for(n=4, structured_outputs={"regex": r"[a-f]{2,5}-\d{3}"}):
            self.assertRegex(one["text"], r"\A[a-f]{2,5}-\d{3}\Z")
            self.assertEqual(one["finish_reason"], "stop")
        for one in self.ask_for(n=4, structured_outputs={"choice": ["oar", "ship"]}):
            self.assertIn(one["text"], ("oar", "ship"))
        schema = {"type": "object", "properties": {"rank": {"type": "integer", "minimum": 1, "maximum": 30},
                                                   "name": {"type": "string", "maxLength": 8}},
                  "required": ["rank", "name"], "additionalProperties": False}
        for one in self.ask_for(n=4, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}):
            value = json.loads(one["text"])
            self.assertEqual(list(value), ["rank", "name"])
            self.assertTrue(1 <= value["rank"] <= 30 and len(value["name"]) <= 8, value)
        self.check_tools()
        self.check_hostile()
        self.stop(server)

    def check_tools(self):
        for choice, name in (({"type": "function", "function": {"name": "now"}}, "now"), ("required", None)):
            status, response = self.chat(tools=[WEATHER, NOW], tool_choice=choice, parallel_tool_calls=False)
            self.assertEqual(status, 200, response)
            one = response["choices"][0]
            self.assertEqual(one["finish_reason"], "tool_calls")
            self.assertIsNone(one["message"]["content"])
            (call,) = one["message"]["tool_calls"]
            arguments = json.loads(call["function"]["arguments"])
            self.assertEqual(sorted(arguments), ["city", "days"] if call["function"]["name"] == "weather" else [])
            self.assertIn(call["function"]["name"], (name,) if name else ("weather", "now"))
            connection = self.connect("POST", "/v1/chat/completions", {
                "model": "tiny", "messages": [{"role": "user", "content": "How is the sea?"}], "max_tokens": 300, "seed": 5,
                "tools": [WEATHER, NOW], "tool_choice": choice, "parallel_tool_calls": False, "stream": True})
            *events, last = self.events(connection.getresponse())
            self.assertEqual(last, "[DONE]")
            deltas = [json.loads(event)["choices"][0] for event in events]
            self.assertEqual(deltas[-1]["finish_reason"], "tool_calls")
            parts = [part for d in deltas for part in d["delta"].get("tool_calls", [])]
            self.assertEqual(parts[0]["function"], {"name": call["function"]["name"], "arguments": ""})
            self.assertEqual("".join(p["function"]["arguments"] for p in parts), call["function"]["arguments"])

    def test_a_model_calls_by_itself(self):
        """Where calls are left to the model (auto) one that has learned nothing else calls, whatever it is asked."""
        said = '<tool_call>{"name":"now","arguments":{}}</tool_call>'
        self.write("said.jsonl", (json.dumps({"text": said}) + "\n") * 200)
        self.trireme("data", "prepare", "--input", "said.jsonl", "--output", "train", "--append-eod", "--overwrite")
        model = {**tiny_run.config()["model"], "max_position_embeddings": 256, "hidden_size": 64, "intermediate_size": 128}
        data = {"train_data_path": "train", "valid_data_path": "train", "tokenizer": "byte"}
        self.configure(output_dir="caller", sequence_length=64, train_steps=150, checkpoint={}, evaluation={"eval_iters": 0},
                       model=model, data=data)
        self.pretrain()
        (self.folder / "run").rename(self.folder / "other")
        (self.folder / "caller").rename(self.folder / "run")
        self.write("chat.jinja", "{{ '' if tools }}{% for m in messages %}{{ eos_token }}{% endfor %}")
        server = self.serve("--tool-call-parser", "hermes", "--chat-template", "chat.jinja")
        asked = {"temperature": 0, "max_tokens": 80, "tools": [WEATHER, NOW]}
        text, call = (self.chat(tool_choice=choice, **asked)[1]["choices"][0] for choice in ("none", "auto"))
        self.assertEqual((text["message"]["content"], text["finish_reason"]), (said, "stop"))
        self.assertEqual((call["message"]["content"], call["finish_reason"]), (None, "tool_calls"))
        (one,) = call["message"]["tool_calls"]
        self.assertEqual((one["type"], one["function"]), ("function", {"name": "now", "arguments": "{}"}))
        _, response = self.stream("/v1/chat/completions", messages=[{"role": "user", "content": "How is the sea?"}], **asked)
        *events, last = self.events(response)
        self.assertEqual(last, "[DONE]")
        deltas = [json.loads(event)["choices"][0] for event in events]
        self.assertEqual("".join(d["delta"].get("content") or "" for d in deltas), "")
        parts = [part for d in deltas for part in d["delta"].get("tool_calls", [])]
        self.assertEqual([part["index"] for part in parts], [0] * len(parts))
        self.assertEqual(parts[0]["function"], {"name": "now", "arguments": ""})
        self.assertEqual("".join(part["function"]["arguments"] for part in parts), "{}")
        self.assertEqual(deltas[-1]["finish_reason"], "tool_calls")
        self.stop(server)

    def check_hostile(self):
        """Drill 18: each is answered, in 2 seconds of work at most, and others are answered meanwhile."""
        deep, several = {"type": "integer"}, {}
        for bound in range(40):
            deep = {"oneOf": [deep, {"type": "null"}], "minimum": bound}
            several[f"a{bound}"] = {"oneOf": [{"$ref": f"#/$defs/a{bound + 1}", "minimum": 1},
                                              {"$ref": f"#/$defs/a{bound + 1}", "maximum": 9}]}
        several["a40"] = {"type": "integer"}
        asked, responded, spans = threading.Event(), [], []

        def others():
            while not asked.is_set():
                begin = time.monotonic()
                self.ask_for(max_tokens=2)
                responded.append((begin, time.monotonic()))

        thread = threading.Thread(target=others)
        thread.start()
        self.addCleanup(asked.set)
        for constraint in ({"regex": "foo**"}, {"regex": "(a+)+$"}, {"json": deep}, {"regex": "((a{900}){900}){900}"},
                           {"json": {"$ref": "#/$defs/a0", "$defs": several}}, {"json": {"$ref": "#"}},
                           {"json": {"enum": list(range(100000))}}, {"json": {"type": "array", "items": {"$ref": "#"}}}):
            begin = time.monotonic()
            status, response = self.ask("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 8,
                                                                  "structured_outputs": constraint})
            spans.append((begin, time.monotonic()))
            self.assertIn(status, (200, 400))
            if status == 400:  # without a field: the body is nested too deeply
                self.assertRegex(response["error"]["param"] or "structured_outputs", "^structured_outputs", response)
        asked.set()
        thread.join()
        # The machine may lie still for seconds; who had to wait for another's grammar would never begin and end within its time.
        self.assertLess(max(end - begin for begin, end in (*spans, *responded)), 20 * harness.PATIENCE)
        longest = max(end - begin for begin, end in spans)
        if longest > 0.5:  # long enough for another's request to begin and end within it
            self.assertTrue(any(begin < one and other < end for begin, end in spans if end - begin > longest / 2
                                for one, other in responded), (spans, responded))
        print(f"hostile grammars: at most {longest:.2f} s, others {max(end - begin for begin, end in responded):.2f} s")


if __name__ == "__main__":
    harness.main()
