"""What a run holds is what was planned for it."""
import json

import harness


class Memory(harness.CommandTest):
    def test_resident_memory_follows_the_plan(self):
        # A plan of two GiB: what the libraries keep for themselves is then small beside it.
        for dtype in ("float32", "bfloat16"):
            out, _ = self.trireme("bench", "train", "--model", "gpt2-124m", "--batch", "4", "--sequence-length", "64",
                                  "--steps", "1", "--dtype", dtype, "--json")
            report = json.loads(out)
            self.assertGreater(report["planned_bytes"], 1 << 30)
            self.assertAlmostEqual(report["resident_bytes"] / report["planned_bytes"], 1.0, delta=0.05)
            self.assertEqual(report["allocations_in_steps"], 0)


if __name__ == "__main__":
    harness.main()
