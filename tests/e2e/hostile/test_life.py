"""Drills 25, 26 and 28: storms of clients that leave, more requests than a server can do, and its end. An argument
gives the seconds of the overload, 60 for the whole drill."""
import json
import resource
import selectors
import signal
import sys
import threading
import time
import unittest

import hostile_server
from hostile_server import GOOD, SANITIZED, Reader, completion, reset

OVERLOAD_SECONDS = 6.0
SEQUENCES = 8


class Life(hostile_server.HostileTest):
    arguments = ("--max-num-seqs", SEQUENCES)

    def test_25_two_thousand_who_leave(self):
        """In about a second, stream and not, wherever their requests are by then."""
        requests = [completion(stream=stream, max_tokens=1000, ignore_eos=True) for stream in (False, True)]
        began = time.monotonic()
        left = []
        for i in range(2000):
            connection = self.connect(f"127.0.0.{2 + i % 8}")
            connection.sendall(requests[i % 2])
            left.append(connection)
            if len(left) > 100:
                leaving = left.pop(0)
                reset(leaving) if i % 3 else leaving.close()
        for connection in left:
            connection.close()
        print(f"2000 requests and cancels in {time.monotonic() - began:.1f} s")
        self.wait_for_quiet()

    def test_26_overload(self):
        """Twenty times as many clients as there are places, each asking again at once. Who is taken gets the text, who
        is not hears so soon and when to come again, and the memory does not grow."""
        clients = 20 * 5 * SEQUENCES
        counts, waits = {}, []
        poll = selectors.DefaultSelector()

        def ask(connection):
            connection.sendall(completion())
            poll.modify(connection, selectors.EVENT_READ, [Reader(connection), time.monotonic()])
        for i in range(clients):
            connection = self.connect(f"127.0.0.{2 + i % 8}")
            poll.register(connection, selectors.EVENT_READ, None)
            ask(connection)
        end = time.monotonic() + OVERLOAD_SECONDS
        before = None
        while time.monotonic() < end:
            if before is None and time.monotonic() > end - OVERLOAD_SECONDS / 2:
                before = self.resident()
            for key, _ in poll.select(1):
                reader, began = key.data
                status, headers, body = reader.answer()
                counts[status] = counts.get(status, 0) + 1
                body = json.loads(body)
                if status == 200:
                    self.assertEqual(body["choices"], self.golden)
                else:
                    self.assertIn(status, (429, 503), body)
                    self.assertIn("retry-after-ms", headers)
                    waits.append(time.monotonic() - began)
                ask(key.fileobj)
        after = self.resident()
        for key in list(poll.get_map().values()):
            key.fileobj.close()
        waits.sort()
        print(f"{clients} clients, {OVERLOAD_SECONDS:g} s: {counts}; refused in {waits[len(waits) // 2] * 1e3:.1f} ms (median), "
              f"{waits[len(waits) * 99 // 100] * 1e3:.1f} ms (99 of 100)")
        self.assertGreater(counts.get(200, 0), 0)
        self.assertGreater(len(waits), 0)
        if not SANITIZED:
            self.assertLess(after, before + (16 << 20))

    def test_26_bounds_of_the_queue(self):
        """As many as run and wait, and one more."""
        places = 5 * SEQUENCES
        self.assertEqual(self.status(n=places, max_tokens=1), 200)
        self.assertEqual(self.status(n=places + 1, max_tokens=1), 400)  # would never have a place
        self.wait_for_quiet()
        held = self.connect()
        held.sendall(completion(n=places, max_tokens=1500, ignore_eos=True, stream=True))
        self.assertTrue(self.wait_for(lambda: self.metric("vllm:num_requests_running") == SEQUENCES))
        self.assertEqual(self.metric("vllm:num_requests_waiting"), 4 * SEQUENCES)
        self.assertEqual(self.status(max_tokens=1), 429)
        self.assertEqual(self.ask(hostile_server.request("GET", "/health/ready"))[0], 200)
        reset(held)
        self.wait_for_quiet()  # its places are free again a moment later


class End(hostile_server.HostileTest):
    """Its server ends with each test."""
    arguments = ("--max-num-seqs", 64)

    def assert_well(self):
        self.assertEqual(self.server.returncode, 0, self.log())

    def setUp(self):
        super().setUp()
        if self.server.poll() is not None:
            self.server.stdout.close()
            self.start_server(*self.arguments)
        self.streams = []
        for i in range(64):
            connection = self.connect(f"127.0.0.{2 + i % 8}")
            connection.sendall(completion(stream=True, max_tokens=600, ignore_eos=True))
            self.streams.append(Reader(connection))
        for stream in self.streams:
            self.assertIsNotNone(stream.until(b"data: "))
        self.idle = Reader(self.connect())
        self.idle.connection.sendall(hostile_server.request("GET", "/health"))
        self.assertEqual(self.idle.answer()[0], 200)

    def ends(self):
        """The last event of each stream."""
        out = []
        for stream in self.streams:
            stream.ends()
            out.append(stream.bytes.decode().replace("\r\n", "\n").rstrip("0\n").split("data: ")[-1].split("\n")[0])
        return out

    def test_28_one_signal(self):
        """Who is being answered is answered to the end, who asks now hears 503, and who is idle is let go at once."""
        late = Reader(self.connect())
        late.connection.sendall(completion()[:50])
        self.assertTrue(self.wait_for(lambda: self.metric("vllm:num_requests_running") == 64))
        self.server.send_signal(signal.SIGTERM)
        began = time.monotonic()
        self.assertTrue(self.idle.ends())
        self.assertLess(time.monotonic() - began, 2)
        late.connection.sendall(completion()[50:])
        status, headers, body = late.answer()
        self.assertEqual((status, json.loads(body)["error"]["code"], headers["connection"]),
                         (503, "shutting_down", "close"))
        self.assertEqual(set(self.ends()), {"[DONE]"})
        self.server.wait(60)

    def test_28_two_signals(self):
        for _ in range(2):
            self.server.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        for last in self.ends():
            if last != "[DONE]":
                self.assertEqual(json.loads(last)["error"]["code"], "engine_failure")
        self.server.wait(20)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[-1].isdigit():
        OVERLOAD_SECONDS = float(sys.argv.pop())
    unittest.main(verbosity=2)
