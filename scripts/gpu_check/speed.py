#!/usr/bin/env python3
"""Phase speed: ceilings, matrix products, ops, whole training steps, decoding; every row against what this GPU was
measured to do in the same run."""
import json

import cases
import phase as gpu_phase


def gemm(phase, model):
    small = phase.options.rehearse
    shape = ["--tokens", 16, "--samples", 1] if small else ["--tokens", 16384]
    report = json.loads(phase.trireme("bench", "gemm", "--model", model, "--dtype", "bfloat16", "--json", *shape))
    return {"model": model, "square": report.get("square"), "copy_gbytes": report.get("copy_gbytes"),
            "mean_share": report["geometric_mean_share"]["bfloat16"], "products": report["products"]}


def ops(phase):
    small = phase.options.rehearse
    shape = ["--tokens", 16, "--sequence", 8, "--samples", 1] if small else ["--tokens", 65536, "--sequence", 1024]
    report = json.loads(phase.trireme("bench", "ops", "--dtype", "bfloat16", "--json", *shape))
    return {"copy_gbytes": report.get("copy_gbytes"), "gemm_tflops": report.get("gemm_tflops"), "ops": report["ops"]}


def train(phase, model, fp8="none"):
    small = phase.options.rehearse
    case = cases.REHEARSED if small else cases.TRAIN[model]
    arguments = ["--model", model, "--dtype", "bfloat16", "--batch", case["batch"],
                 "--sequence-length", case["sequence_length"], "--steps", 1 if small else 3,
                 "--micro-batches", cases.REHEARSED_MICRO_BATCHES if small else cases.MICRO_BATCHES,
                 "--step-tokens", cases.REHEARSED_STEP_TOKENS if small else cases.STEP_TOKENS,
                 "--fp8", fp8, "--state-dtype", case.get("state_dtype", "float32"), "--recompute", case.get("recompute", "none")]
    if case.get("whole_step") or small:
        arguments.append("--whole-step")
    return json.loads(phase.trireme("bench", "train", *arguments, "--json"))


def decode(phase, model, options=()):
    shape = ["--prompt", 4, "--tokens", 4] if phase.options.rehearse else ["--prompt", 512, "--tokens", 128]
    arguments = ["--model", model, "--dtype", "bfloat16", *shape, *options]
    return json.loads(phase.trireme("bench", "decode", *arguments, "--json"))


def work(phase):
    small = [cases.REHEARSED_MODEL] if phase.options.rehearse else None
    gemm_models = small or cases.GEMM
    phase.row(f"gemm {gemm_models[0]}", lambda: gemm(phase, gemm_models[0]))
    for model in small or cases.TRAIN_ORDER[:2]:
        phase.row(f"train {model}", lambda model=model: train(phase, model))
    phase.row("ops", lambda: ops(phase))
    for model in small or cases.TRAIN_ORDER:
        phase.row(f"train {model}", lambda model=model: train(phase, model))
    for model in [cases.REHEARSED_FP8] if small else cases.FP8_ORDER:
        phase.row(f"train fp8 {model}", lambda model=model: train(phase, model, cases.FP8_RECIPE))
    for model in small or cases.DECODE:
        phase.row(f"decode {model}", lambda model=model: decode(phase, model))
    for model, what, options in cases.REHEARSED_DECODE if small else cases.DECODE_ALSO:
        phase.row(f"decode {model}, {what}", lambda model=model, options=options: decode(phase, model, options))
    for model in gemm_models[1:]:
        phase.row(f"gemm {model}", lambda model=model: gemm(phase, model))


if __name__ == "__main__":
    gpu_phase.main("speed", work)
