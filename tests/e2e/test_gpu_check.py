"""gpu_check.sh from end to end on a machine without a GPU: a rehearsal, what a cut-off leaves, and the page."""
import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
import unittest.mock
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


MAX_FILES, MAX_BYTES = 8, 16 << 20  # that come back from a host with a GPU


class GpuCheck(harness.CommandTest):
    def setUp(self):
        super().setUp()
        (self.folder / "tmp").mkdir()
        path = os.environ["PATH"].split(":")
        elsewhere = [folder for folder in path if not (Path(folder) / "vllm").exists()]
        self.environment = {**os.environ, "TMPDIR": str(self.folder / "tmp"),
                            "PATH": ":".join([str(self.folder / "bin"), *elsewhere])}

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def check(self, *arguments, build=BUILD, rehearse=True, expect=0):
        words = [SCRIPT, "--build", build, *arguments, *(["--rehearse"] if rehearse else [])]
        ran = subprocess.run(words, cwd=self.folder, check=False, env=self.environment,
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=590)
        self.assertEqual(ran.returncode, expect, f"{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")
        return ran.stdout

    def rows(self, out):
        """{phase: {id: row}} of a call."""
        import merge
        return merge.merged([self.folder / out / "rows.jsonl"])["phases"]

    def call(self, number, *arguments, **options):
        """What call `number` says; its files are what may come back."""
        out = self.folder / f"out{number}"
        text = self.check("--call", str(number), "--out", out, *arguments, **options)
        files = {path.name: path.stat().st_size for path in out.iterdir()}
        self.assertEqual(sorted(files), ["gpu.json", "gpu.md", "logs.tar.gz", "rows.jsonl"])
        self.assertLessEqual(len(files), MAX_FILES)
        self.assertLessEqual(max(files.values()), MAX_BYTES)
        return text

    def test_rehearsal(self):
        self.program("bin/vllm", VLLM)
        for number in (1, 2, 3):
            self.call(number)
        # Rows that are known are not made again.
        (self.folder / "out1").rename(self.folder / "first")
        self.call(1, "--seen", self.folder / "first/rows.jsonl")
        self.assertEqual(self.rows("out1"), {})
        merged = self.merge("first", "out2", "out3")
        self.assertTrue(merged["rehearsal"])
        self.assertEqual(merged["calls"], {"1": True, "2": True, "3": True})
        self.assertEqual(sorted(merged["phases"]),
                         ["facts", "models", "ops", "peers", "serve", "speed"])
        for phase in merged["phases"].values():
            for identity, row in phase.items():
                self.assertNotIn("failure", row, identity)
                self.assertNotEqual(row.get("ok"), False, identity)
        self.check_numbers(merged["phases"])
        page = (self.folder / "page.md").read_text()
        self.assertIn("A rehearsal on a CPU", page)
        self.assertRegex(
            page, r"\| quickstart \| 1 \| not run \| [0-9.,]+ \|.* \| [0-9]+ % \| [0-9]+ \|\n")
        self.assertRegex(page, r"\| quickstart \| 2 \| [0-9.,]+ \| [0-9.,]+ \|.*"
                               r"\| not run \| [0-9]+\.[0-9]{2} \|\n")
        self.assertIn(merged["phases"]["facts"]["host"]["date"], page)
        self.assertIn("llama, float64, 10 steps against PyTorch", page)

    def merge(self, *folders):
        scripts, into = SCRIPT.parent / "gpu_check", self.folder / "docs/gpu.json"
        run = [sys.executable, "-B", scripts / "merge.py", *(self.folder / f for f in folders)]
        subprocess.run([*run, "--into", into], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-B", scripts / "page.py", "--results", into,
                        "--page", self.folder / "page.md"], check=True)
        return json.loads(into.read_text())

    def write_rows(self, folder, device, *rows):
        opened = {"phase": "facts", "id": "opened", "program": {"device": device}}
        (self.folder / folder).mkdir()
        (self.folder / folder / "rows.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in (opened, *rows)))

    def test_results_are_added_to_those_of_the_same_device(self):
        def row(identity, **values):
            return {"phase": "speed", "id": identity, **values}

        self.write_rows("first", "H200", row("a", value=1), row("b", value=2), row("c", failure="no"))
        self.write_rows("later", "H200", row("b", value=3), row("a", failure="no"), row("c", value=4))
        self.write_rows("other", "H100", row("a", value=5))
        merge = [sys.executable, "-B", SCRIPT.parent / "gpu_check/merge.py", "--into", self.folder / "gpu.json"]
        for folder, code in (("first", 0), ("later", 0), ("other", 2)):
            ran = subprocess.run([*merge, self.folder / folder], capture_output=True, text=True, check=False)
            self.assertEqual(ran.returncode, code)
        self.assertIn("gpu.json has results of H200, these are of H100: one file is of one device", ran.stderr)
        speed = json.loads((self.folder / "gpu.json").read_text())["phases"]["speed"]
        self.assertEqual({name: speed[name].get("value") for name in speed}, {"a": 1, "b": 3, "c": 4})

    def check_numbers(self, phases):
        rows = phases["speed"]
        train = rows["train quickstart"]
        self.assertAlmostEqual(train["step_ms"], 4 * train["micro_ms"] + train["update_ms"])
        self.assertAlmostEqual(train["tokens_per_second"] * train["step_ms"] / 1e3, 64)
        self.assertGreater(train["whole_step_ms"], 0)
        self.assertGreater(rows["decode quickstart"]["token_ms"], 0)
        self.assertEqual(rows["decode quickstart, cache int8"]["kv_cache"], "int8")
        self.assertEqual(rows["decode quickstart, weights q8_0"]["weights"], "q8_0")
        self.assertEqual(len(rows["gemm quickstart"]["products"]), 15)
        for weights in ("bfloat16", "q8_0", "q4_0"):
            counts = [product["rows"] for product in rows[f"rows {weights}"]["products"]]
            self.assertEqual(counts, [1, 2, 4, 8, 16, 32, 64])
        ranks = phases["models"]["run llama, 2 ranks"]
        self.assertGreater(ranks["loss_difference"], 0)  # of another order of sums
        self.assertEqual(sorted(phases["ops"]), ["add", "fill_zero"])
        self.assertEqual(phases["models"]["comparisons"]["lines"], 14)
        rows = phases["serve"]
        for maker in ("trireme", "vllm"):
            self.assertEqual(rows[f"{maker} quickstart"]["kv_tokens"], 256 * 128)
            loop = rows[f"{maker} quickstart, 2 clients"]
            self.assertEqual((loop["requests"], loop["prompt"], loop["tokens"]), (4, 16, 8))
            times = ("tokens_per_second", "p50_ttft_ms", "p99_itl_ms", "host_us")
            self.assertGreater(min(loop[name] for name in times), 0)
        prompt = rows["trireme quickstart, prompt of 96"]
        self.assertGreater(min(prompt["ttft_ms"], prompt["ttft_cached_ms"]), 0)
        self.assertEqual(rows["check fp32"]["same_tokens"], 16)
        self.assertGreater(rows["check fp32"]["echo_difference"], 0)  # of another device

    def test_a_server_that_does_not_start_is_tried_again_with_the_next_call(self):
        late = self.program("late/trireme", LATE).parent
        (late / "tests").symlink_to(BUILD / "tests")
        self.call(3, build=late, expect=1)
        rows = self.rows("out3")["serve"]
        self.assertRegex(rows["trireme quickstart"]["failure"],
                         "(?s)exit code 2: .*no room on this GPU")
        self.assertEqual(sorted(rows), ["check fp32", "host", "trireme quickstart", "vllm"])
        page = (self.folder / "out3/gpu.md").read_text()
        self.assertRegex(page, r"\| quickstart \| 1 \| failed: [^|]*no room on this GPU "
                               r"\| not run: vLLM is not installed \|")
        kept = self.folder / "kept.jsonl"
        (self.folder / "out3/rows.jsonl").rename(kept)
        self.call(3, "--seen", kept, build=late)
        self.assertEqual(list(self.rows("out3")["serve"]),
                         ["trireme quickstart", *(f"trireme quickstart, {n} clients" for n in (1, 2)),
                          "trireme quickstart, prompt of 96", "vllm"])
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def start_serving(self, *arguments):
        script = SCRIPT.parent / "gpu_check/check.py"
        words = [sys.executable, "-B", script, "--rehearse", "--call", "3", "--build", BUILD,
                 "--out", self.folder / "out", *arguments]
        return subprocess.Popen(words, cwd=self.folder, env=self.environment,
                                stdout=subprocess.DEVNULL)

    def servers(self):
        """Processes that serve a checkpoint of this test."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            own = bytes(self.folder / "tmp")
            if b"serve" in words and any(word.startswith(own) for word in words):
                found.append(int(path.parent.name))
        return found

    def test_no_server_outlives_the_call(self):
        # Out of time a moment after the first server has come.
        self.assertEqual(self.start_serving("--seconds", "5.5").wait(300), 3)
        self.assertEqual((self.servers(), list((self.folder / "tmp").iterdir())), ([], []))
        killed = self.start_serving()
        self.wait_for(self.servers)
        killed.kill()
        killed.wait()
        self.wait_for(lambda: not self.servers())

    def wait_for(self, what):
        end = time.monotonic() + 120
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_a_missing_program_is_a_failed_row(self):
        (self.folder / "empty").mkdir()
        self.assertIn("is not in", self.call(1, build=self.folder / "empty", expect=1))

    def test_tools_run_ops_that_there_are(self):
        import cases
        program = BUILD / "tests/cuda/gpu_ops_emulated"
        names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual({*cases.SANITIZED, *cases.COUNTED} - set(names), set())
        ran = subprocess.run([program, "add", "topk_route"], capture_output=True, text=True, check=False)
        self.assertEqual((ran.returncode, ran.stdout), (2, ""))
        self.assertIn("no op has the name topk_route", ran.stderr)

    def test_stops_loudly_without_cudnn(self):
        build = self.folder / "fake"
        self.program("fake/gpu_ops", "#!/bin/sh\necho '{\"cudnn\": \"libcudnn.so.9: not found\"}'\n")
        out = self.call(1, build=build, rehearse=False, expect=1)
        self.assertIn("!! NO cuDNN: libcudnn.so.9: not found", out)
        facts = self.rows("out1")["facts"]
        self.assertEqual(list(facts), ["host", "opened"])
        self.assertEqual(sorted(facts["opened"]["libraries"]), ["cublasLt", "cudnn", "nccl"])

    def test_refused(self):
        for arguments, says in ((["--call", "4"], "got \"4\""), (["--frobnicate"], "--frobnicate"),
                                (["--build"], "needs a value"), (["--call", "1"], "--out"),
                                (["--merge"], "folders"), (["everything"], "everything"),
                                (["--call", "1", "--out", "x", "--seconds", "44"], "45 to 575"),
                                (["--call", "1", "--out", "x", "--seconds", "576"], "45 to 575")):
            ran = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False,
                                 cwd=self.folder)
            self.assertEqual(ran.returncode, 2)
            self.assertIn(says, ran.stderr)

    def test_bundle(self):
        bundle = self.folder / "bundle.tar.xz"
        script = harness.SOURCE / "scripts/gpu_bundle.sh"
        subprocess.run([script, "--build", BUILD, bundle], check=True, stdout=subprocess.DEVNULL)
        self.assertLess(bundle.stat().st_size, 40 << 20)
        with tarfile.open(bundle) as packed:
            packed.extractall(self.folder / "host")
        host = self.folder / "host"
        for name in ("trireme", "tests/cuda/gpu_ops", "tests/cuda/gpu_models"):
            text = subprocess.run(["ldd", host / name], capture_output=True, text=True, check=True,
                                  env={**os.environ, "LD_LIBRARY_PATH": str(host / "lib")}).stdout
            own = [line.split()[0] for line in text.splitlines() if str(host / "lib") in line]
            self.assertIn("libgomp.so.1", own)
            self.assertNotIn("not found", text)
        said = [subprocess.run([program, "--version"], capture_output=True, text=True, check=True,
                               env={**os.environ, "LD_LIBRARY_PATH": libraries}).stdout
                for program, libraries in ((harness.TRIREME, ""), (host / "trireme", str(host / "lib")))]
        self.assertIn("devices:", said[0])  # "built with CUDA", or without
        self.assertEqual(said[1], said[0])


# Six ops: the second kills the process, the fourth says nothing more, the fifth is wrong.
CRASHING = """#!{python}
import json, os, sys, time
after = sys.argv[sys.argv.index("--after") + 1] if "--after" in sys.argv else ""
for op in "abcdef":
    if op <= after:
        continue
    print(json.dumps({{"begin": op}}), flush=True)
    if op == "b":
        os.abort()
    if op == "d":
        time.sleep(600)
    print(json.dumps({{"op": op, "ok": op != "e", "bitwise": True, "max_error": 1, "tolerance": 2}}),
          flush=True)
"""


class Ops(harness.CommandTest):
    """One process for all ops, until one of them ends it."""

    def test_goes_on_after_an_op_that_crashes_or_hangs(self):
        import ops
        from phase import Call, Phase
        program = self.folder / "gpu_ops"
        program.write_text(CRASHING.format(python=sys.executable))
        program.chmod(0o755)
        call = Call(argparse.Namespace(out=self.folder / "out", seen=[], seconds=300, call=1,
                                       build=self.folder, rehearse=False, only=None))
        ops.Runner(Phase(call, "ops"), program, [], "", 2).run()
        rows = Phase(call, "ops").rows
        self.assertEqual(list(rows), list("abcdef"))
        self.assertEqual([row.get("ok") for row in rows.values()],
                         [True, None, True, None, False, True])
        self.assertIn("exit code -6", rows["b"]["failure"])
        self.assertIn("nothing came for 2 s", rows["d"]["failure"])
        self.assertEqual(rows["a"]["largest_share_of_tolerance"], 0.5)


class ClocksOfRows(harness.CommandTest):
    """What nvidia-smi says while a row is made."""

    def test_lines(self):
        import clocks
        self.assertEqual(clocks.parsed("1980, 3201, 655.25, 47\n"), [1980, 3201, 655.25, 47])
        for line in ("", "1980, 3201, [N/A], 47\n", "1980, 32"):
            self.assertIsNone(clocks.parsed(line), line)

    def test_idle_samples_do_not_count(self):
        import clocks
        busy = clocks.summary([[345, 3201, 76, 30], [1980, 3201, 400, 50], [1755, 3201, 690, 60]])
        self.assertEqual(busy["clocks"], {"samples": 2, "sm_mhz": 1867.5, "sm_min_mhz": 1755, "watts": 545.0,
                                          "max_watts": 690, "max_celsius": 60})
        self.assertEqual(clocks.summary([[345, 3201, 76, 30]]), {})

    def test_rows_have_those_of_their_time(self):
        import clocks
        self.program("nvidia-smi", "#!/bin/sh\necho '1980, 3201, 600, 50'\nexec sleep 600\n")
        with unittest.mock.patch.dict(os.environ, {"PATH": f"{self.folder}:{os.environ['PATH']}"}):
            sampled = clocks.Clocks()
        self.addCleanup(sampled.stop)
        begin = time.monotonic() - 1
        while not sampled.between(begin, time.monotonic()):
            self.assertLess(time.monotonic(), begin + 120)
            time.sleep(0.01)
        self.assertEqual(sampled.between(0, begin), {})
        self.assertEqual(sampled.between(begin, time.monotonic())["clocks"]["sm_mhz"], 1980)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


class ChosenRows(harness.CommandTest):
    """--only, and what rows say of the programs that made them."""

    def call(self, only):
        import re
        from phase import Call
        return Call(argparse.Namespace(out=self.folder / "out", seen=[], seconds=60, call=1, build=self.folder,
                                       rehearse=False, only=re.compile(only)))

    def test_other_rows_need_not_be_made(self):
        from phase import Phase
        call = self.call("^speed train .*7b$")
        made = []
        for identity in ("train qwen2.5-7b", "train fp8 qwen2.5-7b", "train qwen2.5-7b, timed", "decode qwen2.5-7b"):
            Phase(call, "speed").row(identity, lambda identity=identity: made.append(identity) or {})
        Phase(call, "facts").row("train qwen2.5-7b", lambda: made.append("facts") or {})
        self.assertEqual(made, ["train qwen2.5-7b", "train fp8 qwen2.5-7b"])
        self.assertTrue(call.chosen)

    def test_an_expression_of_no_row_is_an_error(self):
        import check
        call = self.call("^sped")
        with unittest.mock.patch.dict(check.CALLS, {1: lambda call: None}):
            self.assertEqual(check.run(call), 2)
        self.assertFalse(json.loads((self.folder / "out/rows.jsonl").read_text())["complete"])

    def test_the_page_counts_the_rows_of_commits(self):
        import page
        rows = {name: {"commit": commit} for name, commit in (("a", "1234"), ("b", "5678"), ("c", "5678"))}
        predictions = json.loads((harness.SOURCE / "scripts/gpu_check/predictions.json").read_text())
        text = page.Page({"phases": {"speed": rows}}, predictions).text()
        self.assertIn("| commit | 5678 (2 rows), 1234 (1 rows) |", text)


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
               "deterministic": True, "attention": "cudnn 48", "gemm_choice": "heuristic",
               "clocks": {"sm_mhz": 1897.5, "watts": 655.4}}
        peers = {mode + " qwen2.5-0.5b": {"tokens_per_second": rate} for mode, rate in
                 (("eager", 60000), ("compiled", 108024.6))}
        text = self.page({"phases": {"speed": {"train qwen2.5-0.5b": row}, "peers": peers}})
        self.assertIn("| 149,000 | 160,000 | 145,000 | 151,234 | 47 % | 59 % | 101.3 | 9.9 | 3,250 (whole: 3,261) "
                      "| 42.0 | 1898; 655 | yes | cudnn 48; heuristic |", text)
        self.assertIn("| qwen2.5-0.5b | 151,234 | 60,000 | 108,025 | 1.15 | 1.40 |", text)
        self.assertIn("| qwen2.5-1.5b, B 16, S 1024 | 58,900 | 64,000 | 60,000 | not run |", text)

    def test_servers_stand_beside_each_other(self):
        def loop(rate, between):
            return {"tokens_per_second": rate, "p50_ttft_ms": 3.21, "p99_ttft_ms": 4.5, "p50_itl_ms": between, "p99_itl_ms": 2.5,
                    "host_us": None}

        serve = {"trireme llama-1b": {"kv_tokens": 4123456, "kv_gib": 125.8, "ready_s": 3.14, "free_before_gib": 139.9,
                                      "in_use_gib": 126.4, "in_use_share": 0.9},
                 "trireme llama-1b, 1 clients": loop(900, 1.16), "vllm llama-1b, 1 clients": loop(1200, 0.8),
                 "trireme llama-1b, 32 clients": loop(5000.4, 1.4),
                 "vllm llama-8b": {"failure": "vllm does not serve\nout of memory"},
                 "check bf16": {"echo_difference": 0.2, "whole_difference": 0.01, "same_tokens": 90, "tokens": 96,
                                "texts_parted": 1, "texts_together_parted": 0, "ok": False}}
        speed = {"decode llama-1b": {"floor_ms": 0.58}}
        text = self.page({"phases": {"serve": serve, "speed": speed}})
        self.assertIn("| llama-1b | 1 | 975 | 900 | 3.2 | 4.5 | 1.01 | 1.16 | 2.50 | 57 % | 50 % | not run |", text)
        self.assertIn("| llama-1b | 32 | 17,000 | 5,000 | 3.2 | 4.5 | 1.25 | 1.40 | 2.50 |  |  | not run |", text)
        self.assertIn("| llama-1b | trireme | 139.9 | 126.4 | 90 % | 125.8 | 4,040,000 | 4,123,456 | 3.1 |", text)
        self.assertIn("| llama-1b | 1 | 900 | 1,200 | 3.2 | 3.2 | 1.16 | 0.80 | 2.50 | 2.50 | 1.20 | 0.75 |", text)
        self.assertIn("| llama-8b | 1 | not run | failed: out of memory | not run |", text)
        self.assertIn("90 of 96 tokens, 1 + 0 texts part: DIFFERS", text)

    def test_failures_are_shown(self):
        ops = {"add": {"id": "add", "cases": 7, "ok": False, "wrong": 1, "not_bitwise": 2},
               "norm": {"id": "norm", "failure": "exit code -6"}}
        facts = {"nccl": {"id": "nccl", "failure": "libnccl: not found"}}
        text = self.page({"phases": {"ops": ops, "facts": facts}})
        self.assertIn("7 cases of 1 ops; wrong: add, norm; other bits the second time: 2", text)
        self.assertIn("failed: libnccl: not found", text)


if __name__ == "__main__":
    harness.main()
