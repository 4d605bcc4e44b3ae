"""Phase tools: where the time of a step goes, and what the sanitizer and the profiler say, where this machine has them."""
import csv
import io
import shutil

import cases
import speed
from phase import Failure

SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
METRICS = {"gpu__time_duration.sum": "ns", "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent",
           "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_percent",
           "sm__warps_active.avg.pct_of_peak_sustained_active": "warps_percent",
           "launch__registers_per_thread": "registers"}


def launch_times(phase):
    """Device time of each kernel and library call of one training step."""
    if phase.options.rehearse:
        return
    for model in cases.LAUNCH_TIMES:
        phase.row(f"launch times {model}", lambda model=model: launch_times_of(phase, model))


def launch_times_of(phase, model):
    report = speed.train(phase, model, options=["--launch-times"], steps=1, micro_batches=1)
    times = report["launch_times"]
    return {"model": model, "step_us": sum(time["us"] for time in times), "step_ms": report["mean_ms"],
            "calls": sum(time["calls"] for time in times), "times": times, **speed.choices(report)}


def installed(name):
    tool = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if tool is None:
        raise Failure(f"{name} is not installed")
    return tool


def sanitize(phase, tool):
    command = phase.under([installed("compute-sanitizer"), "--tool", tool, "--target-processes", "all",
                           "--error-exitcode", "9"],
                          phase.program("gpu_ops"), "--dtypes", "bfloat16", *cases.SANITIZED)
    text = phase.run(*command, timeout=100, ok=(0, 1, 9))
    said = [line for line in text.splitlines() if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line]
    if not said:
        raise Failure(f"compute-sanitizer --tool {tool} tells no summary: {text.strip()[-300:]}")
    return {"says": said[-1].strip(" ="), "ops": cases.SANITIZED,
            "ok": all(" 0 error" in line or " 0 hazard" in line for line in said)}


def sanitizers(phase):
    if phase.options.rehearse:
        return
    for tool in SANITIZERS:
        phase.row(tool, lambda tool=tool: sanitize(phase, tool))


def counted(phase, operation):
    command = phase.under([installed("ncu"), "--clock-control", "none", "--target-processes", "all", "--csv", "--metrics",
                           ",".join(METRICS), "--launch-count", cases.COUNTED_LAUNCHES, "--kill", "yes"],
                          phase.program("gpu_ops"), *cases.COUNTED[operation], "--dtypes", "bfloat16", operation)
    text = phase.run(*command, timeout=60, ok=None)  # the program ends by the profiler's signal
    begin = text.find('"ID"')
    if begin < 0:
        raise Failure(f"ncu tells nothing: {text.strip()[-300:]}")
    kernels = {}
    for row in csv.DictReader(io.StringIO(text[begin:])):
        if row.get("Metric Name") in METRICS:
            kernel = kernels.setdefault(row["ID"], {"kernel": row["Kernel Name"][:120]})
            kernel[METRICS[row["Metric Name"]]] = row["Metric Value"]
    if len(kernels) < cases.COUNTED_LAUNCHES:
        raise Failure(f"ncu has {len(kernels)} kernels, not {cases.COUNTED_LAUNCHES}: {text.strip()[-300:]}")
    return {"op": operation, "kernels": list(kernels.values())}


def counters(phase):
    if phase.options.rehearse:
        return
    for operation in cases.COUNTED:
        phase.row(f"ncu {operation}", lambda operation=operation: counted(phase, operation))
