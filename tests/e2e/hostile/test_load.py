"""Load: two thousand open streams, an idle server, and the host's share of a step. Speed means nothing where others work
on the machine, so the bounds here are loose and the figures are printed. An argument gives the number of streams."""
import json
import re
import selectors
import sys
import time
import unittest

import hostile_server
from hostile_server import Reader, completion, harness, request

STREAMS = 2000
HOST = "trireme:step_host_seconds"


@unittest.skipIf(hostile_server.SANITIZED, "sanitizers change what is measured")
class Load(hostile_server.HostileTest):
    arguments = ("--max-num-seqs", 512, "--max-model-len", 256, "--max-num-batched-tokens", 4096)

    def threads(self):
        return len(list(hostile_server.Path(f"/proc/{self.server.pid}/task").iterdir()))

    def buckets(self):
        """How many steps took no longer on the host, by seconds."""
        _, text = self.ask(request("GET", "/metrics"))
        found = re.findall(rf'(?m)^{HOST}_bucket\{{.*le="([^"]+)"\}} (\S+)$', text.decode())
        return {float(bound): float(count) for bound, count in found}

    def open_streams(self, count, **fields):
        poll = selectors.DefaultSelector()
        for i in range(count):
            connection = self.connect(f"127.0.0.{2 + i % 16}")
            connection.sendall(completion(stream=True, ignore_eos=True, **fields))
            connection.setblocking(False)
            poll.register(connection, selectors.EVENT_READ, bytearray())
        return poll

    @staticmethod
    def read(poll, end):
        """Reads what comes until `end` of all that is open says so, or all streams are at their end."""
        whole = []
        while poll.get_map() and not end():
            for key, _ in poll.select(1):
                got = key.fileobj.recv(1 << 16)
                key.data.extend(got)
                if not got or key.data.endswith(b"0\r\n\r\n"):
                    poll.unregister(key.fileobj)
                    whole.append(bytes(key.data))
        return whole

    def test_many_streams(self):
        before = self.threads()
        began = time.monotonic()
        poll = self.open_streams(STREAMS, max_tokens=24)
        opened = time.monotonic() - began
        self.assertEqual(self.threads(), before)
        with harness.Noise() as noise:
            asked = time.monotonic()
            self.assertEqual(self.ask(request("GET", "/health"))[0], 200)
            health = time.monotonic() - asked
        whole = self.read(poll, lambda: False)
        seconds = time.monotonic() - began
        self.assertEqual(len(whole), STREAMS)
        for response in whole:
            self.assertTrue(response.startswith(b"HTTP/1.1 200 "), response[:300])
            self.assertIn(b"data: [DONE]\n\n", response)
            events = re.findall(rb"data: (\{.*\})", response)
            text = "".join(json.loads(event)["choices"][0]["text"] for event in events)
            self.assertEqual(text, self.golden[0]["text"])
        print(f"{STREAMS} streams opened in {opened:.1f} s, done in {seconds:.1f} s, {before} threads, "
              f"/health {health * 1e3:.1f} ms")
        self.assertLess(health, 10 + 4 * noise.worst)

    def test_an_idle_server_rests(self):
        connections = [self.connect(f"127.0.0.{2 + i % 8}") for i in range(200)]
        for connection in connections:  # from its answer on each is idle
            connection.sendall(request("GET", "/health"))
            self.assertEqual(Reader(connection).response()[0], 200)
        began, used = time.monotonic(), self.cpu_seconds()
        time.sleep(4)
        share = (self.cpu_seconds() - used) / (time.monotonic() - began)
        print(f"idle with {len(connections)} connections: {share:.2%} of a core")
        self.assertLess(share, 0.01)

    def test_the_hosts_share_of_a_step(self):
        """With 256 sequences. That it is told, and how much it is."""
        before = self.buckets()
        whole = self.read(self.open_streams(2, n=128, max_tokens=230), lambda: False)
        self.assertEqual([response.count(b'"finish_reason":"length"') for response in whole], [128, 128])
        after = self.buckets()
        shares = {bound: (after[bound] - before[bound]) / (after[float("inf")] - before[float("inf")]) for bound in after}
        print("steps of 256 sequences by the host's time: " +
              ", ".join(f"{share:.0%} within {bound * 1e6:g} us" for bound, share in shares.items() if 0 < share < 1))
        self.assertGreater(shares[1e-2], 0.5)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[-1].isdigit():
        STREAMS = int(sys.argv.pop())
    unittest.main(verbosity=2)
