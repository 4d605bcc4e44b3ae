"""`trireme route` before real servers and before fakes that misbehave."""
import http.client
import json
import re
import signal
import socket
import threading

import fake_openai
import harness
import served_run

GROUPS = [f"{word} " * 100 for word in ("oar", "ship", "sea")]


class RouteTest(served_run.ServerTest):
    def fake(self, *arguments, **options):
        server = fake_openai.FakeServer(*arguments, **options)
        self.addCleanup(server.close)
        return server

    def route(self, *urls, arguments=(), health_timeout=60, up=None, key=None):
        """The router's process; self.port is where it listens. Once so many servers are up: all of them, or `up`."""
        servers = [word for url in urls for word in ("--server", url)]
        router = self.start("route", "--port", 0, "--health-interval", 0.1, "--health-timeout", health_timeout, *servers, *arguments)
        line = router.stdout.readline()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line)
        self.assertTrue(found, line + (router.stderr.read() if router.poll() is not None else ""))
        self.port = int(found[1])
        self.wait_for(lambda: self.series("trireme:router_server_up", key), len(urls) if up is None else up)
        return router

    def series(self, name, key=None, **labels):
        """The sum of the values of all series of that name with these labels."""
        _, text = self.ask("GET", "/metrics", key=key)
        total = 0
        for found in re.finditer(rf"(?m)^{re.escape(name)}\{{(.*)\}} (\S+)$", text):
            if all(f'{key}="{value}"' in found[1] for key, value in labels.items()):
                total += float(found[2])
        return total

    def start_servers(self, count, *arguments):
        """Their processes and URLs."""
        servers = []
        for _ in range(count):
            process = self.serve(*arguments)
            servers.append((process, f"http://127.0.0.1:{self.port}"))
        return servers

    def metric_at(self, url, name):
        back, self.port = self.port, int(url.rsplit(":", 1)[1])
        value = self.metric(name)
        self.port = back
        return value


class Route(RouteTest):
    def test_prompts_that_begin_alike_share_a_server(self):
        servers = self.start_servers(3)
        router = self.route(*(url for _, url in servers))
        wanted = {}
        for turn in range(4):
            for prompt in GROUPS:
                text = self.complete(prompt=f"{prompt} {turn}", max_tokens=4)["choices"][0]["text"]
                wanted[prompt, turn] = text
        hits = [self.metric_at(url, "vllm:prefix_cache_hits_total") for _, url in servers]
        # All but the first of each group find what the first has left: whole blocks of the common 300 to 500 bytes.
        self.assertGreaterEqual(sum(hits), 3 * sum(len(prompt) - 32 for prompt in GROUPS))
        self.assertEqual(sum(hit > 0 for hit in hits), 3, "each server has a group")
        self.assertEqual(self.series("trireme:router_affinity_total", result="hit"), 9)
        self.assertEqual(self.series("trireme:router_affinity_total", result="miss"), 3)
        self.wait_for(lambda: self.series("trireme:router_attempts_total", end="answered"), 12)
        # The router adds nothing to a text.
        self.assertEqual(self.stop(router).count("warning"), 0)
        self.port = int(servers[0][1].rsplit(":", 1)[1])
        for prompt in GROUPS:
            self.assertEqual(self.complete(prompt=f"{prompt} 0", max_tokens=4)["choices"][0]["text"], wanted[prompt, 0])

    def test_a_server_is_killed_under_load(self):
        servers = self.start_servers(3)
        router = self.route(*(url for _, url in servers))
        done = []
        bench = threading.Thread(target=lambda: done.append(self.trireme(
            "bench", "serve", "--base-url", f"http://127.0.0.1:{self.port}", "--num-prompts", 60, "--max-concurrency", 9,
            "--input-len", 20, "--output-len", 60, "--output", "result.json", "--save-detailed", "--model", "tiny")))
        bench.start()
        victim, url = servers[1]
        self.wait_for(lambda: self.series("trireme:router_attempts_total", server=url, end="answered") >= 4)
        victim.send_signal(signal.SIGKILL)
        bench.join()
        result = json.loads((self.folder / "result.json").read_text())
        self.wait_for(lambda: self.series("trireme:router_server_up", server=url), 0)
        self.assertEqual(self.series("trireme:router_server_up"), 2)
        self.wait_for(lambda: self.series("trireme:router_requests_running"), 0)
        self.assertEqual(self.series("http_requests_total", status="5xx"), 0)
        log = self.stop(router)
        failed = [i for i, error in enumerate(result["errors"]) if error]
        # Only those of which something had come, and no more of them than were at that server.
        self.assertLessEqual(len(failed), 9, log)
        for i in failed:
            self.assertGreater(result["ttfts"][i], 0, result["errors"][i] + log)
            self.assertEqual(result["errors"][i], "the response of the server broke off or was invalid", log)
        self.assertEqual(result["completed"], 60 - len(failed))
        self.assertEqual({n for i, n in enumerate(result["output_lens"]) if i not in failed}, {60})

    def test_it_drains(self):
        (server, _), = self.start_servers(1)
        router = self.route(f"http://127.0.0.1:{self.port}")
        connection, response = self.stream(prompt="the oar", max_tokens=600, ignore_eos=True, stream_options={"include_usage": True})
        events = self.events(response)
        next(events)
        router.send_signal(signal.SIGTERM)
        *_, usage, last = events
        self.assertEqual((json.loads(usage)["usage"]["completion_tokens"], last), (600, "[DONE]"))
        connection.close()
        _, stderr = router.communicate(timeout=120)
        self.assertEqual(router.returncode, 0, stderr)
        self.assertIsNone(server.poll())

    def test_who_goes_away_is_forgotten_by_the_server_too(self):
        server = self.fake([0, *(0.25 * i for i in range(1, 400))])
        router = self.route(server.url)
        connection, response = self.stream(prompt="x", max_tokens=400)
        next(self.events(response))
        self.assertEqual(server.under_way, 1)
        response.close()
        connection.close()
        self.wait_for(lambda: server.under_way == 0)
        self.wait_for(lambda: self.series("trireme:router_attempts_total", end="cancelled") == 1)
        self.stop(router)

    def test_tokens_are_not_held_back(self):
        server = self.fake([0, 0], stalls_after=1)  # the second one never comes
        router = self.route(server.url)
        connection, response = self.stream(prompt="x")
        self.assertEqual(json.loads(next(self.events(response)))["choices"][0]["text"], " 0")
        response.close()
        connection.close()
        self.stop(router)

    def test_another_server_is_asked(self):
        full, good = self.fake([], status=503), self.fake([0.01, 0.02])
        refuses = socket.socket()  # bound, so that nobody else has the port, but it does not listen
        self.addCleanup(refuses.close)
        refuses.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{refuses.getsockname()[1]}"
        router = self.route(full.url, gone, good.url, up=2)
        for _ in range(4):
            _, response = self.stream(prompt="x")
            self.assertEqual(len(list(self.events(response))), 4)
        self.assertEqual(len(good.requests), 4)
        self.assertGreaterEqual(len(full.requests), 1)
        self.assertEqual(self.series("trireme:router_retries_total", server=full.url), len(full.requests))
        self.assertEqual(self.series("trireme:router_server_up", server=gone), 0)
        # Nobody else left: the server's own refusal is told.
        good.ready = False
        self.wait_for(lambda: self.series("trireme:router_server_up", server=good.url) == 0)
        status, response = self.ask("POST", "/v1/completions", {"prompt": "x"})
        self.assertEqual((status, response["error"]["message"]), (503, "the fake is full"))
        full.ready = False
        self.wait_for(lambda: self.ask("GET", "/health/ready")[0] == 503)
        status, response = self.ask("POST", "/v1/completions", {"prompt": "x"})
        self.assertEqual((status, response["error"]["code"]), (503, "no_server"))
        self.assertEqual(self.ask("GET", "/health/live")[0], 200)
        # One comes back: first as a program without /health/ready, then as one with it.
        for ready in (None, False, True):
            good.ready = ready
            self.wait_for(lambda expected=503 if ready is False else 200: self.ask("GET", "/health/ready")[0] == expected)
        self.assertEqual(self.ask("GET", "/v1/models"), (200, {"data": [{"id": "fake"}]}))
        self.stop(router)

    def test_a_server_that_hangs_is_left(self):
        good = self.fake([0.01])
        with socket.create_server(("127.0.0.1", 0)) as hangs:
            url = f"http://127.0.0.1:{hangs.getsockname()[1]}"
            router = self.route(url, good.url, health_timeout=0.3, up=1)
            self.assertEqual(self.series("trireme:router_server_up", server=url), 0)
            self.stop(router)
        stalls = self.fake([0, 0.01, 0.02], stalls_after=1)
        router = self.route(stalls.url, arguments=("--timeout", 5))
        _, response = self.stream(prompt="x")
        *_, last = self.events(response)
        self.assertEqual(json.loads(last)["error"]["code"], "server_timeout")
        self.stop(router)

    def test_allowed_origins(self):
        server, page = self.fake([0.01]), "https://page.example"
        router = self.route(server.url, arguments=("--allowed-origins", page))

        def ask(method, path, body=None, **headers):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.addCleanup(connection.close)
            connection.request(method, path, body, {"Origin": page, "Content-Type": "application/json", **headers})
            response = connection.getresponse()
            response.read()
            return response.status, response.getheader("Access-Control-Allow-Origin")

        self.assertEqual(ask("OPTIONS", "/v1/completions", **{"Access-Control-Request-Method": "POST"}), (200, page))
        self.assertEqual(len(server.requests), 0)
        self.assertEqual(ask("POST", "/v1/completions", '{"prompt": "x"}'), (200, page))
        self.assertEqual(ask("GET", "/nothing"), (404, page))
        self.assertNotIn("origin", {name.lower() for name in server.headers[0]})
        self.stop(router)

    def test_heads_are_written_anew(self):
        server = self.fake([0.01])
        router = self.route(server.url, arguments=("--api-key", "key", "--admin-api-key", "admin"), key="admin")
        self.assertEqual(self.ask("POST", "/v1/completions", {})[0], 401)
        self.assertEqual(self.ask("GET", "/metrics")[0], 401)
        self.assertEqual(self.ask("GET", "/metrics", key="key")[0], 403)
        body = b'{"prompt": "x"}'
        with socket.create_connection(("127.0.0.1", self.port)) as raw:
            raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: outside\r\nAuthorization: Bearer key\r\nX-Request-Id: mine\r\n"
                        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close, X-Private\r\n"
                        b"X-Private: 1\r\nX-Public: 2\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            response = b"".join(iter(lambda: raw.recv(65536), b"")).decode()
        self.assertIn("\r\nX-Request-Id: mine\r\n", response)
        self.assertTrue(response.startswith("HTTP/1.1 200 OK\r\n"), response)
        got = {name.lower(): value for name, value in server.headers[0].items()}
        self.assertEqual((got["authorization"], got["x-request-id"], got["x-public"]), ("Bearer key", "mine", "2"))
        self.assertEqual((got["host"], got["content-length"]), (server.url[7:], str(len(body))))
        self.assertFalse({"transfer-encoding", "connection", "x-private"} & set(got))
        # The limits are the server's own, and hold before anybody else is asked.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(connection.close)
        connection.putrequest("POST", "/v1/completions")
        for name, value in (("Authorization", "Bearer key"), ("Content-Type", "application/json"), ("Content-Length", 1 << 30)):
            connection.putheader(name, value)
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 413)
        self.assertEqual(len(server.requests), 1)
        for path in ("/reset_prefix_cache", "/admin/weights", "/", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            self.assertIn(self.ask("POST", path, {}, key="key")[0], (404, 405), path)
        self.stop(router)

    def test_refused(self):
        for arguments, says in (((), "--server"), (("--server", "a:1"), "--server a:1"),
                                (("--server", "http://a", "--server", "http://a:80/"), "twice"),
                                (("--server", "http://a", "--host", "0.0.0.0"), ["0.0.0.0", "API key"]),
                                (("--server", "https://a", "--ca-file", "nothing.pem"), "nothing.pem"),
                                (("--server", "http://a", "--cache-threshold", 2), "--cache-threshold"),
                                ([word for i in range(65) for word in ("--server", f"http://a{i}")], "at most 64")):
            with self.subTest(arguments=arguments):
                self.assert_refused("route", *arguments, says=says)


if __name__ == "__main__":
    harness.main()
