"""Drill 30: who has no key, a wrong one, or a user's where an admin's is asked for."""
import json
import os
import threading
import time
import unittest

import hostile_server
from hostile_server import GOOD, Reader, request

GUESSES = 2_400 if hostile_server.SANITIZED else 20_000


def bearer(key):
    return f"Authorization: Bearer {key}"


class Access(hostile_server.HostileTest):
    arguments = ("--api-key-file", "keys", "--admin-api-key-file", "admin-keys", "--max-num-seqs", 8)
    key, admin_key = "user one", "admin"

    @classmethod
    def start_server(cls, *arguments):
        (cls.folder / "keys").write_text("# users\nuser one\n\nuser-two\n")
        os.chmod(cls.folder / "keys", 0o644)
        (cls.folder / "admin-keys").write_text("admin\n")
        os.chmod(cls.folder / "admin-keys", 0o600)
        return super().start_server(*arguments)

    def test_30_a_file_that_everyone_may_read(self):
        log = (self.folder / "log.txt").read_text()
        self.assertIn("every user of this machine can read the API keys in keys", log)
        self.assertNotIn("admin-keys:", log)

    def test_30_guesses(self):
        """As fast as they can be sent, on eight connections; a user is served meanwhile."""
        statuses = []

        def guess(number):
            connection = self.connect(f"127.0.0.{2 + number}")
            reader = Reader(connection)
            for i in range(0, GUESSES // 8, 100):
                connection.sendall(b"".join(request("GET", "/v1/models", None, bearer(f"user-{number}-{i + k}"))
                                            for k in range(100)))
                statuses.extend(reader.response()[0] for _ in range(100))
        threads = [threading.Thread(target=guess, args=(i,)) for i in range(8)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        self.assertEqual(self.good(), self.golden)
        for thread in threads:
            thread.join()
        print(f"{len(statuses) / (time.monotonic() - began):.0f} guesses/s")
        self.assertEqual((len(statuses), set(statuses)), (GUESSES, {401}))
        log = (self.folder / "log.txt").read_text()
        self.assertIn("to /v1/models with 401 invalid_api_key", log)
        self.assertNotRegex(log, r"user-\d-\d|user one")
        self.assertLess(log.count("refused a request"), 100)

    def test_30_keys_where_they_do_not_belong(self):
        for lines in ((), ("Authorization: Basic user one",), ("Authorization: user one",), ("Authorization: Bearer",),
                      ("X-Api-Key: user one",), ("Cookie: key=user one",), (bearer("user on"),), (bearer("user onee"),),
                      (bearer("# users"),), (bearer(""),), (bearer("USER ONE"),)):
            self.assertEqual(self.ask(request("GET", "/v1/models", None, *lines))[0], 401, lines)
        for path in ("/v1/models?key=user-two", "/v1/models?api_key=user-two", "/v1/models?authorization=Bearer%20user-two"):
            self.assertEqual(self.ask(request("GET", path))[0], 401, path)
        two = request("GET", "/v1/models", None, bearer("wrong"), bearer("user-two"))
        self.assertEqual(self.ask(two)[0], 400)

    def test_30_routes_without_a_key(self):
        for path in ("/health", "/health/live", "/health/ready"):
            self.assertEqual(self.ask(request("GET", path))[0], 200)
        for path in ("/v1/models", "/v1/models/tiny", "/metrics", "/version", "/openapi.json", "/nothing", "/../metrics"):
            self.assertEqual(self.ask(request("GET", path))[0], 401, path)
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize", "/detokenize",
                     "/reset_prefix_cache"):
            self.assertEqual(self.ask(request("POST", path, GOOD))[0], 401, path)

    def test_30_what_an_admin_may(self):
        def status(key):
            return self.ask(request("POST", "/reset_prefix_cache", None, bearer(key)))[0]
        self.assertEqual([status("user-two"), status("wrong"), status("admin")], [403, 401, 200])
        metrics = [self.ask(request("GET", "/metrics", None, bearer(key)))[0] for key in ("user-two", "wrong", "admin")]
        self.assertEqual(metrics, [403, 401, 200])
        self.assertEqual(self.ask(request("GET", "/v1/models", None, bearer("admin")))[0], 200)

    def test_prefixes_are_a_tenants_own(self):
        """What one has had computed tells nothing to another; who may forget everything does."""
        body = {**GOOD, "prompt": "a ship with three ranks of rowers " * 4}

        def cached(key):
            _, response = self.ask(request("POST", "/v1/completions", body, bearer(key)))
            return response["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached("user one"), 0)
        self.assertGreater(cached("user one"), 0)
        self.assertEqual(cached("user-two"), 0)
        self.ask(request("POST", "/reset_prefix_cache", None, bearer("admin")))
        self.assertEqual(cached("user one"), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
