"""A server of OpenAI's streams in which every token comes when it is told to, and which keeps when it came."""
import http.server
import json
import threading
import time


class FakeServer:
    """token_times: seconds after a request's arrival at which its tokens are sent. Behind them the usage."""

    def __init__(self, token_times, status=200, usage=True, stalls_after=None):
        self.token_times, self.status, self.usage, self.stalls_after = token_times, status, usage, stalls_after
        self.requests, self.sent = [], []  # bodies; for each request its arrival and the times of its tokens
        self.headers = []
        self.ready = True  # None: has no /health/ready
        self.under_way = self.max_under_way = 0
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                if self.path == "/health/ready" and fake.ready is None:
                    self.response(404, {})
                    return
                if self.path == "/health/ready" and not fake.ready:
                    self.response(503, {})
                    return
                known = {"/v1/models": {"data": [{"id": "fake"}]}, "/health": {}, "/health/ready": {"status": "ready"}}
                self.response(200 if self.path in known else 404, known.get(self.path, {}))

            def do_POST(self):
                fake.post(self)

            def handle(self):
                try:
                    super().handle()
                except OSError:  # the client went away
                    pass

            def response(self, status, value):
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Listener(http.server.ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()

    def post(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        arrival = time.monotonic()
        times = [arrival]
        with self.lock:
            self.requests.append(body)
            self.headers.append(dict(handler.headers))
            self.sent.append(times)
            self.under_way += 1
            self.max_under_way = max(self.max_under_way, self.under_way)
        over = threading.Event()

        def end():
            """Before the last bytes are sent, behind which the client may come again at once."""
            with self.lock:
                self.under_way -= not over.is_set()
                over.set()
        try:
            if self.status != 200:
                end()
                handler.response(self.status, {"error": {"message": "the fake is full"}})
            else:
                self.stream(handler, body, times, end)
        finally:
            end()

    def stream(self, handler, body, times, end):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()

        def send(text):
            data = f"data: {text}\n\n".encode()
            handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            handler.wfile.flush()

        chat = "messages" in body
        if chat:
            send(json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        for i, after in enumerate(self.token_times):
            if self.stalls_after == i:
                self.stopping.wait()
                return
            time.sleep(max(0, times[0] + after - time.monotonic()))
            choice = {"delta": {"content": f" {i}"}} if chat else {"text": f" {i}"}
            reason = "length" if i + 1 == len(self.token_times) else None
            times.append(time.monotonic())
            send(json.dumps({"choices": [{"index": 0, **choice, "finish_reason": reason}]}))
        if self.usage:
            count = len(self.token_times)
            send(json.dumps({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": count}}))
        send("[DONE]")
        end()
        handler.wfile.write(b"0\r\n\r\n")
