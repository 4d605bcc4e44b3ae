"""Drills 1 to 10: what is no HTTP, or more of it than a server should take."""
import json
import time
import unittest

import hostile_server
from hostile_server import GOOD, Reader, completion, request, reset

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


class Framing(hostile_server.HostileTest):
    arguments = ("--max-num-seqs", 32)

    def assert_refused_and_closed(self, data, *statuses):
        reader = self.send(data)
        response = reader.response()
        self.assertIn(response[0], statuses, data[:200])
        self.assertTrue(reader.ends())

    def test_01_sizes_of_chunks(self):
        for size in (b"-2", b"FFFFFFFFFFFFFFFF", b"7FFFFFFFFFFFFFFF", b"10000000000000000", b"", b" ", b"0x5", b"5 5",
                     b"G", b"+5"):
            with self.subTest(size=size):
                self.assert_refused_and_closed(CHUNKED + size + b"\r\nhello\r\n0\r\n\r\n", 400, 413)

    def test_02_chunks_of_a_byte(self):
        length = 200_000 if hostile_server.SANITIZED else 3_000_000
        body = json.dumps({**GOOD, "user": "u" * length}).encode()
        reader = self.send(CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        status, _, text = reader.response()
        self.assertEqual((status, json.loads(text)["choices"]), (200, self.golden))

    def test_03_bodies_without_an_end(self):
        body = json.dumps(GOOD).encode()
        for begin in (CHUNKED + b"%x\r\n%s\r\n" % (len(body), body), completion()[:-1]):
            reader = self.send(begin)
            reader.connection.shutdown(1)
            self.assertIsNone(reader.response())

    def test_04_two_lengths(self):
        for lines in (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                      b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                      b"Content-Length: 5\r\nContent-Length: 5\r\n", b"Content-Length: 5, 5\r\n",
                      b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"Content-Length: -1\r\n",
                      b"Transfer-Encoding: gzip, chunked\r\n", b"Content-Length: 18446744073709551616\r\n"):
            with self.subTest(lines=lines):
                self.assert_refused_and_closed(HEAD + lines + b"\r\n0\r\n\r\nGET /health HTTP/1.1\r\n\r\n", 400, 501, 413)

    def test_05_numbers_of_headers(self):
        def status(count):
            return self.ask(request("GET", "/health", None, *["X: y"] * (count - 1)))[0]
        self.assertEqual([status(100), status(101), status(10_000)], [200, 431, 431])

    def test_06_lengths_of_lines(self):
        def line(length):
            return self.ask(request("GET", "/" + "a" * (length - len("GET / HTTP/1.1"))))[0]
        self.assertEqual([line(8 << 10), line((8 << 10) + 1)], [404, 414])

        def header(length):
            return self.ask(request("GET", "/health", None, "X: " + "a" * (length - 3)))[0]
        self.assertEqual([header(8 << 10), header((8 << 10) + 1), header(1 << 20)], [200, 431, 431])

        def headers(total):  # beside Host: localhost
            left = total - len("Host: localhost")
            lines = []
            while left > 0:
                lines.append("X: " + "a" * (min(left, 8000) - 3))
                left -= len(lines[-1])
            return self.ask(request("GET", "/health", None, *lines))[0]
        self.assertEqual([headers(64 << 10), headers((64 << 10) + 1)], [200, 431])

        def body(length):
            empty = json.dumps({**GOOD, "user": ""})
            return self.post(json.dumps({**GOOD, "user": "u" * (length - len(empty))}).encode())[0]
        self.assertEqual([body(8 << 20), body((8 << 20) + 1)], [200, 413])

    def test_07_slow_connections(self):
        """2,000 that send a byte now and then hold up nobody, and are closed."""
        count = 2000
        slow = []
        for i in range(count):
            slow.append(self.connect(f"127.0.0.{2 + i % 5}"))
            slow[-1].sendall(b"GET /health HTTP/1.1\r\nX: ")
        began = time.monotonic()
        self.assertEqual(self.good(), self.golden)
        # Who served them one after the other would wait ten seconds for each.
        self.assertLess(time.monotonic() - began, 60)
        timed_out = 0
        for connection in slow:
            response = Reader(connection).response()
            timed_out += response is not None and response[0] == 408
        self.assertEqual(timed_out, count)
        self.assertLess(time.monotonic() - began, 60)
        self.assertTrue(self.wait_for(lambda: self.open_files() <= self.files))

    def test_07_connections_of_an_address(self):
        mine = [self.connect("127.0.0.9") for _ in range(512)]
        for connection in mine:  # who has asked for something may be silent for a minute
            connection.sendall(request("GET", "/health"))
            self.assertEqual(Reader(connection).response()[0], 200)
        reader = Reader(self.connect("127.0.0.9"))
        status, headers, _ = reader.response()
        self.assertEqual((status, headers["retry-after"]), (503, "1"))
        self.assertTrue(reader.ends())
        mine[0].sendall(request("GET", "/health"))
        self.assertEqual(Reader(mine[0]).response()[0], 200)
        self.assertEqual(self.good(), self.golden)  # of another address
        for connection in mine:
            connection.close()

    def test_08_a_client_that_reads_nothing(self):
        """Its tokens fill what may lie here for it: then nothing more is computed, and it is told."""
        before = self.metric("vllm:generation_tokens_total")
        connection = self.connect(receive_buffer=64 << 10)
        connection.sendall(completion(stream=True, n=16, max_tokens=1500, logprobs=20, ignore_eos=True, temperature=1))
        self.assertTrue(self.wait_for(lambda: self.metric("vllm:generation_tokens_total") > before))
        self.assertTrue(self.wait_for(lambda: self.metric("vllm:num_requests_running") == 0))
        self.assertLess(self.metric("vllm:generation_tokens_total"), before + 16 * 1500)
        _, _, body = Reader(connection).response()
        last = json.loads(body.decode().strip().split("data: ")[-1])
        self.assertEqual(last["error"]["code"], "client_too_slow")

    def test_09_resets_at_every_byte(self):
        data = completion(stream=True, max_tokens=200)
        for end in range(len(data) + 1):
            connection = self.connect()
            connection.sendall(data[:end])
            reset(connection)

    def test_10_a_hundred_requests_at_once(self):
        asked = [request("GET", "/health/live", None, f"X-Request-Id: r-{i}") if i % 4 else
                 request("POST", "/v1/completions", GOOD, f"X-Request-Id: r-{i}") for i in range(100)]
        reader = self.send(b"".join(asked))
        for i in range(100):
            status, headers, body = reader.response()
            self.assertEqual((status, headers["x-request-id"]), (200, f"r-{i}"))
            if i % 4 == 0:
                self.assertEqual(json.loads(body)["choices"], self.golden)


if __name__ == "__main__":
    unittest.main(verbosity=2)
