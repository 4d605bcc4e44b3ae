#!/usr/bin/env python3
"""Phase ops: every case of the registry on the GPU against the CPU, outputs poisoned, twice the same bits.

One process an op: what breaks a device's context ends with it. In a rehearsal the emulated program runs two ops.
"""
import json
import subprocess

import phase as gpu_phase
from phase import Failure, OutOfTime

REHEARSED = ["add", "fill_zero"]
MEASURED = ("shape", "dtype", "microseconds", "gbytes_per_s", "tflops")


def check_op(phase, program, op):
    limit = max(1, phase.left)
    measure = [] if phase.options.rehearse else ["--measure", "--large"]
    try:
        ran = subprocess.run([str(program), *measure, op], capture_output=True, text=True, timeout=limit,
                             check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as late:
        raise OutOfTime from late
    cases = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode not in (0, 1) or not cases:
        raise Failure(f"exit code {ran.returncode} after {len(cases)} cases: {ran.stderr.strip()[-500:]}")
    wrong = [case for case in cases if not case["ok"]]
    timed = [case for case in cases if "microseconds" in case]
    row = {"op": op, "ok": not wrong, "cases": len(cases), "wrong": len(wrong),
           "not_bitwise": sum(not case["bitwise"] for case in cases), "first_wrong": wrong[0] if wrong else None,
           "largest_share_of_tolerance": max(
               (case["max_error"] / case["tolerance"] for case in cases if case["tolerance"]), default=0)}
    if timed:
        row["largest"] = max(timed, key=lambda case: case["microseconds"])
        row["timed"] = [{name: case.get(name) for name in MEASURED} for case in timed if case["large"]]
    return row


def work(phase):
    program = phase.program("gpu_ops_emulated" if phase.options.rehearse else "gpu_ops")
    ops = phase.run(program, "--list").split()
    if phase.options.rehearse:
        ops = [op for op in ops if op in REHEARSED] or ops[:1]
    for op in ops:
        phase.row(op, lambda op=op: check_op(phase, program, op))


if __name__ == "__main__":
    gpu_phase.main("ops", work)
