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

    def test_refused(self):
        self.assert_refused("bench", "ops", "--dtype", "float8", says="float8")
        self.assert_refused("bench", "gemm", "--threads", "0", says="--threads")


if __name__ == "__main__":
    harness.main()
