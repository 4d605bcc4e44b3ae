#!/usr/bin/env python3
"""Phase facts: what the machine has, as its own programs and libraries say it."""
import ctypes.util
import datetime
import json
import os
import platform
import re
import shutil
from pathlib import Path

import libraries
import phase as gpu_phase
from phase import ROOT, Failure

QUERY = ["name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.mem", "power.limit",
         "ecc.mode.current", "mig.mode.current", "compute_mode", "pcie.link.gen.max"]


def host(phase):
    try:
        commit = phase.run("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    except Failure:
        commit = "unknown"  # a copy without its history: the program says which commit it is of
    memory = Path("/proc/meminfo").read_text(encoding="utf-8").split("\n", 1)[0].split()[1]
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "commit": commit,
            "cores": len(os.sched_getaffinity(0)), "memory_gib": round(int(memory) / 2**20, 1),
            "kernel": platform.release(), "libc": " ".join(platform.libc_ver())}


def nvidia_smi(phase):
    text = phase.run("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader", timeout=60)
    return dict(zip(QUERY, map(str.strip, text.splitlines()[0].split(","))))


def torch_version(phase):
    text = phase.run("python3", "-c", "import torch; print(torch.__version__, torch.version.cuda, "
                                      "torch.backends.cudnn.version())", timeout=120)
    version, cuda, cudnn = text.split()
    return {"torch": version, "cuda": cuda, "cudnn": cudnn}


def sanitizer(phase):
    """Whether compute-sanitizer can see into this machine's GPU, on the smallest op."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return {"available": False, "why": "compute-sanitizer is not installed"}
    try:
        text = phase.run(tool, "--tool", "memcheck", "--error-exitcode", "9", phase.program("gpu_ops"), "add",
                         timeout=120)
    except Failure as failure:
        return {"available": False, "why": str(failure)[-500:]}
    return {"available": True, "says": text.strip().splitlines()[-1][:200]}


def tensor_core_instructions(phase):
    """Matrix instructions in the machine code of our own kernels, by object file."""
    tool = shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump"
    if not Path(tool).exists():
        raise Failure("cuobjdump is not installed")
    objects = [path for path in Path(phase.options.build).rglob("*.cu.o") if "mma" in path.name]
    if not objects:
        raise Failure(f"no object of a kernel with matrix instructions under {phase.options.build}")
    counts = {}
    for path in objects:
        sass = phase.run(tool, "--dump-sass", path, timeout=120)
        counts[path.name] = {name: len(re.findall(rf"\b{name}\b", sass)) for name in ("HMMA", "HGMMA", "QGMMA")}
    return {"ok": all(any(found.values()) for found in counts.values()), "objects": counts}


def work(phase):
    phase.row("host", lambda: host(phase))
    phase.row("program", lambda: {"version": phase.run(phase.program("trireme"), "--version")})
    phase.row("mpi", lambda: {"library": ctypes.util.find_library("mpi") or "none",
                              "mpirun": shutil.which("mpirun") or "none"})
    if phase.options.rehearse:
        return
    phase.row("gpu", lambda: nvidia_smi(phase))
    phase.row("nvcc", lambda: {"version": phase.run("nvcc", "--version").strip().splitlines()[-1]})
    phase.row("libraries", libraries.versions)
    phase.row("device", libraries.device_attributes)
    phase.row("cudnn_device", lambda: {"json": libraries.cudnn_device_json()})
    phase.row("nccl", libraries.nccl_one_rank)
    phase.row("nccl_program", lambda: json.loads(phase.run(phase.program("gpu_models"), "--nccl", ok=(0, 1))))
    phase.row("torch", lambda: torch_version(phase))
    phase.row("sass", lambda: tensor_core_instructions(phase))
    phase.row("sanitizer", lambda: sanitizer(phase))


if __name__ == "__main__":
    gpu_phase.main("facts", work)
