"""Grammars, schemas and large bodies of one API key beside the requests of another: memory of grammars in use, masks
that take long, hard compilations, and bodies that take long to read. The model has random weights and a large
vocabulary. Seconds are printed; what is asserted is counted."""
import array
import collections
import itertools
import json
import random
import resource
import select
import struct
import time
import unittest
from pathlib import Path

import hostile_server
from hostile_server import Reader, SANITIZED, harness, request

IDS = 16_000 if SANITIZED else 128_000
LENGTH = 4096
RULES = 8 if SANITIZED else 16  # of a grammar whose masks take long
LIVE_BYTES = 1 << 30  # of all grammars; a key has half of it
HIDDEN, LAYERS = 32, 2


def byte_alphabet():
    """The characters that stand for bytes in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(byte if byte in printable else next(other)) for byte in range(256)]


def write_tokenizer(path):
    """Bytes, words of small letters (a little more than one in 32), other words."""
    draw = random.Random(1)
    words = dict.fromkeys(byte_alphabet())
    while len(words) < 256 + IDS // 30:
        words["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 5)))] = None
    while len(words) < IDS - 1:
        words[draw.choice("ABCDEFGHIJ") + "".join(draw.choices("KLMNOPQRSTUVWXYZ0123456789", k=draw.randint(2, 5)))] = None
    end = {"id": IDS - 1, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
           "special": True}
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps({
        "version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": levels, "post_processor": None,
        "decoder": levels, "model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)}, "merges": []}}))


def write_weights(path):
    draw = random.Random(2)
    some = array.array("f", (draw.gauss(0, 0.3) for _ in range(1 << 14)))
    shapes = {"model.embed_tokens.weight": (IDS, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{name}.weight"] = (HIDDEN,)
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                     "mlp.up_proj", "mlp.down_proj"):
            shapes[f"model.layers.{layer}.{name}.weight"] = (HIDDEN, HIDDEN)
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        at = draw.randrange(1 << 13)
        values = some[at:] * (count // (len(some) - at) + 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += values[:count].tobytes()
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def write_model(folder):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": IDS, "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4,
        "max_position_embeddings": LENGTH, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "eos_token_id": IDS - 1,
        "bos_token_id": None, "hidden_act": "silu", "torch_dtype": "float32"}))
    write_tokenizer(folder / "tokenizer.json")
    write_weights(folder / "model.safetensors")


class KeyedTest(hostile_server.HostileTest):
    """key: of the client that is not to notice."""
    key = "quiet"
    # A quarter of it for grammars that the next request may name; what lives on among freed memory keeps pages, too.
    kept = 5 * LIVE_BYTES // 8
    arguments = ("--max-num-seqs", 256, "--kv-cache-memory-bytes", 200_000_000, "--api-key", "loud", "--admin-api-key", key)

    @classmethod
    def make_model(cls):
        write_model(cls.folder / "run")

    def ask_as(self, key, path="/v1/completions", **fields):
        body = {"model": "tiny", "prompt": "a", **fields} if path == "/v1/completions" else fields
        reader = self.send(request("POST", path, body, f"Authorization: Bearer {key}"))
        response = reader.response()
        reader.connection.close()
        return response[0] if response else None

    def loud(self, path="/v1/completions", **fields):
        """A request of the other key whose answer is not waited for."""
        body = {"model": "tiny", "prompt": "a", **fields} if path == "/v1/completions" else fields
        connection = self.connect(f"127.0.0.{2 + random.randrange(16)}")
        connection.sendall(request("POST", path, body, "Authorization: Bearer loud"))
        return connection

    def responded(self, connections):
        """How many have the beginning of an answer."""
        return sum(1 for one in connections if select.select([one], [], [], 0)[0])

    def masks(self):
        """Made beside the engine so far."""
        return self.metric("trireme:grammar_masks_total")

    def close(self, connections):
        for one in connections:
            hostile_server.reset(one)
        self.wait_for_quiet()

    def small(self, number):
        began = time.monotonic()
        schema = {"type": "object", "properties": {f"a{number}": {"type": "boolean"}}, "required": [f"a{number}"]}
        status = self.ask_as(self.key, max_tokens=30, structured_outputs={"json": schema})
        self.assertEqual(status, 200)
        return time.monotonic() - began

    def large(self, count):
        """Requests each of whose grammars takes 14 MB and is used until its client leaves: it has a state for each letter,
        which are not counted because what follows them begins with one, too."""
        grammars = [f'root ::= l+\nl ::= [a-z]{{0,900}} "a{10000 + number}\\n"' for number in range(count)]
        return [self.loud(max_tokens=3800, min_tokens=3800, structured_outputs={"grammar": grammar})
                for grammar in grammars]


class Grammars(KeyedTest):
    def test_memory_of_grammars_in_use(self):
        before, most = self.resident(), 0
        requests = self.large(100)
        peak = before
        end = time.monotonic() + 240 * hostile_server.harness.PATIENCE
        while self.metric("trireme:grammars_waiting") > 0 or most == 0:
            self.assertLess(time.monotonic(), end)
            most = max(most, self.metric("trireme:grammar_bytes"))
            peak = max(peak, self.resident())
            time.sleep(0.05)
        self.assertTrue(self.wait_for(lambda: self.metric("vllm:num_requests_running") + self.responded(requests) >= 100))
        seconds = self.small(1)
        most, peak = max(most, self.metric("trireme:grammar_bytes")), max(peak, self.resident())
        running = self.metric("vllm:num_requests_running")
        refused = [Reader(one).response()[0] for one in requests if self.responded([one])]
        self.close(requests)
        left = self.metric("trireme:grammar_bytes")
        if not SANITIZED:  # AddressSanitizer keeps what was freed
            self.wait_for(lambda: self.resident() < before + self.kept)
        after = self.resident()
        print(f"memory: {running:.0f} of 100 grammars in use, {len(refused)} refused {set(refused)}, grammars {most / 2**20:.0f} "
              f"MiB at most and {left / 2**20:.0f} behind them, RSS {before / 2**20:.0f} to {peak / 2**20:.0f}, then {after / 2**20:.0f} MiB; "
              f"a small schema of another key in {seconds:.2f} s")
        self.assertLessEqual(most, LIVE_BYTES)
        self.assertLessEqual(left, LIVE_BYTES // 2)
        if not SANITIZED:
            self.assertIn(429, refused)
            self.assertLess(peak - before, 1.25 * LIVE_BYTES)
            self.assertLess(after, before + self.kept)

    def test_masks_that_take_long(self):
        """No mask of the other key's texts is ever found again. While this one's text grows by a token with each step they
        wait for theirs."""
        def gaps():
            body = {"model": "tiny", "prompt": "a", "max_tokens": 100, "stream": True, "ignore_eos": True}
            connection = self.connect()
            connection.sendall(request("POST", "/v1/completions", body, f"Authorization: Bearer {self.key}"))
            reader, times = Reader(connection), []
            while (line := reader.until(b"\n\n")) is not None and b"[DONE]" not in line:
                times.append(time.monotonic())
            connection.close()
            return [after - before for before, after in zip(times[1:], times[2:])]

        def ask():
            number = next(numbers)
            rules = "\n".join(f'r{i} ::= [^\\n]{{0,{100 + i}}} "{i}z{number}"' for i in range(RULES))
            grammar = "root ::= " + " | ".join(f"r{i}" for i in range(RULES)) + "\n" + rules
            return self.loud(max_tokens=3800, temperature=1.9, structured_outputs={"grammar": grammar})

        idle = sorted(gaps())
        numbers = itertools.count()
        requests = [ask() for _ in range(32)]
        self.assertTrue(self.wait_for(
            lambda: self.metric("vllm:num_requests_running") + self.responded(requests) >= RULES, 300))
        end = time.monotonic() + 300
        tokens, masks, busy, rounds = self.metric("vllm:generation_tokens_total"), self.masks(), [], 0
        while rounds < 2 or self.masks() == masks:
            for i, one in enumerate(requests):  # a text that is whole makes room for the next
                if self.responded([one]):
                    self.assertIn(Reader(one).response()[0], (200, 429))  # 429: its grammars' share is full
                    one.close()
                    requests[i] = ask()
            busy, rounds = busy + gaps(), rounds + 1
            self.assertLess(time.monotonic(), end, "no masks")
        busy.sort()
        tokens = self.metric("vllm:generation_tokens_total") - tokens - 100 * rounds
        masks = self.masks() - masks
        running = self.metric("vllm:num_requests_running")
        self.close(requests)
        for name, times in (("alone", idle), ("beside them", busy)):
            print(f"masks: token after token {name}: {1e3 * times[len(times) // 2]:.1f} ms, P99 "
                  f"{1e3 * times[len(times) * 99 // 100]:.1f} ms, at most {1e3 * times[-1]:.1f} ms")
        print(f"masks: {tokens:.0f} tokens of {running:.0f} texts beside {100 * rounds} of the other, {masks:.0f} masks beside the "
              "engine")

    def test_hard_compilations(self):
        """Each uses up its time. A small schema of another key is compiled while most of them wait."""
        requests = [self.loud(max_tokens=8, structured_outputs={"grammar": f'root ::= ([^\\n{chr(65 + n % 26)}{n}]{{0,500}} "\\n")+'})
                    for n in range(40)]
        self.assertTrue(self.wait_for(lambda: self.metric("trireme:grammars_waiting") >= 30))
        seconds = self.small(2)
        waiting = self.metric("trireme:grammars_waiting")
        self.close(requests)
        print(f"compilations: a small schema in {seconds:.2f} s, {waiting:.0f} hard ones of another key wait then")
        self.assertGreater(waiting, 10)

    def test_large_bodies(self):
        """One is read in seconds. Requests of another key are answered while most of them wait."""
        body = "word " * ((300 << 10) if SANITIZED else (1500 << 10))
        requests = [self.loud("/tokenize", prompt=body[number:]) for number in range(8)]
        self.assertTrue(self.wait_for(lambda: self.responded(requests) >= 1, 300))
        seconds = []
        for _ in range(3):
            began = time.monotonic()
            self.assertEqual(self.ask_as(self.key, max_tokens=1), 200)
            seconds.append(time.monotonic() - began)
        done = self.responded(requests)
        self.assertTrue(self.wait_for(lambda: self.responded(requests) == 8, 600))
        self.close(requests)
        print(f"bodies: first tokens in {', '.join(f'{1e3 * one:.0f}' for one in seconds)} ms beside 8 bodies of "
              f"{len(body) / 2**20:.1f} MiB, {done} of them answered then")
        self.assertLess(done, 6)


@unittest.skipIf(SANITIZED, "sanitizers take all addresses")
class WantOfMemory(KeyedTest):
    def test_memory_ends_before_the_budget(self):
        """As under `ulimit -v`: steps and compilations fail, and the process goes on."""
        pages = int(Path(f"/proc/{self.server.pid}/statm").read_text().split()[0])
        limits = resource.prlimit(self.server.pid, resource.RLIMIT_AS)
        most = pages * resource.getpagesize() + (128 << 20)
        resource.prlimit(self.server.pid, resource.RLIMIT_AS, (most, limits[1]))
        self.addCleanup(resource.prlimit, self.server.pid, resource.RLIMIT_AS, limits)
        requests = self.large(40)
        responses = collections.Counter()
        end = time.monotonic() + 240
        while self.metric("trireme:grammars_waiting") > 0 or not responses:
            self.assertLess(time.monotonic(), end)
            for one in [one for one in requests if self.responded([one])]:
                status, _, body = Reader(one).response()
                responses[status, json.loads(body)["error"]["message"]] += 1
                requests.remove(one)
                one.close()
            self.assertIn(self.ask_as(self.key, max_tokens=2), (200, 500, 503))
        self.close(requests)
        self.assertEqual(self.ask_as(self.key, max_tokens=2), 200)
        print("want of memory: " + ", ".join(f"{count} times {status} {why}" for (status, why), count in responses.items()))
        self.assertTrue(all(status in (429, 500, 503) for status, _ in responses))


if __name__ == "__main__":
    harness.main()
