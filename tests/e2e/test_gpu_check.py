"""gpu_check.sh from end to end on a machine without a GPU: a rehearsal, what a cut-off leaves, and the page."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import harness

SCRIPT = harness.SOURCE / "scripts/gpu_check.sh"
BUILD = Path(harness.TRIREME).parent
sys.path.insert(0, str(harness.SOURCE / "scripts/gpu_check"))


# vLLM's words for the same server.
VLLM = """#!/bin/sh
[ "$1 $7 $8" = "serve --served-model-name served" ] || exit 2
[ "${11} ${12} ${13} ${14}" = "--dtype bfloat16 --gpu-memory-utilization 0.9" ] || exit 2
exec "$TRIREME" "$1" "$2" "$3" "$4" "$5" "$6" "$7" "$8" "$9" "${10}" --dtype bf16 --device cpu
"""
# Serves from the second time on.
LATE = """#!/bin/sh
if [ "$1" = serve ] && mkdir "${0%/*}/once"; then echo "no room on this GPU" >&2; exit 2; fi
exec "$TRIREME" "$@"
"""


class GpuCheck(harness.CommandTest):
    def setUp(self):
        super().setUp()
        (self.folder / "tmp").mkdir()
        elsewhere = [folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "vllm").exists()]
        self.environment = {**os.environ, "OUT": str(self.folder / "out"), "TMPDIR": str(self.folder / "tmp"),
                            "PATH": ":".join([str(self.folder / "bin"), *elsewhere])}

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir()
        path.write_text(text)
        path.chmod(0o755)
        return path

    def check(self, *arguments, expect=0):
        ran = subprocess.run([SCRIPT, "--rehearse", "--build", BUILD, *arguments], cwd=self.folder, check=False,
                             env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=550)
        self.assertEqual(ran.returncode, expect, f"{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")
        return ran.stdout

    def lines(self, phase):
        return [json.loads(line) for line in (self.folder / f"out/{phase}.jsonl").read_text().splitlines()]

    def test_rehearsal(self):
        self.program("bin/vllm", VLLM)
        self.check()
        merged = json.loads((self.folder / "out/gpu.json").read_text())
        self.assertTrue(merged["rehearsal"])
        self.assertEqual(sorted(merged["phases"]), ["facts", "models", "ops", "peers", "serve", "speed"])
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
        rows = merged["phases"]["serve"]["rows"]
        for maker in ("trireme", "vllm"):
            self.assertEqual(rows[f"{maker} quickstart"]["kv_tokens"], 256 * 128)
            loop = rows[f"{maker} quickstart, 2 clients"]
            self.assertEqual((loop["requests"], loop["prompt"], loop["tokens"]), (4, 16, 8))
            self.assertGreater(min(loop[name] for name in ("tokens_per_second", "p50_ttft_ms", "p99_itl_ms", "host_us")), 0)
        self.assertEqual(rows["check fp32"]["same_tokens"], 16)
        self.assertGreater(rows["check fp32"]["echo_difference"], 0)  # another device has computed it
        page = (self.folder / "out/gpu.md").read_text()
        self.assertIn("A rehearsal on a CPU", page)
        self.assertRegex(page, r"\| quickstart \| 1 \| not run \| [0-9.,]+ \|.* \| [0-9]+ % \| [0-9]+ \|\n")
        self.assertRegex(page, r"\| quickstart \| 2 \| [0-9.,]+ \| [0-9.,]+ \|.*\| not run \| [0-9]+\.[0-9]{2} \|\n")
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

    def test_a_server_that_does_not_start_is_tried_again_with_the_next_call(self):
        late = self.program("late/trireme", LATE).parent
        (late / "tests").symlink_to(BUILD / "tests")
        self.check("--phase", "serve", "--build", late, expect=1)
        rows = {row["id"]: row for row in self.lines("serve") if "id" in row}
        self.assertRegex(rows["trireme quickstart"]["failure"], "(?s)exit code 2: .*no room on this GPU")
        self.assertEqual(sorted(rows), ["check fp32", "host", "trireme quickstart", "vllm"])
        page = (self.folder / "out/gpu.md").read_text()
        self.assertRegex(page, r"\| quickstart \| 1 \| failed: [^|]*no room on this GPU \| not run: vLLM is not installed \|")
        self.check("--phase", "serve", "--build", late)
        added = [row.get("id") for row in self.lines("serve")][len(rows) + 1:]
        self.assertEqual(added, ["trireme quickstart", *(f"trireme quickstart, {n} clients" for n in (1, 2)), "vllm", None])
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def start_serving(self, *arguments):
        script = SCRIPT.parent / "gpu_check/serve.py"
        return subprocess.Popen([sys.executable, "-B", script, "--rehearse", "--build", BUILD, "--out", self.folder / "out",
                                 *arguments], cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL)

    def servers(self):
        """Processes that serve a checkpoint of this test."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            if b"serve" in words and any(word.startswith(bytes(self.folder / "tmp")) for word in words):
                found.append(int(path.parent.name))
        return found

    def test_no_server_outlives_the_phase(self):
        # Out of time a moment after the first server has come.
        self.assertEqual(self.start_serving("--seconds", "5.5").wait(300), 3)
        self.assertEqual((self.servers(), list((self.folder / "tmp").iterdir())), ([], []))
        killed = self.start_serving("--again")
        self.wait_for(self.servers)
        killed.kill()
        killed.wait()
        self.wait_for(lambda: not self.servers())

    def wait_for(self, what):
        end = time.monotonic() + 120
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

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


class ServedAnswers(harness.CommandTest):
    """When a GPU's answers count as the CPU's."""

    @staticmethod
    def text(*tokens):
        return {"tokens": tokens, "token_logprobs": [-1.0, -2.0],
                "top_logprobs": [{"a": -1.0, "c": -1.5}, {"b": -2.0, "c": -2.0005}]}

    def judge(self, dtype="fp32", **changed):
        import serve
        text = self.text("a", "b")
        want = {"prompts": [[-3.0, -4.0]], "texts": [text], "whole": [[-1.0, -2.0]], "together": [text]}
        return serve.judge({**want, **changed}, want, dtype)

    def test_log_probabilities_may_differ_by_rounding(self):
        self.assertTrue(self.judge()["ok"])
        for name in ("prompts", "whole"):
            own = [-3.0, -4.0] if name == "prompts" else [-1.0, -2.0]
            for dtype, more, ok in (("fp32", 9e-5, True), ("fp32", 2e-4, False), ("bf16", 0.09, True), ("bf16", 0.2, False)):
                self.assertEqual(self.judge(dtype, **{name: [[own[0], own[1] + more]]})["ok"], ok)

    def test_texts_may_part_where_tokens_are_as_likely(self):
        for name in ("texts", "together"):
            for tokens, same, ok in ((("a", "c"), 1, True), (("c", "b"), 0, False)):
                row = self.judge(**{name: [self.text(*tokens)]})
                if name == "together":
                    self.assertEqual((row["ok"], row["texts_together_parted"]), (ok, not ok))
                else:
                    self.assertEqual((row["ok"], row["same_tokens"], row["texts_parted"]), (ok, same, not ok))


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

    def test_servers_stand_beside_each_other(self):
        def loop(rate, between):
            return {"tokens_per_second": rate, "p50_ttft_ms": 3.21, "p99_ttft_ms": 4.5, "p50_itl_ms": between, "p99_itl_ms": 2.5,
                    "host_us": None}

        serve = {"trireme llama-1b": {"kv_tokens": 4123456, "kv_gib": 125.8, "ready_s": 3.14, "free_before_gib": 139.9,
                                      "in_use_gib": 126.4, "in_use_share": 0.9},
                 "trireme llama-1b, 1 clients": loop(900, 1.16), "vllm llama-1b, 1 clients": loop(1200, 0.8),
                 "trireme llama-1b, 8 clients": loop(5000.4, 1.4),
                 "vllm llama-8b": {"failure": "vllm does not serve\nout of memory"},
                 "check bf16": {"echo_difference": 0.2, "whole_difference": 0.01, "same_tokens": 90, "tokens": 96,
                                "texts_parted": 1, "texts_together_parted": 0, "ok": False}}
        speed = {"decode llama-1b": {"floor_ms": 0.58}}
        text = self.page({"phases": {"serve": {"rows": serve}, "speed": {"rows": speed}}})
        self.assertIn("| llama-1b | 1 | 975 | 900 | 3.2 | 4.5 | 1.01 | 1.16 | 2.50 | 57 % | 50 % | not run |", text)
        self.assertIn("| llama-1b | 8 | 5,780 | 5,000 | 3.2 | 4.5 | 1.26 | 1.40 | 2.50 |  |  | not run |", text)
        self.assertIn("| llama-1b | trireme | 139.9 | 126.4 | 90 % | 125.8 | 4,040,000 | 4,123,456 | 3.1 |", text)
        self.assertIn("| llama-1b | 1 | 900 | 1,200 | 3.2 | 3.2 | 1.16 | 0.80 | 2.50 | 2.50 | 1.20 | 0.75 |", text)
        self.assertIn("| llama-8b | 1 | not run | failed: out of memory | not run |", text)
        self.assertIn("90 of 96 tokens, 1 + 0 texts part: DIFFERS", text)

    def test_failures_are_shown(self):
        ops = {"add": {"id": "add", "cases": 7, "ok": False, "wrong": 1, "not_bitwise": 2},
               "norm": {"id": "norm", "failure": "exit code -6"}}
        facts = {"nccl": {"id": "nccl", "failure": "libnccl: not found"}}
        text = self.page({"phases": {"ops": {"rows": ops}, "facts": {"rows": facts}}})
        self.assertIn("7 cases of 1 ops; wrong: add, norm; other bits the second time: 2", text)
        self.assertIn("failed: libnccl: not found", text)


if __name__ == "__main__":
    harness.main()
