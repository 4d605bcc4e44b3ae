"""The bench commands run every op they list and report numbers that make sense."""
import json
import math

import harness


class Bench(harness.CommandTest):
    def test_ops(self):
        text, _ = self.trireme("bench", "ops", "--json", "--tokens", "16", "--sequence", "8", "--samples", "1",
                               "--threads", "1", timeout=600)
        report = json.loads(text)
        self.assertEqual(report["threads"], 1)
        self.assertGreater(report["peak_float32_gflops"], 0)
        measured = {(row["op"], row["dtype"]) for row in report["ops"]}
        self.assertEqual(len(measured), len(report["ops"]))
        for dtype in ("float32", "bfloat16"):
            for op in ("rmsnorm backward", "attention backward", "cross-entropy with gradient", "linear, 1 row"):
                self.assertIn((op, dtype), measured)
        for row in report["ops"]:
            for key in ("ms", "gbytes_per_second", "share_of_floor"):
                self.assertTrue(math.isfinite(row[key]) and row[key] > 0, row)

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
