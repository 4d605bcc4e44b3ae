"""gpu_check.sh from end to end on a machine without a GPU: a rehearsal, what a cut-off leaves, and the page."""
import json
import os
import subprocess
import sys
from pathlib import Path

import harness

SCRIPT = harness.SOURCE / "scripts/gpu_check.sh"
BUILD = Path(harness.TRIREME).parent
sys.path.insert(0, str(harness.SOURCE / "scripts/gpu_check"))


class GpuCheck(harness.CommandTest):
    def check(self, *arguments, expect=0):
        ran = subprocess.run([SCRIPT, "--rehearse", "--build", BUILD, *arguments], cwd=self.folder, check=False,
                             env={**os.environ, "OUT": str(self.folder / "out")}, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=550)
        self.assertEqual(ran.returncode, expect, f"{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")
        return ran.stdout

    def lines(self, phase):
        return [json.loads(line) for line in (self.folder / f"out/{phase}.jsonl").read_text().splitlines()]

    def test_rehearsal(self):
        self.check()
        merged = json.loads((self.folder / "out/gpu.json").read_text())
        self.assertTrue(merged["rehearsal"])
        self.assertEqual(sorted(merged["phases"]), ["facts", "models", "ops", "peers", "speed"])
        for name, phase in merged["phases"].items():
            self.assertTrue(phase["complete"], name)
            for identity, row in phase["rows"].items():
                self.assertNotIn("failure", row, identity)
                self.assertNotEqual(row.get("ok"), False, identity)
        rows = merged["phases"]["speed"]["rows"]
        train = rows["train quickstart"]
        self.assertAlmostEqual(train["step_ms"], 4 * train["micro_ms"] + train["update_ms"])
        self.assertAlmostEqual(train["tokens_per_second"] * train["step_ms"] / 1e3, 64)
        self.assertGreater(train["whole_step_ms"], 0)
        self.assertGreater(rows["decode quickstart"]["token_ms"], 0)
        self.assertEqual(rows["decode quickstart, cache int8"]["kv_cache"], "int8")
        self.assertEqual(rows["decode quickstart, weights q8_0"]["weights"], "q8_0")
        self.assertEqual(len(rows["gemm quickstart"]["products"]), 15)
        self.assertEqual(merged["phases"]["models"]["rows"]["comparisons"]["lines"], 14)
        page = (self.folder / "out/gpu.md").read_text()
        self.assertIn("A rehearsal on a CPU", page)
        self.assertIn(merged["phases"]["facts"]["rows"]["host"]["date"], page)
        self.assertIn("llama, float64, 10 steps against PyTorch", page)

    def test_goes_on_where_it_stopped(self):
        self.check("--phase", "facts")
        whole = self.lines("facts")
        self.assertIn("done before", self.check("--phase", "facts"))
        self.assertEqual(self.lines("facts"), whole)
        # Cut off in the middle of a line, after a failure.
        path = self.folder / "out/facts.jsonl"
        failed = {"phase": "facts", "id": "mpi", "failure": "once"}
        path.write_text(json.dumps(whole[0]) + "\n" + json.dumps(failed) + "\n" + '{"phase": "fac')
        self.check("--phase", "facts")
        rows = self.lines_that_parse(path)
        self.assertEqual([row.get("id") for row in rows], ["host", "mpi", "program", "mpi", None])
        self.assertEqual(rows[0], whole[0])
        self.assertEqual(json.loads((self.folder / "out/gpu.json").read_text())["phases"]["facts"]["rows"]["mpi"],
                         rows[3])
        self.check("--phase", "facts", "--again")
        self.assertEqual([row.get("id") for row in self.lines("facts")], ["host", "program", "mpi", None])

    @staticmethod
    def lines_that_parse(path):
        rows = []
        for line in path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                pass
        return rows

    def test_a_missing_program_is_a_failed_row(self):
        (self.folder / "empty").mkdir()
        out = self.check("--phase", "ops", "--build", self.folder / "empty", expect=1)
        self.assertIn("is not in", out)

    def test_refused(self):
        for arguments, says in ((["--phase", "everything"], "everything"), (["--frobnicate"], "--frobnicate"),
                                (["--build"], "needs a value")):
            ran = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False, cwd=self.folder)
            self.assertEqual(ran.returncode, 2)
            self.assertIn(says, ran.stderr)


class PageTest(harness.CommandTest):
    """What the page says of numbers, and that it says of nothing else that it was measured."""

    def page(self, results):
        import page
        predictions = json.loads((harness.SOURCE / "scripts/gpu_check/predictions.json").read_text())
        return page.Page(results, predictions).text()

    def test_numbers_stand_beside_predictions(self):
        row = {"tokens_per_second": 151234.4, "mfu": 0.471, "share_of_gemm_ceiling": 0.59, "micro_ms": 101.26,
               "update_ms": 9.9, "step_ms": 3250.2, "whole_step_ms": 3261.0, "device_bytes": 42 << 30,
               "deterministic": True}
        peers = {mode + " qwen2.5-0.5b": {"tokens_per_second": rate} for mode, rate in
                 (("eager", 60000), ("compiled", 108024.6))}
        text = self.page({"phases": {"speed": {"rows": {"train qwen2.5-0.5b": row}}, "peers": {"rows": peers}}})
        self.assertIn("| 149,000 | 160,000 | 135,000 | 151,234 | 47 % | 59 % | 101.3 | 9.9 | 3,250 (whole: 3,261) "
                      "| 42.0 | yes |", text)
        self.assertIn("| qwen2.5-0.5b | 151,234 | 60,000 | 108,025 | 1.25 | 1.40 |", text)
        self.assertIn("| qwen2.5-1.5b, B 16, S 1024 | 58,900 | 64,000 | 57,000 | not run |", text)

    def test_failures_are_shown(self):
        ops = {"add": {"id": "add", "cases": 7, "ok": False, "wrong": 1, "not_bitwise": 2},
               "norm": {"id": "norm", "failure": "exit code -6"}}
        facts = {"nccl": {"id": "nccl", "failure": "libnccl: not found"}}
        text = self.page({"phases": {"ops": {"rows": ops}, "facts": {"rows": facts}}})
        self.assertIn("7 cases of 1 ops; wrong: add, norm; other bits the second time: 2", text)
        self.assertIn("failed: libnccl: not found", text)


if __name__ == "__main__":
    harness.main()
