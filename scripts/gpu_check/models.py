"""Phase models: tiny models trained on the GPU, against PyTorch's numbers in tests/golden and against the CPU, and
whole runs of the program on both devices."""
import ctypes.util
import json
import shutil
import tempfile
import time
from pathlib import Path

import cases
from phase import Failure

RUN_TOLERANCE = 2e-3  # of losses and norms of float32 runs of 20 steps
MODELS = {
    "gpt2": {"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4,
             "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    "llama": {"model_type": "llama", "vocab_size": 257, "max_position_embeddings": 64, "hidden_size": 64,
              "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
    "mixtral": {"model_type": "mixtral", "vocab_size": 257, "max_position_embeddings": 64, "hidden_size": 64,
                "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "num_local_experts": 4, "num_experts_per_tok": 2},
}
STEPS = 20


def comparisons(phase):
    """The lines of gpu_models: {(check, model, dtype): line}."""
    arguments = ["--cpu"] if phase.options.rehearse else []
    text = phase.run(phase.program("gpu_models"), *arguments, ok=(0, 1))
    return [json.loads(line) for line in text.splitlines()]


def prepare(phase, folder):
    text = Path(folder) / "text.txt"
    text.write_text("".join(f"{i} rows of {i * i % 97} oars\n" for i in range(2000)), encoding="utf-8")
    phase.run(phase.program("trireme"), "data", "prepare", "--input", text, "--output", f"{folder}/corpus")


def launched(phase, ranks):
    """({environment variable: value}, words before the program) that start ranks by this machine's MPI: its library has
    to be that of its mpirun."""
    if shutil.which("mpirun") is None or not ctypes.util.find_library("mpi"):
        raise Failure("MPI is not installed")
    beside = [str(folder) for folder in Path("/usr/lib").glob("*-linux-gnu") if (folder / "libmpi.so.40").exists()]
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   **phase.call.loader_environment(*beside)}
    return environment, ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", ranks, "-x", "LD_LIBRARY_PATH"]


def curve(phase, folder, model, name, device, ranks=1):
    """(losses, gradient norms) of a run of the program."""
    config = {"model": MODELS[model], "output_dir": f"{folder}/{name}", "train_batch_size": 8,
              "train_micro_batch_size_per_gpu": 4, "sequence_length": 64, "train_steps": STEPS, "seed": 7,
              "device": device, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
              "data": {"data_path": f"{folder}/corpus", "split": "1,0", "tokenizer": "byte"}}
    environment, launcher = {}, []
    if ranks > 1:
        environment, launcher = launched(phase, ranks)
        config.update(cases.RANKS[ranks], train_micro_batch_size_per_gpu=1)
        config["comm"] = {"device_backend": "staged"} if device == "cuda" else {}
    path = Path(folder) / f"{name}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    phase.run(*launcher, phase.program("trireme"), "pretrain", "--config", path, environment=environment)
    lines = (Path(config["output_dir"]) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [r["loss"] for r in records], [r["grad_norm"] for r in records]


def run_on_both(phase, model, ranks=1):
    """One rank on the CPU, and `ranks` on the GPU."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(phase, folder)
        want = curve(phase, folder, model, "want", "cpu")
        got = curve(phase, folder, model, "got", "cpu" if phase.options.rehearse else "cuda", ranks)
    if any(None in part or len(part) != STEPS for part in (*want, *got)):
        raise Failure(f"{model}: a step without loss or norm")
    worst = [max(abs(a - b) / abs(b) for a, b in zip(*parts)) for parts in zip(got, want)]
    name = model if ranks == 1 else f"{model}, {ranks} ranks on one GPU"
    return {"check": "run", "model": name, "dtype": "float32", "steps": STEPS, "last_loss": got[0][-1],
            "loss_difference": worst[0], "norm_difference": worst[1], "tolerance": RUN_TOLERANCE,
            "ok": worst[0] <= RUN_TOLERANCE and worst[1] <= 10 * RUN_TOLERANCE}


def ranks(phase):
    for count in cases.REHEARSED_RANKS if phase.options.rehearse else cases.RANKS:
        phase.row(f"run llama, {count} ranks", lambda count=count: run_on_both(phase, "llama", count))


def work(phase):
    # One program makes them all.
    if not phase.has("comparisons"):
        begin = time.monotonic()
        try:
            lines = comparisons(phase)
        except Failure as failure:
            lines = []
            phase.add("comparisons", {"failure": str(failure)})
        for line in lines:
            phase.add(f"{line['check']} {line['model']} {line['dtype']}", line)
        if lines:
            phase.add("comparisons", {"lines": len(lines), "took_s": round(time.monotonic() - begin, 2)})
    for model in ["llama"] if phase.options.rehearse else MODELS:
        phase.row(f"run {model}", lambda model=model: run_on_both(phase, model))
