"""What the drills of this folder share: one tiny model, one server for each group of drills, raw sockets, and what must
hold after each drill.

The drills are the thirty that serving systems are known to fall over. 18 (grammars and schemas) is also in the tests of
structured output; 27 (ranks that stop or die) belongs to those of ranks; 29 (broken weights) is tests/e2e/test_bad_models.py
and the fuzzers of tests/fuzz. All others are here, and the limits that a server has, at their bound and one past it.

After each drill the process is alive, the next good request is answered as the first one was, nothing runs or holds
cache soon, and as many files are open as before. After the last one the memory is what it was, but for what
an allocator keeps."""
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness  # noqa: E402
import tiny_run  # noqa: E402
from harness import SANITIZED  # noqa: E402

LENGTH = 2048
HOLDING = 16384  # tokens of a text that is at no end before somebody ends it
VOCABULARY = 257
KEPT_BYTES = 96 << 20  # by an allocator, at most
GOOD = {"model": "tiny", "prompt": "the oar of a ship", "temperature": 0, "max_tokens": 24}


def request(method, path, body=None, *headers):
    """The bytes of a request; a body is JSON unless it is bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body is not None:
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def completion(**fields):
    return request("POST", "/v1/completions", {**GOOD, **fields})


def connect(port, source="127.0.0.1", receive_buffer=None):
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    if source != "127.0.0.1":
        connection.bind((source, 0))
    connection.settimeout(60)
    connection.connect(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Reader:
    """Answers from a socket, one after the other."""

    def __init__(self, connection):
        self.connection = connection
        self.bytes = b""

    def more(self):
        got = self.connection.recv(1 << 16)
        self.bytes += got
        return bool(got)

    def until(self, end):
        while end not in self.bytes:
            if not self.more():
                return None
        text, _, self.bytes = self.bytes.partition(end)
        return text

    def take(self, count):
        while len(self.bytes) < count:
            if not self.more():
                break
        out, self.bytes = self.bytes[:count], self.bytes[count:]
        return out

    def response(self):
        """(status, headers, body), or None where the server has closed."""
        try:
            head = self.until(b"\r\n\r\n")
        except ConnectionResetError:
            return None
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        if "content-length" in headers:
            return int(first.split()[1]), headers, self.take(int(headers["content-length"]))
        body = b""
        while (size := self.until(b"\r\n")) is not None and int(size, 16) > 0:
            body += self.take(int(size, 16) + 2)[:-2]
        return int(first.split()[1]), headers, body

    def ends(self):
        """Whether the server closes."""
        try:
            while self.more():
                pass
        except ConnectionResetError:
            pass
        return True


class HostileTest(harness.unittest.TestCase):
    """A group of drills on one server, started with `arguments`, on a model that differs from the tiny one by `model`."""
    arguments = ()
    model = {}
    key = admin_key = None
    kept = KEPT_BYTES

    @classmethod
    def setUpClass(cls):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        folder = tempfile.TemporaryDirectory(prefix="trireme-hostile-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.make_model()
        cls.server = cls.start_server(*cls.arguments)
        cls.addClassCleanup(cls.end)
        case = cls()
        case.good()
        cls.golden = case.good()
        case.wait_for_quiet()
        cls.files, cls.memory = case.open_files(), case.resident()

    @classmethod
    def make_model(cls):
        make_model(cls.folder, cls.model)

    @classmethod
    def start_server(cls, *arguments):
        command = [harness.TRIREME, "serve", "--model", "run", "--port", "0", "--served-model-name", "tiny",
                   "--threads", "1", *map(str, arguments)]
        with open(cls.folder / "log.txt", "ab") as log:
            cls.server = subprocess.Popen(command, cwd=cls.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=log, text=True, start_new_session=True)
        line = cls.server.stdout.readline()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line)
        assert found, f"{line!r}\n{cls.log()}"
        cls.port = int(found[1])
        return cls.server

    @classmethod
    def log(cls):
        return (cls.folder / "log.txt").read_text(errors="replace")[-3000:]

    @classmethod
    def end(cls):
        if cls.server.poll() is None:
            os.killpg(cls.server.pid, signal.SIGKILL)
        cls.server.wait()
        cls.server.stdout.close()

    def setUp(self):
        self.addCleanup(self.assert_well)  # when the connections of the drill are closed

    def assert_well(self):
        self.assertIsNone(self.server.poll(), self.log())
        self.assertEqual(self.good(), self.golden)
        self.wait_for_quiet()

    @classmethod
    def tearDownClass(cls):
        case = cls()
        if not SANITIZED and cls.server.poll() is None:
            # What was freed goes back within seconds (engine/core/heap_trim.h).
            case.wait_for(lambda: case.resident() < cls.memory + cls.kept)
            case.assertLess(case.resident(), cls.memory + cls.kept)

    # What is asked.

    def connect(self, source="127.0.0.1", receive_buffer=None):
        connection = connect(self.port, source, receive_buffer)
        self.addCleanup(connection.close)
        return connection

    def send(self, data):
        """Sends as much as the server takes; a reader of its answers."""
        connection = self.connect()
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return Reader(connection)

    def ask(self, data):
        """(status, body) of one request; what is no success is told in OpenAI's form, and no 5xx but declared ones."""
        reader = self.send(data)
        response = reader.response()
        reader.connection.close()
        self.assertIsNotNone(response, data[:300])
        status, headers, body = response
        if headers["content-type"].startswith("application/json"):
            body = json.loads(body)
        if status >= 400:
            self.assertEqual(set(body["error"]), {"message", "type", "param", "code"}, body)
            self.assertNotIn("exception", body["error"]["message"])
        if status >= 500:
            self.assertIn(status, (501, 503), body)
        return status, body

    def post(self, body, path="/v1/completions"):
        return self.ask(request("POST", path, body))

    def status(self, **fields):
        return self.ask(completion(**fields))[0]

    def hold(self, texts):
        """A reader of the answer to a request that is at no end before its connection is closed, or the server's end. Nothing is
        streamed: nothing piles up. So many texts run or wait from here on."""
        reader = self.send(completion(n=texts, max_tokens=HOLDING - 50, ignore_eos=True))
        self.assertTrue(self.wait_for(lambda: self.metric("vllm:num_requests_running") +
                                      self.metric("vllm:num_requests_waiting") == texts))
        return reader

    def shuts_down(self):
        """Whether the server has taken a signal that ends it: until then a second one may be taken for it."""
        response = self.send(request("GET", "/health/ready")).response()
        return response is not None and response[0] == 503

    # What must hold.

    def good(self):
        headers = [f"Authorization: Bearer {self.key}"] if self.key else []
        status, body = self.ask(request("POST", "/v1/completions", GOOD, *headers))
        self.assertEqual(status, 200, body)
        return body["choices"]

    def metric(self, name):
        key = self.admin_key or self.key
        headers = [f"Authorization: Bearer {key}"] if key else []
        _, text = self.ask(request("GET", "/metrics", None, *headers))
        value = re.search(rf"(?m)^{re.escape(name)}\{{[^}}]*\}} (\S+)$", text.decode())
        self.assertTrue(value, name)
        return float(value[1])

    def wait_for(self, condition, seconds=60):
        deadline = time.monotonic() + seconds * harness.PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def wait_for_quiet(self):
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        self.assertTrue(self.wait_for(lambda: all(self.metric(name) == 0 for name in names)),
                        {name: self.metric(name) for name in names})
        if hasattr(self, "files"):
            self.assertTrue(self.wait_for(lambda: self.open_files() <= self.files), self.open_files())

    def open_files(self):
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    def resident(self):
        pages = int(Path(f"/proc/{self.server.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.server.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reset(connection):
    """RST, whatever is under way."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def make_model(folder, changes):
    def run(*arguments):
        done = subprocess.run([harness.TRIREME, *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    for name, seed in (("train", 1), ("valid", 2)):
        (folder / f"{name}.txt").write_text(tiny_run.text(300, seed))
        run("data", "prepare", "--input", f"{name}.txt", "--output", name)
    model = {**tiny_run.config()["model"], "max_position_embeddings": LENGTH, **changes}
    config = tiny_run.config(model=model, train_steps=5 if changes else 20, checkpoint={}, evaluation={"eval_iters": 0})
    (folder / "run.json").write_text(json.dumps(config))
    run("pretrain", "--config", "run.json")
