"""Phase speed: ceilings, matrix products, ops, training steps, decoding; every row against what this GPU was measured to
do in the same row's program, with the attention path and the choice of products that ran."""
import json

import cases
import libraries
from phase import Failure

# Of a report, what every row keeps.
CHOICES = ("attention", "gemm_choice", "notes")


def choices(report):
    return {name: report[name] for name in CHOICES if name in report}


def gemm(phase, model):
    small = phase.options.rehearse
    shape = ["--tokens", 16, "--samples", 1] if small else ["--tokens", 16384, "--samples", 3]
    report = json.loads(phase.trireme("bench", "gemm", "--model", model, "--dtype", "bfloat16", "--json", *shape, timeout=120))
    return {"model": model, "square": report.get("square"), "copy_gbytes": report.get("copy_gbytes"),
            "mean_share": report["geometric_mean_share"]["bfloat16"], "products": report["products"], **choices(report)}


def bench_ops(phase):
    small = phase.options.rehearse
    shape = ["--tokens", 16, "--sequence", 8, "--samples", 1] if small else ["--tokens", 65536, "--sequence", 1024]
    report = json.loads(phase.trireme("bench", "ops", "--dtype", "bfloat16", "--json", *shape, timeout=120))
    return {"copy_gbytes": report.get("copy_gbytes"), "gemm_tflops": report.get("gemm_tflops"), "ops": report["ops"],
            **choices(report)}


def train(phase, model, fp8="none", options=(), steps=None, micro_batches=None, environment=None):
    """steps, micro_batches: in the place of the case's own; environment: beside the program's."""
    small = phase.options.rehearse
    case = cases.REHEARSED if small else cases.TRAIN[model]
    usual = (1, cases.REHEARSED_MICRO_BATCHES) if small else \
        (case.get("steps", 3), case.get("micro_batches", cases.MICRO_BATCHES))
    arguments = ["--model", case.get("config", model), "--dtype", "bfloat16", "--batch", case["batch"],
                 "--sequence-length", case["sequence_length"], "--steps", steps or usual[0],
                 "--micro-batches", micro_batches or usual[1],
                 "--step-tokens", cases.REHEARSED_STEP_TOKENS if small else cases.STEP_TOKENS,
                 "--fp8", fp8, "--state-dtype", case.get("state_dtype", "float32"),
                 "--recompute", case.get("recompute", "none"), *options]
    if small:
        arguments.append("--whole-step")
    return json.loads(phase.trireme("bench", "train", *arguments, "--json", timeout=120, environment=environment))


def decode(phase, model, tokens, options):
    arguments = ["--model", model, "--dtype", "bfloat16", "--prompt", tokens[0], "--tokens", tokens[1], *options]
    return json.loads(phase.trireme("bench", "decode", *arguments, "--json", timeout=120))


def ceilings(phase):
    products(phase, [cases.GEMM[0]])


def products(phase, names):
    for model in [cases.REHEARSED_MODEL] if phase.options.rehearse else names:
        phase.row(f"gemm {model}", lambda model=model: gemm(phase, model))


def ops(phase):
    phase.row("ops", lambda: bench_ops(phase))


def few_rows(phase):
    """Products of 1 to 64 rows against reading their weights once."""
    small = ["--weights-mib", 1, "--samples", 1] if phase.options.rehearse else ["--weights-mib", 2048, "--samples", 3]
    for weights, options in cases.FEW_ROWS_WEIGHTS.items():
        phase.row(f"rows {weights}", lambda options=options: json.loads(phase.trireme(
            "bench", "rows", "--dtype", "bfloat16", "--rows", cases.FEW_ROWS, *options, *small, "--json", timeout=120)))


def other_cudnn(phase):
    """A training row with another file of cuDNN, where Python's packages have one."""
    if phase.options.rehearse:
        return

    def make():
        folders = [folder for folder in libraries.package_folders("lib") if folder.endswith("/cudnn/lib")]
        if not folders:
            raise Failure("Python's packages have no cuDNN")
        return {"cudnn": "Python's packages",
                **train(phase, cases.OTHER_CUDNN, environment=phase.call.loader_environment(folders[0]))}

    phase.row(f"train {cases.OTHER_CUDNN}{cases.OTHER_CUDNN_WHAT}", make)


def training(phase, chosen):
    """chosen: (model, what is said of it, recipe of 8-bit floats, options)."""
    if phase.options.rehearse:
        chosen = cases.REHEARSED_TRAIN if chosen is cases.TRAIN_FIRST else \
            cases.REHEARSED_FP8 if chosen is cases.FP8_FIRST else []
    for model, what, fp8, options in chosen:
        name = f"train {'fp8 ' if fp8 != 'none' else ''}{model}{what}"
        phase.row(name, lambda model=model, fp8=fp8, options=options: train(phase, model, fp8, options))


def decoding(phase, chosen):
    """chosen: (model, what is said of it, tokens, options)."""
    if phase.options.rehearse:
        chosen = cases.REHEARSED_DECODE if chosen is cases.DECODE_FIRST else []
    for model, what, *case in chosen:
        phase.row(f"decode {model}{what}", lambda model=model, case=case: decode(phase, model, *case))
