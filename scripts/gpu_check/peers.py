"""Phase peers: PyTorch, eager and compiled, on the cases of the speed phase: same model, batch and dtype."""
import json

import cases
from phase import ROOT, Failure


def peer(phase, model, mode):
    small = phase.options.rehearse
    case = cases.REHEARSED if small else cases.TRAIN[model]
    micro_batches = cases.REHEARSED_MICRO_BATCHES if small else cases.MICRO_BATCHES
    arguments = ["--device", "cpu" if small else "cuda", "--micro-batches", micro_batches,
                 "--step-tokens", cases.REHEARSED_STEP_TOKENS if small else cases.STEP_TOKENS]
    if mode == "compiled":
        arguments.append("--compile")
    text = phase.run(phase.options.python, ROOT / "scripts/bench/torch_peer.py", model, case["batch"],
                     case["sequence_length"], 1 if small else 3, "bfloat16", 1 if small else 16, *arguments,
                     timeout=150, environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    return {"mode": mode, **json.loads(text.splitlines()[-1])}


def python_with_torch(phase):
    for python in ("python3", "/usr/bin/python3"):
        try:
            phase.run(python, "-c", "import torch")
            return python
        except Failure:
            continue
    return None


def work(phase, chosen):
    """chosen: (mode, model)."""
    if all(phase.has(f"{mode} {model}") for mode, model in chosen) and not phase.options.rehearse:
        return
    phase.options.python = python_with_torch(phase)
    if phase.options.python is None:
        phase.add("torch", {"note": "no python3 of this machine has torch"})
        return
    if phase.options.rehearse:
        chosen = [("eager", cases.REHEARSED_MODEL)]
    for mode, model in chosen:
        phase.row(f"{mode} {model}", lambda model=model, mode=mode: peer(phase, model, mode))
