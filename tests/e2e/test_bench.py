"""The bench commands run every op they list and report numbers that make sense."""
import json
import math

import harness


class Bench(harness.CommandTest):
    def check_ops(self, report):
        self.assertGreater(report["peak_float32_gflops"], 0)
        measured = {(row["op"], row["dtype"]) for row in report["ops"]}
        self.assertEqual(len(measured), len(report["ops"]))
        for dtype in ("float32", "bfloat16"):
            for op in ("rmsnorm backward", "attention backward", "cross-entropy with gradient", "linear, 1 row"):
                self.assertIn((op, dtype), measured)
        for row in report["ops"]:
            for key in ("ms", "gbytes_per_second", "share_of_floor"):
                self.assertTrue(math.isfinite(row[key]) and row[key] > 0, row)

    def test_no_share_is_above_its_ceiling(self):
        """The ceilings are those of the fastest instructions, and of reading as much from wherever it lies."""
        text, _ = self.trireme("bench", "gemm", "--model", "quickstart", "--tokens", "512", "--samples", "2", "--json",
                               timeout=600)
        shares = [(row["share_of_peak"], row) for row in json.loads(text)["products"]]
        text, _ = self.trireme("bench", "rows", "--device", "cpu", "--samples", "2", "--rows", "1,4", "--weights-mib", "300", "--json",
                               timeout=600)
        shares += [(row["share_of_floor"], row) for row in json.loads(text)["products"]]
        # Operands and weights that the caches hold, beside their rates.
        text, _ = self.trireme("bench", "ops", "--tokens", "1024", "--samples", "2", "--json", timeout=600)
        report = json.loads(text)
        self.check_ops(report)
        shares += [(row["share_of_floor"], row) for row in report["ops"]]
        text, _ = self.trireme("bench", "decode", "--model", "llama-15m", "--prompt", "8", "--tokens", "24", "--json",
                               timeout=600)
        shares += [(row["share_of_floor"], row) for row in map(json.loads, text.splitlines())]
        self.assertGreater(len(shares), 80)
        for share, row in shares:
            self.assertTrue(0 < share <= 1.02, row)

    def test_rows(self):
        for options, names in (([], ("float32", "bfloat16")), (["--dtype", "bfloat16", "--quantization", "q4_0"], ("q4_0",))):
            text, _ = self.trireme("bench", "rows", "--device", "cpu", "--rows", "1,3", "--weights-mib", "1", "--samples", "1",
                                   "--threads", "1", "--json", *options, timeout=300)
            report = json.loads(text)
            rows = report["products"]
            self.assertEqual(report["threads"], 1)
            self.assertEqual([(row["weights"], row["rows"]) for row in rows], [(n, r) for n in names for r in (1, 3)])
            for row in rows:
                self.assertGreaterEqual(row["share_of_floor"], row["share_of_reading"], row)
                self.assertAlmostEqual(row["gflops"], 2 * row["rows"] * 8192 * 2048 / row["ms"] * 1e-6)

    def test_compress(self):
        """Bytes by the formulas of docs/design/outer.md, for 64 rows of 1024 elements between two ranks."""
        text, _ = self.trireme("bench", "compress", "--size", "256K", "--iterations", "2", "--ratio", "0.125", "--rank", "2",
                               "--ranks", "2", "--json", timeout=300)
        rows = json.loads(text)["rows"]
        row, kept = 1024 * 4, 1024 // 8
        # Each rank sends its half of the matrix in the first phase and of the sum in the second, as many bytes.
        self.assertEqual({r["method"]: r["sent_bytes"] for r in rows}, {
            "quantize, 8 bits": 2 * 32 * (4 * 4 + 1024), "quantize, 4 bits": 2 * 32 * (4 * 4 + 512),
            "quantize, 1 bit": 2 * 32 * (4 + 128), "top_k, ratio 0.125": 2 * 32 * kept * 6,
            "random_k, ratio 0.125": 2 * 32 * kept * 4,
            # A whole matrix in one piece: rank 1 sends it, then rank 0 the sum.
            "powersgd, rank 2": 2 * (64 + 1024) * 4})
        errors = [r["error"] for r in rows]
        self.assertTrue(0 < errors[0] < errors[1] < 0.3 < errors[2] < 1, errors)
        for r in rows:
            self.assertEqual(r["plain_sent_bytes"], 64 * row)
            for key in ("ms", "plain_ms", "time_per_byte_ratio", "error"):
                self.assertTrue(math.isfinite(r[key]) and r[key] > 0, r)
        shown, _ = self.trireme("bench", "compress", "--size", "4K", "--iterations", "1", "--ranks", "2", timeout=300)
        self.assertRegex(shown, r"(?m)^quantize, 1 bit +\d+ +\d+\.\d\dx ")

    def test_train_tells_micro_batch_and_update_apart(self):
        text, _ = self.trireme("bench", "train", "--model", "quickstart", "--batch", "1", "--sequence-length", "16",
                               "--steps", "1", "--micro-batches", "2", "--step-tokens", "48", "--whole-step", "--threads",
                               "1", "--state-dtype", "bfloat16", "--recompute", "full", "--json", timeout=300)
        report = json.loads(text)
        self.assertEqual(report["step_tokens"], 48)
        self.assertGreater(report["micro_ms"], 0)
        self.assertAlmostEqual(report["step_ms"], 3 * report["micro_ms"] + report["update_ms"])
        self.assertAlmostEqual(report["tokens_per_second"], 48e3 / report["step_ms"])
        self.assertGreater(report["whole_step_ms"], 0)
        self.assertEqual(report["allocations_in_steps"], 0)
        self.assertTrue(report["deterministic"])

    def test_decode(self):
        text, _ = self.trireme("bench", "decode", "--model", "quickstart", "--prompt", "5", "--tokens", "3", "--samples",
                               "1", "--threads", "1", "--json", timeout=300)
        reports = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([r["dtype"] for r in reports], ["float32", "bfloat16"])
        self.assertEqual(reports[0]["read_bytes"], 2 * reports[1]["read_bytes"])
        for report in reports:
            self.assertGreater(report["token_ms"], 0)
            self.assertAlmostEqual(report["share_of_floor"], report["floor_ms"] / report["token_ms"])

    def test_steps(self):
        text, _ = self.trireme("bench", "steps", "--device", "cpu", "--prompt", "5", "--tokens", "4", "--sequences", "3",
                               "--dtype", "float32", "--host-sequences", "64", "--samples", "1", "--threads", "1",
                               "--json", timeout=300)
        host, modes = (json.loads(line) for line in text.splitlines())
        self.assertEqual(host["kv_groups"], 1)
        self.assertGreater(host["host_p99_us"], 0)
        self.assertLessEqual(host["host_us"], host["host_p99_us"])
        for what in ("prompt_ms", "token_ms"):
            self.assertGreater(modes[what], 0)
            self.assertGreater(modes[what + "_deterministic"], 0)

    def test_steps_of_a_model_with_windows(self):
        """Layers with and without windows have block tables of their own."""
        windows = {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "vocab_size": 64, "hidden_size": 16,
                   "intermediate_size": 32, "num_hidden_layers": 12, "num_attention_heads": 2, "num_key_value_heads": 1,
                   "head_dim": 8, "sliding_window": 16, "sliding_window_pattern": 6, "max_position_embeddings": 4096}
        self.write("windows/config.json", json.dumps(windows))
        text, _ = self.trireme("bench", "steps", "--device", "cpu", "--model", "windows/config.json", "--prompt", "5", "--tokens",
                               "4", "--sequences", "3", "--dtype", "float32", "--host-sequences", "16", "--samples", "1",
                               "--threads", "1", "--json", timeout=300)
        host, _ = (json.loads(line) for line in text.splitlines())
        self.assertEqual(host["kv_groups"], 6)  # 2 layers without a window, 5 times 2 with one
        self.assertGreater(host["host_us"], 0)

    def test_gemm_of_a_model(self):
        text, _ = self.trireme("bench", "gemm", "--model", "quickstart", "--tokens", "8", "--dtype", "float32", "--samples",
                               "1", "--threads", "1", "--json", timeout=300)
        products = json.loads(text)["products"]
        model = json.loads((harness.SOURCE / "configs/models/quickstart.json").read_text())
        down = [p for p in products if p["layer"] == "down"]
        self.assertEqual([(p["tokens"], p["out"], p["in"]) for p in down],
                         3 * [(8, model["hidden_size"], model["intermediate_size"])])
        self.assertEqual(len(products), 15)

    def test_models_have_the_sizes_they_are_known_for(self):
        """Parameters in millions, as their makers count them."""
        millions = {"gpt2-124m": 124.44, "gpt2-1.5b": 1557.61, "llama-1b": 1235.81, "llama-8b": 8030.26,
                    "qwen2.5-0.5b": 494.03, "qwen2.5-1.5b": 1543.71, "qwen2.5-3b": 3085.94, "qwen2.5-7b": 7615.62}
        for name, wanted in millions.items():
            m = json.loads((harness.SOURCE / f"configs/models/{name}.json").read_text())
            if m["model_type"] == "gpt2":
                c = m["n_embd"]
                count = (m["vocab_size"] + m["n_positions"]) * c + m["n_layer"] * (12 * c * c + 13 * c) + 2 * c
            else:
                c, heads, kv = m["hidden_size"], m["num_attention_heads"], m["num_key_value_heads"]
                width = m.get("head_dim", c // heads)
                qkv = (heads + 2 * kv) * width
                layer = c * (qkv + heads * width + 3 * m["intermediate_size"] + 2)
                if m.get("attention_bias"):
                    layer += qkv  # and c for the output's, which the published models lack
                tables = 1 if m["tie_word_embeddings"] else 2
                count = tables * m["vocab_size"] * c + m["num_hidden_layers"] * layer + c
            self.assertAlmostEqual(count / 1e6, wanted, 1, name)

    def test_comm(self):
        for ranks, extra in ((2, []), (4, ["--ranks-per-node", "2"]), (4, ["--algorithm", "ring", "--dtype", "bfloat16"])):
            text, _ = self.trireme("bench", "comm", "--json", "--min", "64", "--max", "64K", "--factor", "32",
                                   "--iterations", "2", "--ranks", ranks, *extra, timeout=300)
            report = json.loads(text)
            self.assertEqual(report["ranks"], ranks)
            factors = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1, "send_recv": 1,
                       **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), (ranks - 1) / ranks)}
            self.assertEqual([(row["operation"], row["bytes"]) for row in report["rows"]],
                             [(name, size) for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                        "broadcast", "send_recv") for size in (64, 2048, 65536)])
            for row in report["rows"]:
                self.assertEqual(row["wrong"], 0, row)
                self.assertEqual("mpi_us" in row, "bfloat16" not in extra, row)
                rate = row["bytes"] / row["us"] * 1e-3
                self.assertAlmostEqual(row["algbw_gbytes_per_second"] / rate, 1, 9)
                self.assertAlmostEqual(row["busbw_gbytes_per_second"] / rate, factors[row["operation"]], 9)

    def test_comm_refused(self):
        self.assert_refused("bench", "comm", says="--ranks N")
        self.assert_refused("bench", "comm", "--min", "1M", "--max", "1K", says=["--min 1048576", "--max 1024"])
        self.assert_refused("bench", "comm", "--operation", "all_swap", says="all_swap")
        self.assert_refused("bench", "comm", "--ranks", 2, "--min", "0", says=["--min 0", "at least 1 byte"])
        self.assert_refused("bench", "comm", "--ranks", 2, "--max", "5G", says=["--max 5368709120", "at most 4G"])
        for option, value in (("--min", "100E"), ("--min", "99999999999999999999"), ("--max", "1X"), ("--max", "-1"),
                              ("--factor", "1"), ("--factor", "0"), ("--factor", "9" * 20)):
            self.assert_refused("bench", "comm", "--ranks", 2, option, value, says=option)

    def test_refused(self):
        self.assert_refused("bench", "ops", "--dtype", "float8", says="float8")
        self.assert_refused("bench", "gemm", "--threads", "0", says="--threads")


if __name__ == "__main__":
    harness.main()
