"""What the serve phase does with a server: starts it, asks it, reads what it tells of itself."""
import contextlib
import json
import math
import os
import re
import shutil
import sys
import tempfile
import threading
import typing
import urllib.error
import urllib.request
from pathlib import Path

import cases
from phase import ROOT, Failure, OutOfTime

sys.path.insert(0, str(ROOT / "scripts/bench"))
from local_server import NotServing, free_port, open_here, served  # noqa: E402
from make_hf_checkpoint import tensors, write_checkpoint  # noqa: E402

START_SECONDS = {"trireme": 120, "emulated": 120, "vllm": 360}  # vLLM compiles and records first
MODEL_ID = "served"
NO_NETWORK = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
SERIES = re.compile(r"^([\w:]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Checkpoints:
    """Random weights of the shapes of configs/models in a folder for temporary files, each written when it is first asked
    for, or beside other work. With `keep` another call on this machine finds them; else they are gone behind the block."""

    def __init__(self, keep=False):
        self.keep = keep
        self.folder = Path(tempfile.gettempdir()) / f"trireme-checkpoints-{os.getuid()}"
        self.lock, self.writer, self.stop = threading.Lock(), None, False

    def __enter__(self):
        self.folder.mkdir(exist_ok=True)
        for part in self.folder.glob("*.part"):  # of a call that was cut off
            shutil.rmtree(part, ignore_errors=True)
        return self

    def __exit__(self, *_):
        self.stop = True
        if self.keep:
            return
        if self.writer is not None:
            self.writer.join(20)
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_beside(self, names):
        """On a thread that nobody waits for: of() does if it wants what is being written."""
        def write():
            for name in names:
                with contextlib.suppress(Failure):
                    if not self.stop:
                        self.of(name)
        self.writer = threading.Thread(target=write, daemon=True)
        self.writer.start()

    def of(self, name):
        path = self.folder / name
        with self.lock:
            if not path.exists():
                self.write(path, shape(name))
        return path

    def write(self, path, model):
        needed, free = 2 * parameters(model), shutil.disk_usage(self.folder).free
        if free < 1.05 * needed:
            raise Failure(f"{self.folder} has {free >> 20} MiB free, and the weights of {path.name} take {needed >> 20} MiB")
        part = path.with_suffix(".part")
        try:
            write_checkpoint(part, model)
            part.rename(path)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise Failure(f"{path}: {error.strerror}") from error


def shape(name):
    return json.loads((ROOT / f"configs/models/{name}.json").read_text(encoding="utf-8"))


def parameters(model):
    return sum(math.prod(sizes) for _, sizes in tensors(model))


def kv_bytes_of_token(model):
    """In 16 bits."""
    width = model.get("head_dim", model["hidden_size"] // model["num_attention_heads"])
    return 2 * model["num_hidden_layers"] * model["num_key_value_heads"] * width * 2


def command(phase, maker, path, port, dtype, device, options):
    """Of both servers in the same words."""
    programs = {"trireme": "trireme", "emulated": "trireme_emulated"}
    program = phase.program(programs[maker]) if maker in programs else shutil.which(maker)
    words = [program, "serve", path, "--host", "127.0.0.1", "--port", port, "--served-model-name", MODEL_ID, *options]
    if maker == "vllm":
        return [*words, "--dtype", "bfloat16", "--gpu-memory-utilization", cases.GPU_SHARE]
    share = ["--gpu-memory-utilization", cases.GPU_SHARE] if device == "cuda" else []
    return [*words, "--dtype", dtype, "--device", device, *share]


def time_to_start(phase, maker):
    """Of a call that has just begun nobody waits for the next one."""
    if phase.left < START_SECONDS[maker] / 4 + 30 and phase.left < 0.9 * phase.options.seconds:
        raise OutOfTime
    return min(START_SECONDS[maker], max(1, phase.left - 10))


class Running(typing.NamedTuple):
    url: str
    seconds: float  # until it answered
    log: Path

    def last_words(self):
        return last_words(self.log)


@contextlib.contextmanager
def server(phase, maker, path, options, dtype="bf16", device=None):
    """Running. Failure with the server's last words where it does not come."""
    device = device or ("cpu" if phase.options.rehearse else "cuda")
    port, limit = free_port(), time_to_start(phase, maker)
    log_path = phase.log(f"serve-{maker}-{Path(path).name}-{dtype}-{device}.log")
    words = command(phase, maker, path, port, dtype, device, options)
    with open(log_path, "w", encoding="utf-8") as log:
        try:
            own = phase.call.environment(words[0])
            with served(words, port, log, limit, {**os.environ, **own, **NO_NETWORK}) as seconds:
                yield Running(f"http://127.0.0.1:{port}", seconds, log_path)
        except NotServing as why:
            raise Failure(f"{why}:\n{last_words(log_path)}") from why


def last_words(path):
    return Path(path).read_text(encoding="utf-8", errors="replace").strip()[-1000:] or "nothing was said"


def choices(log):
    """What the log of a server that has ended says of the implementations that ran."""
    found = re.findall(r"attention by (.+); products by (\w+)", Path(log).read_text(encoding="utf-8", errors="replace"))
    return {"attention": found[-1][0], "gemm_choice": found[-1][1]} if found else {}


def ask(url, seconds, **body):
    """The choices of a completion, chosen greedily; Failure after so many seconds."""
    request = urllib.request.Request(url + "/v1/completions", json.dumps({"model": MODEL_ID, "temperature": 0, **body}).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with open_here(request, timeout=max(1, seconds)) as response:
            return json.load(response)["choices"]
    except urllib.error.HTTPError as error:
        raise Failure(f"{error}: {error.read().decode(errors='replace')[:500]}") from error
    except (OSError, ValueError, KeyError) as error:
        raise Failure(f"{url}: {error}") from error


def metrics(url):
    """({name: sum over its series}, {name: labels of its first series})."""
    try:
        with open_here(url + "/metrics", timeout=30) as response:
            page = response.read().decode()
    except OSError as error:
        raise Failure(f"{url}/metrics: {error}") from error
    sums, labels = {}, {}
    for name, words, value in SERIES.findall(page):
        sums[name] = sums.get(name, 0) + float(value)
        labels.setdefault(name, dict(re.findall(r'(\w+)="([^"]*)"', words)))
    return sums, labels


def gpu_memory(phase):
    """{"used", "total"} of the first GPU in GiB; None in a rehearsal."""
    if phase.options.rehearse:
        return None
    text = phase.run("nvidia-smi", "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits", timeout=60)
    used, total = (round(int(word) / 1024, 2) for word in text.splitlines()[0].split(","))
    return {"used": used, "total": total}
