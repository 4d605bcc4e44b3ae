"""`trireme serve` asked by OpenAI's own Python client, which `scripts/install_deps.sh test` installs where it can be had:
elsewhere this is skipped, with exit code 77; tests/e2e/test_serve.py asks the same server without it."""
import http.client
import importlib.util
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import harness
import served_run

if importlib.util.find_spec("openai") is None:
    environment = harness.SOURCE / "build/openai-client"
    python = environment / "bin/python"
    if python.exists() and sys.prefix != str(environment):
        os.execv(python, [str(python), "-B", *sys.argv])
    print("skipped: the Python package openai is not installed (scripts/install_deps.sh test)")
    sys.exit(77)

import openai  # noqa: E402
import pydantic  # noqa: E402

PROMPT = served_run.PROMPT


class Client(served_run.ServerTest):
    def client(self, **options):
        client = openai.OpenAI(**{"base_url": f"http://127.0.0.1:{self.port}/v1", "api_key": "none", **options})
        self.addCleanup(client.close)
        return client

    def serve(self, *arguments, **options):
        self.write("chat.jinja", "{{ '' if tools }}{% for m in messages %}{{ m.content }}{% endfor %}")
        return super().serve("--chat-template", "chat.jinja", *arguments, **options)

    def test_texts(self):
        server = self.serve()
        client = self.client()
        asked = {"model": "tiny", "temperature": 0, "max_tokens": 30}
        self.assertEqual([model.id for model in client.models.list()], ["tiny"])
        self.assertEqual(client.models.retrieve("tiny").id, "tiny")
        text = client.completions.create(prompt=PROMPT, **asked)
        want = self.complete(max_tokens=30)["choices"][0]["text"]
        self.assertEqual((text.choices[0].text, text.choices[0].finish_reason, text.usage.completion_tokens),
                         (want, "length", 30))
        pieces = list(client.completions.create(prompt=PROMPT, stream=True, stream_options={"include_usage": True},
                                                **asked))
        self.assertEqual("".join(c.choices[0].text for c in pieces if c.choices), want)
        self.assertEqual(pieces[-1].usage.completion_tokens, 30)
        messages = [{"role": "user", "content": PROMPT}]
        chat = client.chat.completions.create(messages=messages, logprobs=True, top_logprobs=3, **asked)
        self.assertEqual((chat.choices[0].message.role, chat.choices[0].message.content), ("assistant", want))
        content = chat.choices[0].logprobs.content
        self.assertEqual("".join(token.token for token in content), want)
        self.assertTrue(all(len(t.top_logprobs) == 3 and t.top_logprobs[0].logprob == t.logprob for t in content))
        pieces = list(client.chat.completions.create(messages=messages, stream=True, n=2, **asked))
        for index in range(2):
            said = [c.choices[0].delta.content or "" for c in pieces if c.choices[0].index == index]
            self.assertEqual("".join(said), want)
        stop = want[12:16]
        with client.chat.completions.stream(messages=messages, stop=stop, **asked) as stream:  # what adds events up
            stream.until_done()
            self.assertEqual(stream.get_final_completion().choices[0].message.content, want[:want.index(stop)])
        with_probabilities = client.completions.create(prompt=PROMPT, logprobs=2, **asked).choices[0].logprobs
        self.assertEqual("".join(with_probabilities.tokens), want)
        self.assertEqual(len(with_probabilities.top_logprobs), 30)
        self.stop(server)

    def test_structures(self):
        """Answers of a type, calls of tools, whole and streamed, and what a tool has said told back."""
        class Voyage(pydantic.BaseModel):
            rank: int = pydantic.Field(ge=1, le=30)
            name: str = pydantic.Field(max_length=8)

        class Weather(pydantic.BaseModel):
            city: str = pydantic.Field(max_length=12)
            days: int = pydantic.Field(ge=1, le=7)
        server = self.serve("--tool-call-parser", "hermes")
        chats = self.client().chat.completions
        messages = [{"role": "user", "content": PROMPT}]
        asked = {"model": "tiny", "messages": messages, "max_tokens": 200, "seed": 3}
        voyage = chats.parse(response_format=Voyage, **asked).choices[0].message.parsed
        self.assertTrue(1 <= voyage.rank <= 30 and len(voyage.name) <= 8, voyage)
        tools = [openai.pydantic_function_tool(Weather, name="weather")]
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            whole = chats.parse(tools=tools, tool_choice=choice, parallel_tool_calls=False, **asked).choices[0]
            (call,) = whole.message.tool_calls
            self.assertEqual((whole.finish_reason, call.function.name), ("tool_calls", "weather"))
            self.assertTrue(1 <= call.function.parsed_arguments.days <= 7)
            with chats.stream(tools=tools, tool_choice=choice, parallel_tool_calls=False, **asked) as stream:
                kinds = {event.type for event in stream}
                (same,) = stream.get_final_completion().choices[0].message.tool_calls
            self.assertIn("tool_calls.function.arguments.delta", kinds)
            self.assertEqual(same.function.arguments, call.function.arguments)
        conversation = [*messages, whole.message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "calm"}]
        after = chats.create(**{**asked, "messages": conversation, "max_tokens": 5, "tools": tools})
        self.assertIn(after.choices[0].finish_reason, ("length", "stop"))
        # Left to itself the model calls nothing: its text is the content.
        free = chats.create(tools=tools, temperature=0, **{**asked, "max_tokens": 30}).choices[0].message
        self.assertEqual((free.tool_calls, free.content), (None, self.complete(max_tokens=30)["choices"][0]["text"]))
        self.stop(server)

    def test_embeddings(self):
        server = self.serve()
        client = self.client()
        packed = client.embeddings.create(model="tiny", input=["a ship", "the oar"])  # the client asks for base64
        plain = client.embeddings.create(model="tiny", input=["a ship", "the oar"], encoding_format="float")
        self.assertEqual([e.index for e in packed.data], [0, 1])
        for one, other in zip(packed.data, plain.data, strict=True):
            self.assertAlmostEqual(sum(x * x for x in one.embedding), 1, places=4)
            for x, y in zip(one.embedding, other.embedding, strict=True):
                self.assertAlmostEqual(x, y, places=6)
        self.stop(server)

    def test_errors(self):
        server = self.serve("--api-key", "right")
        client = self.client(api_key="right")

        def error(kind, **fields):
            with self.assertRaises(kind) as caught:
                client.completions.create(**{"model": "tiny", "prompt": "a", **fields})
            return caught.exception
        refused = error(openai.BadRequestError, n=129)
        self.assertEqual((refused.param, refused.code, refused.type), ("n", "invalid_value", "invalid_request_error"))
        self.assertEqual(error(openai.NotFoundError, model="other").code, "model_not_found")
        self.assertEqual(error(openai.BadRequestError, max_tokens=served_run.LENGTH).code, "context_length_exceeded")
        with self.assertRaises(openai.AuthenticationError):
            self.client(api_key="wrong").models.list()
        # Who leaves a stream has it cancelled.
        stream = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=served_run.LENGTH - 50, stream=True,
                                           extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.stop(server)

    def test_an_error_of_a_stream(self):
        """What has begun with 200 cannot end with another status: an event says so, and the client raises."""
        server = self.serve()
        # Its text takes many seconds, and is less than what may lie between the two, however slowly the client reads.
        stream = self.client().completions.create(model="tiny", prompt=PROMPT, max_tokens=served_run.LENGTH - 50, stream=True,
                                                  extra_body={"ignore_eos": True})
        pieces = iter(stream)
        next(pieces)
        server.send_signal(signal.SIGTERM)
        self.wait_for(self.shuts_down)  # two signals at once may be taken for one
        server.send_signal(signal.SIGTERM)  # the second one does not wait for who is under way
        with self.assertRaises(openai.APIError) as caught:
            for _ in pieces:
                pass
        self.assertEqual(caught.exception.code, "engine_failure")
        server.communicate(timeout=120)

    def proxied(self, ask):
        """A client whose requests are answered by ask(path, body, number), and the statuses that it has had."""
        responses = []

        class Proxy(BaseHTTPRequestHandler):
            def do_POST(handler):  # noqa: N805
                body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                got = ask(handler.path, body, len(responses))
                text = got.read()
                responses.append(got.status)
                handler.send_response(got.status)
                for name in ("Content-Type", "Retry-After", "retry-after-ms", "x-should-retry"):
                    if got.headers[name]:
                        handler.send_header(name, got.headers[name])
                handler.send_header("Content-Length", str(len(text)))
                handler.end_headers()
                handler.wfile.write(text)

            def log_message(self, *_):
                pass
        proxy = HTTPServer(("127.0.0.1", 0), Proxy)
        self.addCleanup(proxy.server_close)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        self.addCleanup(proxy.shutdown)
        return self.client(base_url=f"http://127.0.0.1:{proxy.server_port}/v1"), responses

    def test_retries(self):
        """A refusal for want of room is asked again, when the server says; one that cannot get better is not."""
        server = self.serve()

        def ask(path, body, number):
            """The first two find the server full."""
            held = self.hold(40) if number < 2 else None
            got = self.connect("POST", path, body).getresponse()
            if held:
                self.let_go(held)
            return got
        client, responses = self.proxied(ask)
        text = client.completions.create(model="tiny", prompt=PROMPT, temperature=0, max_tokens=5)
        self.assertEqual((responses, text.usage.completion_tokens), ([429, 429, 200], 5))
        with self.assertRaises(openai.BadRequestError):
            client.completions.create(model="tiny", prompt=PROMPT, n=100)
        self.assertEqual(responses[3:], [400])
        with self.assertRaises(openai.InternalServerError):  # 500 and above, with x-should-retry: false
            client.completions.create(model="tiny", prompt=PROMPT, suffix="not here")
        self.assertEqual(responses[4:], [501])
        self.stop(server)

    def test_retries_elsewhere(self):
        """Who meets a server that is ending asks again, and is answered by the one in its place."""
        first = self.serve()
        late = self.connect("GET", "/health")
        late.getresponse().read()
        held = self.hold()
        port = self.port
        second = self.serve()

        def ask(path, body, number):
            if number > 0:
                return self.connect("POST", path, body).getresponse()
            text = json.dumps(body).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            late.sock.sendall(head.encode())
            self.wait_for(lambda: harness.has_read(late.sock))  # or it would be let go as idle
            first.send_signal(signal.SIGTERM)
            self.wait_for(lambda: self.shuts_down(port))
            late.sock.sendall(f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
            got = http.client.HTTPResponse(late.sock)
            got.begin()
            return got
        client, responses = self.proxied(ask)
        text = client.completions.create(model="tiny", prompt=PROMPT, temperature=0, max_tokens=5)
        self.assertEqual((responses, text.usage.completion_tokens), ([503, 200], 5))
        held.close()
        self.stop(second)
        first.communicate(timeout=120)


if __name__ == "__main__":
    harness.main()
