"""A server on a tiny model, and how to ask it with the standard library's client."""
import http.client
import json
import random
import re
import shlex
import shutil
import signal
import tempfile
import time
from pathlib import Path

import harness
import tiny_run

PROMPT = "the oar of a"
LENGTH = 16384  # a text of it takes many times as long as this process may lie still
WORDS = "the oar of a ship with three ranks rowing as one over a quiet sea by night".split()


def prompts(count, seed):
    """Of 5 to about 150 tokens, many of which begin alike."""
    source = random.Random(seed)
    shared = " ".join(source.choice(WORDS) for _ in range(30))
    for number in range(count):
        words = " ".join(source.choice(WORDS) for _ in range(1 + number % 7))
        yield shared[:45 * (number % 4)] + words


def documented(section):
    """The commands under a heading of docs/guide/serving.md, each as its words."""
    page = (harness.SOURCE / "docs/guide/serving.md").read_text()
    text = re.search(rf"(?ms)^## {re.escape(section)}\n(.*?)^## ", page)[1]
    lines = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    ")).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in lines.splitlines()]


class ServerTest(tiny_run.RunTest):
    """Every test has a folder `run` of a model that was trained once."""
    model, train_steps = {**tiny_run.config()["model"], "max_position_embeddings": LENGTH}, 300

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trireme-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.trained = Path(folder.name) / "run"

    def setUp(self):
        if self.trained.exists():
            harness.CommandTest.setUp(self)
            shutil.copytree(self.trained, self.folder / "run")
            return
        super().setUp()
        self.configure(model=self.model, train_steps=self.train_steps, checkpoint={}, evaluation={"eval_iters": 0})
        self.pretrain()
        shutil.copytree(self.folder / "run", self.trained)

    def serve(self, *arguments, model="run", **options):
        """The process that was started; self.port is where the server listens. ranks=N: under mpirun."""
        server = self.start("serve", "--model", model, "--port", 0, "--served-model-name", "tiny", "--threads", 1,
                            "--max-num-seqs", 8, *arguments, **options)
        line = server.stdout.readline()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line)
        self.assertTrue(found, line + (server.stderr.read() if server.poll() is not None else ""))
        self.port = int(found[1])
        return server

    def connect(self, method, path, body=None, key=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(connection.close)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection

    def ask(self, method, path, body=None, key=None):
        connection = self.connect(method, path, body, key)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = response.headers["Content-Type"].startswith("application/json")
        return response.status, json.loads(text) if is_json else text

    def complete(self, **fields):
        status, response = self.ask("POST", "/v1/completions", {"model": "tiny", "prompt": PROMPT, "temperature": 0, **fields})
        self.assertEqual(status, 200, response)
        return response

    def stream(self, path="/v1/completions", **fields):
        """The connection and its answer, whose events() follow."""
        connection = self.connect("POST", path, {"model": "tiny", "temperature": 0, "stream": True, **fields})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        return connection, response

    def hold(self, texts=1, **fields):
        """The connection of a request whose texts are at no end before it is closed: so many run or wait from here on. Nothing
        is streamed, so that nothing piles up."""
        held = self.connect("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "n": texts, "max_tokens": LENGTH - 20,
                                                        "ignore_eos": True, **fields})
        self.wait_for(lambda: self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting"), texts)
        return held

    def let_go(self, held):
        held.close()
        self.wait_for(lambda: self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting"), 0)

    @staticmethod
    def events(response):
        for line in response:
            if line.startswith(b"data: "):
                yield line[6:].decode().rstrip("\n")

    def metric(self, name):
        _, text = self.ask("GET", "/metrics")
        values = re.findall(rf"(?m)^{re.escape(name)}\{{[^}}]*\}} (\S+)$", text)
        self.assertEqual(len(values), 1, f"{name} in\n{text}")
        return float(values[0])

    def wait_for(self, what, want=True, seconds=60 * harness.PATIENCE):
        """Until what() is as wanted, which it must be before long."""
        deadline = time.monotonic() + seconds
        while (found := what()) != want and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(found, want)

    def stop(self, server, expect=0):
        server.send_signal(signal.SIGTERM)
        _, stderr = server.communicate(timeout=120)
        self.assertEqual(server.returncode, expect, stderr)
        return stderr

    def shuts_down(self, port=None):
        """Whether the server (at that port) has taken a signal that ends it: until then a second one may be taken for it."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        try:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == 503
        except (OSError, http.client.HTTPException):
            return False  # the signal came between the connection and its request
        finally:
            connection.close()

    def finetune_adapter(self, name, response):
        self.write("chat.jinja", "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
        self.write(f"{name}.jsonl", "".join(json.dumps({"messages": [
            {"role": "user", "content": word}, {"role": "assistant", "content": response(word)}]}) + "\n"
            for word in tiny_run.WORDS * 4))
        self.write(f"{name}.json", json.dumps({
            "output_dir": name, "checkpoint": {"load": "run"}, "train_batch_size": 8, "sequence_length": 64,
            "finetune": {"train_file": f"{name}.jsonl", "chat_template": "chat.jinja", "num_train_epochs": 2,
                         "lora": {"rank": 4}},
            "optimizer": {"params": {"lr": 0.05}}, "data": {"tokenizer": "byte"}, "cpu": {"threads_per_rank": 1}}))
        self.trireme("finetune", "--config", f"{name}.json")
        return f"{name}/adapter"
