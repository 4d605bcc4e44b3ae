#!/usr/bin/env python3
"""Writes docs/reference/performance-gpu.md from the results of gpu_check.sh and the predictions made before it.

    page.py [--results docs/reference/results/gpu.json] [--page docs/reference/performance-gpu.md] [--check]

A number that was not measured is written as "not run". --check compares instead of writing (exit code 1).
"""
import argparse
import collections
import json
import sys
from pathlib import Path

import cases
import serving_tables
import tools
from cells import NOT_RUN, number, percent, table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def update_words(row):
    """The update's time, which is a difference of two."""
    return "not resolved" if row.get("update_ms") == 0 else number(row.get("update_ms"), "{:.1f}")


class Page:
    def __init__(self, results, predictions):
        self.phases = results.get("phases", {})
        self.rehearsal = results.get("rehearsal", False)
        self.predicted = predictions

    def row(self, phase, identity):
        row = self.phases.get(phase, {}).get(identity, {})
        return {} if "failure" in row else row

    def state(self, phase, identity):
        """What a table says of a row besides numbers."""
        row = self.phases.get(phase, {}).get(identity)
        if row is None:
            return NOT_RUN
        return f"failed: {row['failure'].splitlines()[-1][:120].replace('|', '/')}" if "failure" in row else "ok"

    def head(self):
        lines = ["# Performance on a GPU", "",
                 "Written by `scripts/gpu_check/page.py` from the results of the three calls of `scripts/gpu_check.sh` and from",
                 "`scripts/gpu_check/predictions.json`, which is older than the results. Edit neither this page nor the results.",
                 ""]
        host, gpu, libraries = (self.row("facts", name) for name in ("host", "gpu", "libraries"))
        if self.rehearsal:
            lines += ["**A rehearsal on a CPU: the numbers mean nothing.**", ""]
        elif not self.phases:
            lines += ["Nothing of this has run on a GPU yet: every measured cell says so.", ""]
        return lines + table(["", ""], [
            ["date", host.get("date", NOT_RUN)], ["commit", self.commits()],
            ["device", gpu.get("name", NOT_RUN)], ["driver", gpu.get("driver_version", NOT_RUN)],
            ["CUDA runtime, cuBLASLt, cuDNN, NCCL",
             ", ".join(str(libraries.get(n, NOT_RUN)) for n in ("cudart", "cublasLt", "cudnn", "nccl"))],
            ["PyTorch", self.row("facts", "torch").get("torch", NOT_RUN)],
            ["predictions", self.predicted["written"]]])

    def commits(self):
        """Of the programs that made the rows, with their rows where there are several."""
        rows = [row for phase in self.phases.values() for row in phase.values()]
        counts = collections.Counter(row["commit"] for row in rows if row.get("commit"))
        if len(counts) < 2:
            return next(iter(counts), NOT_RUN)
        return ", ".join(f"{name} ({count} rows)" for name, count in counts.most_common())

    def ceilings(self):
        gemm = self.row("speed", f"gemm {cases.GEMM[0]}")
        square = (gemm.get("square") or [{}])[0]
        p = self.predicted["ceilings"]
        rows = [["copy within the device, read plus written, GB/s", number(p["copy_gbytes"]["value"]),
                 number(gemm.get("copy_gbytes")), p["copy_gbytes"]["why"]],
                ["bfloat16 product of side 8192, random operands, TFLOP/s", number(p["gemm_tflops"]["value"]),
                 number(square.get("tflops")), p["gemm_tflops"]["why"]]]
        for model in cases.GEMM:
            rows.append([f"products of {model}, 16,384 tokens, mean share of that",
                         percent(self.predicted["gemm"]["mean_share"]["value"]),
                         percent(self.row("speed", f"gemm {model}").get("mean_share")),
                         self.predicted["gemm"]["mean_share"]["why"]])
        return ["## Ceilings", "", "Training and decoding are related to the same rates, measured by each row's own program.", "",
                *table(["ceiling", "predicted", "measured", "reason of the prediction"], rows)]

    def training(self):
        rows = []
        chosen = [*((model, "") for model in cases.TRAIN), (cases.OTHER_CUDNN, cases.OTHER_CUDNN_WHAT)]
        for at, also in enumerate(cases.TRAIN_ALSO, 1):
            chosen.insert(at, also)
        for model, what in chosen:
            case, r = cases.TRAIN[model], self.row("speed", f"train {model}{what}")
            p = self.predicted["train"].get(model + what, {})
            whole = f" (whole: {number(r['whole_step_ms'])})" if "whole_step_ms" in r else ""
            memory = None if "device_bytes" not in r else r["device_bytes"] / 2**30
            rows.append([f"{model}, B {case['batch']}, S {case['sequence_length']}{what}", predicted_cell(p, "bar"), predicted_cell(p, "aim"),
                         predicted_cell(p, "tokens_per_second"), number(r.get("tokens_per_second")), percent(r.get("mfu")),
                         percent(r.get("share_of_gemm_ceiling")), number(r.get("micro_ms"), "{:.1f}"),
                         update_words(r), number(r.get("step_ms")) + whole,
                         number(memory, "{:.1f}"), clock_words(r),
                         {True: "yes", False: "no"}.get(r.get("deterministic"), NOT_RUN), choice_words(r)])
        text = f"""\
Steps of {cases.STEP_TOKENS:,} tokens in bfloat16 with float32 master weights, derived from the time of a micro-batch and of the
update (`trireme bench train --micro-batches {cases.MICRO_BATCHES}`{self.fewer()}).{self.medians()} Bars: of the Qwen2.5 shapes the best published for one H100; of GPT-2
the rate of one of eight H100; of Llama what these come to. The Qwen2.5 shapes have a bias on the attention's output, which those
models lack. "Of nominal" counts `6N + 6 L H D S` FLOPs a token; recomputed ones do not count. By model:
{case_words()}"""
        return ["## Training", "", *text.splitlines(), "",
                *table(["model", "bar, tokens/s", "aim", "predicted", "measured", "of nominal", "of the product",
                        "micro-batch, ms", "update, ms", "step, ms", "memory, GiB", "clock, MHz; W", "deterministic",
                        "attention; products"], rows)]

    def fewer(self):
        """Models with micro-batches of their own."""
        own = {model: case["micro_batches"] for model, case in cases.TRAIN.items() if "micro_batches" in case}
        return "".join(f", {model}: {count}" for model, count in own.items())

    def medians(self):
        """Rows of programs that took the median of a GPU's steps."""
        of = [name.removeprefix("train ") for name, row in self.phases.get("speed", {}).items()
              if name.startswith("train ") and row.get("steps", 0) > 1 and "median_ms" in row
              and row["median_ms"] != row["least_ms"]]
        return f" Medians of three steps, the others are means: {'; '.join(of)}." if of else ""

    def float8(self):
        rows = []
        for model in cases.FP8_ORDER:
            r, p = self.row("speed", f"train fp8 {model}"), self.predicted["train_fp8"][model]
            narrow, wide = (row.get("tokens_per_second") for row in (r, self.row("speed", f"train {model}")))
            rows.append([model, number(p["aim"]), number(p["tokens_per_second"]), number(narrow),
                         number(narrow / wide if narrow and wide else None, "{:.2f}"),
                         number(r.get("micro_ms"), "{:.1f}"), update_words(r), choice_words(r)])
        return ["## Products in 8-bit floats", "",
                f"The same steps with linear layers in fp8 (`--fp8 {cases.FP8_RECIPE}`, [8-bit floats](../design/float8.md)).", "",
                *table(["model", "aim, tokens/s", "predicted", "measured", "to bfloat16", "micro-batch, ms", "update, ms",
                        "attention; products"],
                       rows)]

    def peers(self):
        rows = []
        for model in cases.PEERS_ORDER:
            ours = self.row("speed", f"train {model}").get("tokens_per_second")
            eager, compiled = (self.row("peers", f"{mode} {model}").get("tokens_per_second")
                               for mode in ("eager", "compiled"))
            ratio = ours / compiled if ours and compiled else None
            rows.append([model, number(ours), number(eager), number(compiled),
                         number(self.predicted["peer_ratio"]["value"], "{:.2f}"), number(ratio, "{:.2f}")])
        return ["## Beside PyTorch", "",
                "The same model, batch and dtype on the same device (`scripts/bench/torch_peer.py --device cuda`): weights and moments",
                "in bfloat16 without master weights, scaled dot-product attention, fused AdamW.", "",
                *table(["model", "tokens/s", "PyTorch eager", "compiled", "ratio to compiled, predicted", "measured"], rows)]

    def ops(self):
        measured = self.row("speed", "ops")
        copy = measured.get("copy_gbytes")
        p, rows = self.predicted["ops"], []
        for op in measured.get("ops", []):
            bound = "products" if op["gflops"] > 0 else "memory"
            wanted = p.get(op["op"], {}).get("tflops")
            predicted = f"{wanted} TFLOP/s" if wanted else \
                percent(p["elementwise_share_of_copy"]["value"]) if bound == "memory" else ""
            rate = f"{op['gflops'] / 1e3:.0f} TFLOP/s" if bound == "products" else f"{op['gbytes_per_second']:,.0f} GB/s"
            rows.append([op["op"], op["shape"], f"{1e3 * op['ms']:.0f}", rate, predicted,
                         percent(op["gbytes_per_second"] / copy if copy and bound == "memory"
                                 else op["share_of_floor"])])
        if not rows:
            rows = [["elementwise ops", "65536 tokens of GPT-2 124M", NOT_RUN, NOT_RUN,
                     percent(p["elementwise_share_of_copy"]["value"]), NOT_RUN]]
            rows += [[op, "S 4096, D 128" if "heads" in op else "S 1024, D 64", NOT_RUN, NOT_RUN,
                      f"{p[op]['tflops']} TFLOP/s", NOT_RUN] for op in p if op.startswith("attention")]
        return ["## Ops", "", "bfloat16 (`trireme bench ops`); of the copy rate, or of what products or bytes need at least.", "",
                *table(["op", "shape", "time, us", "rate", "predicted", "share"], rows)]

    def decode(self):
        rows = []
        for name in [model + what for model, what, *_ in cases.DECODE_FIRST + cases.DECODE_LATER]:
            r = self.row("speed", f"decode {name}")
            rows.append([name, 1, number(r.get("floor_ms"), "{:.2f}"),
                         percent(self.predicted["decode"]["share_of_floor"]["value"]),
                         number(r.get("token_ms"), "{:.2f}"), percent(r.get("share_of_floor")),
                         number(r.get("tokens_per_second"), "{:.0f}"), choice_words(r)])
        return ["## Decoding", "",
                "One sequence, prompt of 512 tokens and bfloat16 where nothing else is said, against reading weights, keys and values once",
                "at the measured copy rate (`trireme bench decode`). Several sequences at a time are [served](#serving).", "",
                *table(["model", "batch", "floor, ms", "predicted share", "a token, ms", "share", "tokens/s",
                        "attention; products"], rows)]

    def few_rows(self):
        rows = []
        for weights in cases.FEW_ROWS_WEIGHTS:
            # Rows of programs up to 34c0f8cb have the share of reading under the other name.
            shares = {p["rows"]: p.get("share_of_reading", p["share_of_floor"]) for p in self.row("speed", f"rows {weights}").get("products", [])}
            counts = map(int, cases.FEW_ROWS.split(","))
            rows.append([weights, percent(self.predicted["rows"][weights]), *(percent(shares.get(n)) for n in counts)])
        return ["## Products of few rows", "",
                "Share of the time in which the weights are read once at the measured copy rate (`trireme bench rows`);",
                "predicted: of 1 to 16 rows.", "",
                *table(["weights", "predicted", *(f"{n} rows" for n in cases.FEW_ROWS.split(","))], rows)]

    def times(self):
        rows = []
        for model in cases.LAUNCH_TIMES:
            step = self.row("tools", f"launch times {model}")
            for time in step.get("times", [])[:12]:
                rows.append([model, time["name"], time["calls"], f"{time['us']:,.0f}", percent(time["us"] / step["step_us"])])
            if not step:
                rows.append([model, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN])
        return ["## Where a training step's time goes", "",
                "One micro-batch and the update, not recorded, each call between two events (`trireme bench train --launch-times`).", "",
                *table(["model", "call", "calls", "us", "of all"], rows)]

    def op_cases(self, prefix):
        """What the cases of all ops say; prefix: of their rows, "" for the rows without one."""
        ops = [row for name, row in self.phases.get("ops", {}).items()
               if name.startswith(prefix) and bool(prefix) == (", " in name)]
        counted = [row for row in ops if "cases" in row]
        failed = [row["id"] for row in ops if "failure" in row or row.get("ok") is False]
        return f"{sum(row['cases'] for row in counted)} cases of {len(counted)} ops; wrong: {', '.join(failed) or 'none'}; " \
               f"other bits the second time: {sum(row['not_bitwise'] for row in counted)}" if ops else NOT_RUN

    def checks(self):
        predicted = self.predicted["checks"]["ops"]
        rows = [[f"every op against the CPU, {what}", predicted, self.op_cases(prefix)]
                for what, prefix in (("float32, bfloat16 and integers", ""), ("float64 and float16", "other types, "))]
        rows.append(["large cases against another way on the GPU", predicted, self.op_cases("large, ")])
        models = [row for row in self.phases.get("models", {}).values() if "check" in row]
        for row in models:
            rows.append([f"{row['model']}, {row['dtype']}, {row['steps']} steps against "
                         f"{ {'golden': 'PyTorch', 'cpu': 'the CPU', 'run': 'the CPU (whole run)'}[row['check']]}",
                         f"within {row['tolerance']:.0e}",
                         f"loss {row['loss_difference']:.1e}, norm {row['norm_difference']:.1e}: "
                         f"{'agrees' if row['ok'] else 'DIFFERS'}"])
        if not models:
            rows.append(["tiny models, losses and gradient norms", self.predicted["checks"]["models"], NOT_RUN])
        for name, what in (("nccl", "NCCL, one rank"), ("sass", "machine code")):
            row, state = self.row("facts", name), self.state("facts", name)
            rows.append([what, self.predicted["checks"][name],
                         state if not row else "yes" if row.get("ok") else "NO"])
        rows += serving_tables.checks(self)
        for tool in tools.SANITIZERS:
            row = self.row("tools", tool)
            rows.append([f"compute-sanitizer, {tool}, {len(row.get('ops', cases.SANITIZED))} ops", "",
                         row.get("says", self.state("tools", tool))])
        return ["## Checks", "", *table(["what", "predicted", "outcome"], rows)]

    def text(self):
        parts = [self.head(), self.ceilings(), self.training(), self.float8(), self.peers(), self.ops(), self.decode(),
                 self.few_rows(), serving_tables.serving(self), serving_tables.prompts(self), serving_tables.memory(self), serving_tables.beside(self), self.times(),
                 self.checks()]
        return "\n".join(line.replace("\n", " ") for part in parts for line in part).rstrip() + "\n"


def predicted_cell(prediction, name):
    """A cell of a prediction; empty where none was made."""
    return number(prediction[name]) if name in prediction else ""


def clock_words(row):
    """Median clock and mean power while a row was made; empty for rows of programs that did not sample them."""
    clocks = row.get("clocks")
    return f"{clocks['sm_mhz']:.0f}; {clocks['watts']:.0f}" if clocks else ""


def choice_words(row):
    """How attention and products were computed, of a row of measurements."""
    return f"{row['attention']}; {row['gemm_choice']}" if "attention" in row else NOT_RUN


def case_words():
    special = [f"{model}: {', '.join(words)}" for model, case in cases.TRAIN.items()
               for words in [[w for w in (
                   "bfloat16 moments" if case.get("state_dtype") == "bfloat16" else "",
                   f"{case['recompute']} recomputation" if "recompute" in case else "") if w]] if words]
    return f"{'; '.join(special)}."


def read(path, default):
    return json.loads(Path(path).read_text(encoding="utf-8")) if Path(path).exists() else default


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default=ROOT / "docs/reference/results/gpu.json")
    parser.add_argument("--page", default=ROOT / "docs/reference/performance-gpu.md")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = Page(read(arguments.results, {}), read(HERE / "predictions.json", None)).text()
    page = Path(arguments.page)
    if not arguments.check:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        sys.exit(f"{page} is not what {arguments.results} and the predictions say; run scripts/gpu_check/page.py")


if __name__ == "__main__":
    main()
