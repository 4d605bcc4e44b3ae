#!/usr/bin/env python3
"""Validation losses of training over slow links: the tables of docs/design/outer.md and
docs/design/zero.md, as Markdown.

    scripts/bench/slow_link_losses.py [--only PATTERN] [--steps 2000] [--data DIR] [--out DIR]

Trains configs/shakespeare-small.json once for each row, with 4 ranks of one thread, and validates
after the last step. A run takes about a minute on two cores. The data is that of the configuration,
which `scripts/shakespeare.sh TEXT` prepares, or train and valid (.bin, .idx) in the folder --data.

--out keeps the result of each run (NAME.json), its log (NAME.log) and its records. A row that has a
result with the same settings, steps and data is not run again, also after a build of another
commit: the tables have all results in --out and name all of their commits. Percentages are against
the row `exact`. MB: sent by all ranks in a step, the mean over the steps after a warm-up; sums in
shared memory count as those by a ring.
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from slow_link_rows import CONFIG, NAMES, RANKS, configuration, rows_of

ROOT = Path(__file__).resolve().parents[2]
COMMON = ("cpu.threads_per_rank=1", "evaluation.eval_interval=0", "checkpoint.save_interval=0",
          "logging.log_interval=100")
POINT_TO_POINT = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send")


def sent_bytes(record):
    """Bytes that all ranks sent in a step; what a sum copies into shared memory, by a ring."""
    window = record.get("comm_window_bytes", 0)
    return (sum(record.get(f"comm_{kind}_bytes", 0) for kind in POINT_TO_POINT)
            + 2 * (RANKS - 1) / RANKS * window)


def summarize(row, records):
    """Loss of the last step; bytes in total, and on average in a step after the warm-up."""
    sent = [sent_bytes(record) for record in records]
    after = [n for n, record in zip(sent, records) if record["step"] > row.warmup()] or sent
    return {"loss": records[-1]["validation_loss"], "bytes": sum(sent),
            "bytes_per_step": sum(after) / len(after)}


def read_records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def program_version(program):
    """(commit, processor) that the program reports."""
    try:
        text = subprocess.run([program, "--version"], capture_output=True, text=True,
                              check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{program} --version failed: {error}; build it with scripts/build.sh, "
                 "or name another program with --trireme")
    commit = re.search(r"\(commit (\w{8})\w*(-dirty)?", text)
    processor = re.search(r"(?m)^processor: *(.+)", text)
    return ("".join(filter(None, commit.groups())) if commit else "unknown",
            processor[1] if processor else "an unknown processor")


class Progress:
    """Line on standard error: row, steps, and time left by the mean time of a step so far."""

    def __init__(self, rows, steps):
        self.rows, self.steps, self.row, self.done = rows, steps, 1, 0
        self.begin, self.terminal = time.monotonic(), sys.stderr.isatty()

    def show(self, name, step, end=""):
        """end: how the row ended."""
        done = self.done + step
        left = (self.rows - self.row + 1) * self.steps - step
        seconds = (time.monotonic() - self.begin) / max(done, 1) * left
        text = f"[{self.row}/{self.rows}] {name}: step {step} of {self.steps}{end}"
        if done and left:
            text += f", {seconds / 60:.1f} min left"
        if self.terminal or end:
            print(f"\r{text}\x1b[K" if self.terminal else text, end="\n" if end else "",
                  file=sys.stderr, flush=True)
        if end:
            self.row, self.done = self.row + 1, done


def steps_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def ended(process):
    """Whether the process ends within half a second."""
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        return False
    return True


def data_paths(folder):
    """Training and validation set, without suffix."""
    configured = configuration()["data"]
    paths = ([folder / name for name in ("train", "valid")] if folder else
             [ROOT / configured[f"{name}_data_path"] for name in ("train", "valid")])
    for path in paths:
        if not Path(f"{path}.bin").exists():
            sys.exit(f"no {path}.bin: prepare the data with scripts/shakespeare.sh TEXT, or name "
                     "the folder of train and valid with --data")
    return [str(path.resolve()) for path in paths]


class Runs:
    """Runs of rows, with their results in a folder."""

    def __init__(self, options):
        self.options, self.folder = options, options.out.resolve()
        self.version = program_version(options.trireme)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = data_paths(options.data)

    def identity(self, row):
        """Members of a result that name its run."""
        return {"settings": row.settings, "steps": self.options.steps, "data": self.data}

    def result(self, row):
        """The kept result of a row, or None."""
        path = self.folder / f"{row.name}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return kept if self.identity(row).items() <= kept.items() else None

    def command(self, row):
        own = {"train_steps": self.options.steps, "output_dir": self.folder / row.name,
               "data.train_data_path": self.data[0], "data.valid_data_path": self.data[1]}
        settings = [*COMMON, *(f"{key}={value}" for key, value in (own | row.settings).items())]
        return [self.options.trireme, "pretrain", "--config", CONFIG, "--ranks", str(RANKS),
                *(part for setting in settings for part in ("--set", setting))]

    def run(self, row, progress):
        """Trains and writes the result; returns the reason where that fails."""
        folder, log = self.folder / row.name, self.folder / f"{row.name}.log"
        shutil.rmtree(folder, ignore_errors=True)
        with (log.open("w", encoding="utf-8") as written,
              subprocess.Popen(self.command(row), stdin=subprocess.DEVNULL, stdout=written,
                               stderr=subprocess.STDOUT) as process):
            while not ended(process):
                progress.show(row.name, steps_of(folder / "metrics.jsonl"))
        if process.returncode != 0:
            progress.show(row.name, steps_of(folder / "metrics.jsonl"), ", failed")
            reason = re.search(r"trireme: error: .{,300}", log.read_text(encoding="utf-8",
                                                                       errors="replace"))
            return f"exit code {process.returncode}, see {log}{': ' + reason[0] if reason else ''}"
        result = {**self.identity(row), **summarize(row, read_records(folder / "metrics.jsonl")),
                  "commit": self.version[0], "processor": self.version[1]}
        (self.folder / f"{row.name}.json").write_text(json.dumps(result, indent=1) + "\n",
                                                      encoding="utf-8")
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        progress.show(row.name, self.options.steps, f", loss {result['loss']:.3f}")
        return None


def percent(result, exact):
    if exact is None or result is exact:
        return ""
    value = 100 * (result["loss"] / exact["loss"] - 1)
    return f"{value:+.1f} %" if abs(value) < 10 else f"{value:+.0f} %"


def cells(result, exact, digits):
    """Loss, percentage, MB of a step, MB in total."""
    if result is None:
        return ["", "", "", ""]
    return [f"{result['loss']:.3f}", percent(result, exact),
            f"{result['bytes_per_step'] / 1e6:.{digits}f}", f"{result['bytes'] / 1e6:,.0f}"]


def line(values):
    return "|" + "".join(f" {value} |" if value else " |" for value in values)


def gradients_table(results, exact):
    lines = ["| method | MB | in total | loss | against exact |", "|---|---|---|---|---|"]
    for row, result in results:
        loss, against, step, total = cells(result, exact, 2)
        lines.append(line([row.label, step, total, loss, against]))
    return lines


def sites_table(results, exact):
    """Runs without and with a warm-up side by side."""
    pairs = {}
    for row, result in results:
        pair = pairs.setdefault((row.label, str(row.settings["outer.period"])), [None, None])
        pair[row.warmup() > 0] = result
    lines = ["| algorithm | period | loss | | MB | in total | with a warm-up | | MB | in total |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for key, pair in pairs.items():
        lines.append(line([*key, *(cell for one in pair for cell in cells(one, exact, 3))]))
    return lines


def tables(results, steps):
    """Markdown of [(row, result)]."""
    parts = []
    for group, table in (("gradients", gradients_table), ("weights", gradients_table),
                         ("sites", sites_table)):
        mine = [(row, result) for row, result in results if row.group == group and result]
        if not mine:
            continue
        reference = "stage-3" if group == "weights" else "exact"
        exact = next((result for row, result in results if row.name == reference), None)
        made = [dict.fromkeys(result[key] for _, result in mine) for key in ("commit", "processor")]
        parts += [f"{steps:,} steps, at {', '.join(made[0])} on {'; '.join(made[1])}:", "",
                  *table(mine, exact), ""]
    return "\n".join(parts)


def pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(error) from error


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", "--program", type=Path, default=ROOT / "build/release/trireme",
                        help="default: build/release/trireme")
    parser.add_argument("--only", metavar="PATTERN", type=pattern, default=pattern(""),
                        help=f"run the rows whose name matches, of {', '.join(NAMES)}")
    parser.add_argument("--steps", type=int, default=configuration()["train_steps"],
                        help="warm-ups have the same share of them (default: %(default)s)")
    parser.add_argument("--data", type=Path, help="folder of train and valid")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/slow-links",
                        help="folder of results (default: runs/slow-links)")
    return parser.parse_args()


def main():
    options = parse_arguments()
    runs = Runs(options)
    rows = rows_of(options.steps)
    chosen = [row for row in rows if options.only.search(row.name)]
    if not chosen:
        sys.exit(f"--only {options.only.pattern}: no row has such a name, see --help")
    missing = [row for row in chosen if runs.result(row) is None]
    progress = Progress(len(missing), options.steps)
    failures = []
    try:
        for row in missing:
            if reason := runs.run(row, progress):
                failures.append(f"{row.name} failed with {reason}")
    except KeyboardInterrupt:
        sys.exit(f"interrupted; the same command runs the rows that {options.out} lacks")
    print(tables([(row, runs.result(row)) for row in rows], options.steps), end="")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
