"""Phase ops: every case of the registry on the GPU against the CPU, outputs poisoned, twice the same bits; and the large
cases, which no CPU repeats in time, against another way to compute them on the GPU.

One process runs all ops, one after the other. Where it dies or hangs, that op has failed, and another process goes on
after it.
"""
import json
import os
import queue
import subprocess
import threading

import cases
from phase import Failure, OutOfTime

MEASURED = ("shape", "dtype", "microseconds", "gbytes_per_s", "tflops", "reference")


def lines_of(process, lines):
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def summary(op, found):
    wrong = [case for case in found if not case["ok"]]
    row = {"op": op, "ok": not wrong, "cases": len(found), "wrong": len(wrong),
           "not_bitwise": sum(not case["bitwise"] for case in found), "first_wrong": wrong[0] if wrong else None,
           "largest_share_of_tolerance": max(
               (case["max_error"] / case["tolerance"] for case in found if case["tolerance"]), default=0)}
    timed = [{name: case.get(name) for name in MEASURED} for case in found if "microseconds" in case]
    return {**row, "timed": timed} if timed else row


class Runner:
    """The processes that run ops, and rows of what they say."""

    def __init__(self, phase, program, arguments, prefix, seconds):
        self.phase, self.program, self.arguments = phase, program, list(map(str, arguments))
        self.prefix, self.seconds = prefix, seconds  # of an op

    def run(self):
        after = None
        while True:
            after, alive = self.run_process(after)
            if alive:
                return

    def run_process(self, after):
        """Ops behind `after`; (the op it ended in, whether it ended well)."""
        command = [str(self.program), *self.arguments, *(["--after", after] if after else [])]
        log = open(self.phase.log("gpu_ops.log"), "a", encoding="utf-8")
        environment = {**os.environ, **self.phase.call.environment(self.program)}
        with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, stdin=subprocess.DEVNULL,
                                   env=environment) as process:
            lines = queue.Queue()
            threading.Thread(target=lines_of, args=(process, lines), daemon=True).start()
            try:
                return self.follow(process, lines)
            finally:
                process.kill()

    def follow(self, process, lines):
        op, found = None, []
        while True:
            try:
                line = lines.get(timeout=max(1, min(self.seconds, self.phase.left - 2)))
            except queue.Empty:
                if self.phase.left < 5:
                    raise OutOfTime from None
                self.fail(op, f"nothing came for {self.seconds} s after {len(found)} cases")
                return op, op is None
            if line is None:
                code = process.wait()
                if code in (0, 1):
                    self.finish(op, found)
                    return op, True
                self.fail(op, f"exit code {code} after {len(found)} cases")
                return op, op is None  # where the first op is not reached, no later one is
            said = json.loads(line)
            if "begin" not in said:
                found.append(said)
                continue
            self.finish(op, found)
            op, found = said["begin"], []

    def finish(self, op, found):
        if op is not None and found and not self.phase.has(self.prefix + op):
            self.phase.add(self.prefix + op, summary(op, found))

    def fail(self, op, why):
        self.phase.add(self.prefix + (op or "start"), {"failure": f"{why}: see gpu_ops.log"})


def run_missing(phase, program, arguments, prefix, seconds):
    names = cases.REHEARSED_OPS if phase.options.rehearse else phase.run(program, "--list").split()
    missing = [name for name in names if not phase.has(prefix + name)]
    if missing:
        Runner(phase, program, [*arguments, *missing], prefix, seconds).run()


def work(phase, dtypes, prefix=""):
    small = phase.options.rehearse
    if small and prefix:
        return
    program = phase.program("gpu_ops_emulated" if small else "gpu_ops")
    run_missing(phase, program, ["--dtypes", ",".join(dtypes)], prefix, cases.OP_SECONDS)


def large(phase):
    if not phase.options.rehearse:
        run_missing(phase, phase.program("gpu_ops"), ["--large", "--dtypes", "bfloat16"], "large, ", cases.LARGE_OP_SECONDS)
