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
from phase import Failure, Stop

QUERY = ["name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.mem", "power.limit",
         "ecc.mode.current", "mig.mode.current", "compute_mode", "pcie.link.gen.max"]


def host():
    memory = Path("/proc/meminfo").read_text(encoding="utf-8").split("\n", 1)[0].split()[1]
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
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


def tensor_core_instructions(phase):
    """Matrix instructions in the machine code of our own kernels, by kernel."""
    tool = shutil.which("cuobjdump") or f"{libraries.toolkit()}/bin/cuobjdump"
    if not Path(tool).exists():
        raise Failure("cuobjdump is not installed")
    counts, name = {}, None
    for line in phase.run(tool, "--dump-sass", phase.program("gpu_ops"), timeout=120).splitlines():
        if "Function : " in line:
            name = line.rpartition(" : ")[2].strip()
        elif name is not None and (found := re.search(r"\b(HMMA|HGMMA|QGMMA|IMMA)\b", line)):
            counts.setdefault(name, {}).setdefault(found[1], 0)
            counts[name][found[1]] += 1
    attention = [name for name in counts if "parts_kernel" in name or "mma" in name]
    return {"ok": bool(attention), "kernels": len(counts), "of_attention": len(attention)}


def nvcc():
    """The compiler, if it is not on the path either."""
    return shutil.which("nvcc") or f"{libraries.toolkit()}/bin/nvcc"


def used(phase):
    """What the program opens of the libraries here, by its own account."""
    return json.loads(phase.run(phase.program("gpu_ops"), "--libraries", timeout=120))


def commit(phase):
    try:
        said = re.search(r"commit (\w+)", phase.run(phase.program("trireme"), "--version"))
    except Failure:
        return None
    return said and said[1]


def stop_without_libraries(phase):
    """Finds cuBLASLt, cuDNN and NCCL, prints where, and lets our programs find them. Stop without a GPU or cuDNN: half
    the rates would be those of something else."""
    own = Path(phase.options.build) / "lib"
    phase.call.loader_path = [str(own)] if own.is_dir() else []
    phase.call.commit = commit(phase)
    if phase.options.rehearse:
        return
    found = libraries.found_libraries()
    phase.call.loader_path += libraries.loader_folders()
    for name, place in found.items():
        print(f"facts: {name}: {place.get('path', place.get('missing'))} ({place.get('from', 'MISSING')})", flush=True)
    try:
        program = used(phase)
    except Failure as failure:
        phase.add("opened", {"libraries": found, "failure": str(failure)})
        raise Stop(f"our program cannot use this GPU: {failure}") from failure
    phase.add("opened", {"libraries": found, "program": program, "ok": program["cudnn"] == ""})
    if program["cudnn"]:
        raise Stop(f"NO cuDNN: {program['cudnn']}\n!! attention would be our own kernels', and every rate below it")


def work(phase):
    phase.row("host", host)
    stop_without_libraries(phase)
    phase.row("program", lambda: {"version": phase.run(phase.program("trireme"), "--version")})
    if phase.options.rehearse:
        return
    phase.row("gpu", lambda: nvidia_smi(phase))
    phase.row("libraries", libraries.versions)
    phase.row("device", libraries.device_attributes)


def tools(phase):
    """What costs seconds and decides nothing."""
    phase.row("mpi", lambda: {"library": ctypes.util.find_library("mpi") or "none",
                              "mpirun": shutil.which("mpirun") or "none"})
    if phase.options.rehearse:
        return
    phase.row("nvcc", lambda: {"version": phase.run(nvcc(), "--version").strip().splitlines()[-1]})
    phase.row("nccl", libraries.nccl_one_rank)
    phase.row("nccl_program", lambda: json.loads(phase.run(phase.program("gpu_models"), "--nccl", ok=(0, 1))))
    phase.row("torch", lambda: torch_version(phase))
    phase.row("cudnn_device", lambda: {"json": libraries.cudnn_device_json()})
    phase.row("sass", lambda: tensor_core_instructions(phase))
