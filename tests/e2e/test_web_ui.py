"""The page at / of a server, in a real Chromium."""
import http.client
import json
import re
import unittest

import browser
import harness
import served_run
from served_run import LENGTH, PROMPT

CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}"


class PageFiles(served_run.ServerTest):
    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", path)
        response = connection.getresponse()
        return response, response.read().decode()

    def test_the_files_are_open_and_nothing_else_is(self):
        server = self.serve("--api-key", "secret")
        for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")):
            response, text = self.get(path)
            self.assertEqual((response.status, response.headers["Content-Type"]), (200, f"{kind}; charset=utf-8"))
            policy = response.headers["Content-Security-Policy"]
            self.assertIn("default-src 'none'", policy)
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual(response.headers["X-Content-Type-Options"], "nosniff")
            name = "index.html" if path == "/" else path[1:]
            self.assertEqual(text, (harness.SOURCE / "serving/web_ui" / name).read_text())
            # Nothing is loaded from anywhere else; a name space is no address.
            self.assertEqual([url for url in re.findall(r"\w+://[^'\" ]+", text) if url != "http://www.w3.org/2000/svg"], [])
            self.assertNotRegex(text, r"<script>|<style|\son\w+=|style=|innerHTML|localStorage|document\.cookie")
        for path in ("/metrics", "/v1/models", "/page.html", "/index.html"):
            self.assertEqual(self.get(path)[0].status, 401, path)
        self.assertEqual(self.ask("POST", "/", {}, key="secret")[0], 405)
        self.stop(server)


@unittest.skipIf(browser.PROGRAM is None, "there is no Chromium")
class Page(served_run.ServerTest):
    def open(self, *arguments, width=1280, height=800, **look):
        self.write("chat.jinja", CHAT)
        self.server = self.serve(*arguments)
        page = browser.Browser()
        self.addCleanup(page.close)
        page.show(width, height, **look)
        page.open(f"http://127.0.0.1:{self.port}/")
        page.wait("document.getElementById('model').textContent !== 'connecting'")
        return page

    def set(self, page, **values):
        for name, value in values.items():
            page.run(f"document.getElementById({json.dumps(name.replace('_', '-'))}).value = {json.dumps(str(value))}")

    def say(self, page, text):
        """What the model answers."""
        turns = page.run("document.querySelectorAll('.turn').length")
        page.type("#input", text)
        page.press_enter()
        page.wait(f"document.querySelectorAll('.turn').length === {turns + 2} && !document.querySelector('.busy')")
        return page.run("[...document.querySelectorAll('.turn .text')].at(-1).textContent")

    def test_a_conversation(self):
        page = self.open("--chat-template", "chat.jinja")
        self.set(page, temperature=0, max_tokens=20)
        wanted = self.complete(max_tokens=20)["choices"][0]["text"]
        self.assertEqual(self.say(page, PROMPT), wanted)
        facts = page.run("document.querySelector('.facts').textContent")
        self.assertRegex(facts, r"^20 tokens, first token after .* m?s, \d.* tokens/s, cut off at max tokens$")
        # Its rate counts the time to the first token too: no more than so many tokens in that time.
        first, unit, rate = re.search(r"after (\S+) (m?s), (\S+) tokens/s", facts).groups()
        self.assertLessEqual(float(rate) * float(first) * (1e-3 if unit == "ms" else 1), 20 * 1.2)
        # What was said before belongs to what is asked next.
        again = self.complete(prompt=PROMPT + wanted + " night", max_tokens=20)["choices"][0]["text"]
        self.assertEqual(self.say(page, " night"), again)
        # The gauges know of it by the next look.
        page.wait("/ms$/.test(document.getElementById('g-ttft').textContent)")
        page.wait("/ms$/.test(document.getElementById('g-itl').textContent)")
        page.wait("document.getElementById('g-running').textContent === '0'")
        self.assertRegex(page.run("document.getElementById('g-cache').textContent"), r"^\d+(\.\d)? %$")
        page.click("#clear")
        self.assertEqual(page.run("document.querySelectorAll('.turn').length"), 0)
        self.assertEqual(self.say(page, PROMPT), wanted)
        # Markup is text.
        self.say(page, "<img src=x onerror=alert(1)><b>bold</b>")
        self.assertEqual(page.run("document.querySelectorAll('.log img, .log b').length"), 0)
        self.assertEqual(page.complaints, [])
        self.stop(self.server)

    def test_max_tokens_are_the_models_unless_they_are_given(self):
        """A model of few positions answers with what fits behind the prompt, and the page says that it was cut."""
        for arguments in (("--chat-template", "chat.jinja"), ()):  # a chat, a continued text
            page = self.open(*arguments, "--max-model-len", len(PROMPT) + 30)
            self.set(page, temperature=0)
            self.assertEqual(page.run("document.getElementById('max-tokens').value"), "")
            self.assertEqual(self.say(page, PROMPT), self.complete(max_tokens=30)["choices"][0]["text"])
            facts = page.run("document.querySelector('.facts').textContent")
            self.assertRegex(facts, r"^30 tokens, first token after .* tokens/s, cut off: the context is full$")
            self.assertIn("Clear the conversation", self.say(page, PROMPT))
            page.click("#clear")
            self.set(page, max_tokens=3)
            self.say(page, PROMPT)
            self.assertRegex(page.run("document.querySelector('.facts').textContent"), r"cut off at max tokens$")
            self.stop(self.server)

    def test_stopping(self):
        page = self.open("--chat-template", "chat.jinja")
        self.set(page, temperature=0, max_tokens=LENGTH - 100)
        page.type("#input", PROMPT)
        page.press_enter()
        page.wait("(document.querySelector('.assistant .text') || {}).textContent")
        page.click("#stop")
        page.wait("!document.querySelector('.busy')")
        self.assertEqual(page.run("document.querySelector('.facts').textContent"), "stopped")
        page.wait("!document.getElementById('send').hidden && document.activeElement.id === 'input'")
        page.wait("fetch('metrics').then(a => a.text()).then(t => /num_requests_running\\{[^}]*\\} 0\\n/.test(t))")
        self.assertLess(self.metric("vllm:generation_tokens_total"), LENGTH - 100)
        self.stop(self.server)

    def test_a_model_without_a_template(self):
        page = self.open()
        self.assertIn("no chat template", page.run("document.getElementById('notice').textContent"))
        self.set(page, temperature=0, max_tokens=16)
        self.assertEqual(self.say(page, PROMPT), self.complete(max_tokens=16)["choices"][0]["text"])
        # The question whether there is one was answered with 400.
        self.assertEqual([c["url"].split("/")[-1] for c in page.complaints], ["tokenize"])
        self.stop(self.server)

    def test_a_key(self):
        page = self.open("--api-key", "secret", "--admin-api-key", "admin", "--chat-template", "chat.jinja", width=390, height=844, phone=True)
        self.assertIn("API key", page.run("document.getElementById('notice').textContent"))
        self.assertTrue(page.run("document.getElementById('settings').open"))
        page.type("#key", "secret")
        page.run("document.getElementById('key').dispatchEvent(new Event('change'))")
        page.wait("document.getElementById('model').textContent === 'tiny'")
        self.assertTrue(page.run("document.getElementById('notice').hidden"))
        self.assertEqual(len(self.say(page, PROMPT)) > 0, True)
        kept = page.run("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
        self.assertNotIn("secret", kept)
        # Metrics are an admin's: they are not asked for again and again.
        self.assertTrue(page.run("document.getElementById('gauges').hidden"))
        page.run("document.getElementById('key').value = 'admin'; connect()")
        page.wait("!document.getElementById('gauges').hidden && document.getElementById('g-running').textContent === '0'")
        self.stop(self.server)

    def test_what_is_refused_is_said(self):
        page = self.open("--chat-template", "chat.jinja")
        self.set(page, max_tokens=LENGTH)
        self.assertIn(f"exceeds the model's context length of {LENGTH}", self.say(page, PROMPT))
        self.assertEqual(page.run("document.querySelectorAll('.wrong').length"), 1)
        # What was refused is no part of what is asked next.
        self.set(page, max_tokens=4)
        self.say(page, PROMPT)
        self.assertEqual(self.metric("vllm:prompt_tokens_total"), len(PROMPT))
        self.assertEqual(page.run("document.querySelectorAll('.wrong').length"), 1)
        self.stop(self.server)
        self.assertIn("cannot be reached", self.say(page, PROMPT))

    def test_settings_that_are_refused_are_shown(self):
        page = self.open("--chat-template", "chat.jinja", width=390, height=844, phone=True)
        self.assertFalse(page.run("document.getElementById('settings').open"))
        self.set(page, temperature=0.75, top_p=0.92, max_tokens=4)
        self.assertGreater(len(self.say(page, PROMPT)), 0)
        self.set(page, temperature=2.5)
        page.type("#input", PROMPT)
        page.press_enter()
        page.wait("document.getElementById('settings').open && document.activeElement.id === 'temperature'")
        self.assertEqual(page.run("document.querySelectorAll('.turn').length"), 2)
        self.assertEqual(page.complaints, [])
        self.stop(self.server)

    def test_it_fits_and_speaks(self):
        page = self.open("--chat-template", "chat.jinja")
        self.set(page, max_tokens=200)
        self.say(page, PROMPT + "x" * 300)
        for width, height, phone in ((1280, 800, False), (800, 600, False), (390, 844, True), (320, 568, True)):
            page.show(width, height, phone=phone, dark=phone)
            page.wait(f"innerWidth === {width}")
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), width)
            self.assertLessEqual(page.run("document.documentElement.scrollHeight"), height)
            for selector in ("#input", "#send", "#settings summary", ".gauges"):
                left, top, right, bottom = page.run(
                    f"(r => [r.left, r.top, r.right, r.bottom])(document.querySelector('{selector}').getBoundingClientRect())")
                self.assertTrue(0 <= left < right <= width and 0 <= top < bottom <= height, (selector, width, height))
            self.assertGreaterEqual(page.run("document.getElementById('send').getBoundingClientRect().height"), 40)
        page.run("document.getElementById('settings').open = true")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        named = {}
        for node in nodes:
            role = node.get("role", {}).get("value")
            if role in ("textbox", "spinbutton", "button", "combobox", "log", "meter") and not node.get("ignored"):
                named.setdefault(role, []).append(node.get("name", {}).get("value"))
        self.assertTrue({"textbox", "spinbutton", "button", "log"} <= set(named), named)
        self.assertEqual([role for role, names in named.items() if not all(names)], [], named)
        self.assertTrue(page.screenshot().startswith(b"\x89PNG"))
        self.assertEqual(page.complaints, [])
        self.stop(self.server)


if __name__ == "__main__":
    harness.main()
