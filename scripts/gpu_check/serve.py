"""Phase serve: `trireme serve` on random weights, first against the CPU, then under closed loops of `trireme bench serve`,
and vLLM under the same ones where it is installed."""
import json
import random
import shutil
import tempfile
from pathlib import Path

import cases
import servers
from phase import Failure


def load_of(phase):
    return cases.REHEARSED_SERVE_LOAD if phase.options.rehearse else cases.SERVE_LOAD


def mean(before, after, name, factor):
    """Of a histogram's values between two looks; None where there are none, as from other makers' servers."""
    count = after.get(name + "_count", 0) - before.get(name + "_count", 0)
    return factor * (after[name + "_sum"] - before.get(name + "_sum", 0)) / count if count > 0 else None


def closed_loop(phase, running, model, clients):
    try:
        return timed_loop(phase, running.url, model, clients)
    except Failure as failure:
        raise Failure(f"the server's last words: {running.last_words()}\n{failure}") from failure


def timed_loop(phase, url, model, clients):
    load = load_of(phase)
    requests = max(load["least"], load["requests"] * clients)
    before, _ = servers.metrics(url)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        # Prompts of each loop are others, or the prefix cache would have them.
        phase.run(phase.program("trireme"), "bench", "serve", "--base-url", url, "--max-concurrency", clients, "--num-prompts",
                  requests, "--input-len", load["prompt"], "--output-len", load["tokens"], "--seed", clients,
                  "--random-vocab-size", servers.shape(model)["vocab_size"], "--extra-body", '{"temperature": 0}',
                  "--output", out)
        result = json.loads(out.read_text(encoding="utf-8"))
    after, _ = servers.metrics(url)
    memory = servers.gpu_memory(phase)
    if result["completed"] != requests or result["total_output_tokens"] != requests * load["tokens"]:
        raise Failure(f"{result['completed']} of {requests} requests were completed, "
                      f"{result['total_output_tokens']} tokens written")
    return {"clients": clients, "requests": requests, "prompt": load["prompt"], "tokens": load["tokens"],
            "tokens_per_second": result["output_throughput"],
            **{f"{share}_{what}_ms": result[f"{share}_{what}_ms"] for what in ("ttft", "itl") for share in ("p50", "p99")},
            "host_us": mean(before, after, "trireme:step_host_seconds", 1e6),
            "execute_ms": mean(before, after, "trireme:step_execute_seconds", 1e3),
            "preemptions": after.get("vllm:num_preemptions_total", 0) - before.get("vllm:num_preemptions_total", 0),
            "in_use_gib": memory and memory["used"]}


def describe(phase, maker, running, model, before):
    """What a server has taken: its cache, and memory of the GPU."""
    cache = servers.metrics(running.url)[1].get("vllm:cache_config_info", {})
    if not cache.get("num_gpu_blocks", "").isdigit():
        raise Failure(f"the server does not tell the size of its cache: {cache}")
    tokens = int(cache["num_gpu_blocks"]) * int(cache["block_size"])
    row = {"ready_s": round(running.seconds, 2), "kv_tokens": tokens,
           "kv_gib": round(tokens * servers.kv_bytes_of_token(servers.shape(model)) / 2**30, 2)}
    if before is None:
        return row
    now = servers.gpu_memory(phase)
    row.update(total_gib=now["total"], free_before_gib=round(now["total"] - before["used"], 2), in_use_gib=now["used"],
               in_use_share=now["used"] / now["total"])
    if maker == "trireme":  # what is in use with it has been the promise
        row["ok"] = abs(row["in_use_share"] - cases.GPU_SHARE) <= 0.03
    return row


def long_prompts(phase):
    """({model: tokens of prompts}, new tokens behind a cached prefix)."""
    return (cases.REHEARSED_LONG_PROMPTS, cases.REHEARSED_LONG_PROMPT_NEW) if phase.options.rehearse else \
        (cases.LONG_PROMPTS, cases.LONG_PROMPT_NEW)


def read_prompt(phase, url, model, tokens, prefix, seed):
    """Two prompts that are read alone, one after the other; of `prefix`, their first tokens, both have the same."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        phase.run(phase.program("trireme"), "bench", "serve", "--base-url", url, "--max-concurrency", 1, "--num-prompts", 2,
                  "--num-warmups", 0, "--input-len", tokens, "--random-prefix-len", prefix, "--output-len",
                  cases.LONG_PROMPT_TEXT, "--seed", seed, "--random-vocab-size", servers.shape(model)["vocab_size"],
                  "--extra-body", '{"temperature": 0}', "--save-detailed", "--output", out)
        return [1e3 * seconds for seconds in json.loads(out.read_text(encoding="utf-8"))["ttfts"]]


def timed_prompt(phase, url, model, tokens):
    """The first token of a whole prompt, and of one whose prefix the cache has."""
    _, new = long_prompts(phase)
    whole = read_prompt(phase, url, model, tokens, 0, 100 + tokens)
    behind = read_prompt(phase, url, model, tokens, tokens - new, 200 + tokens)
    return {"tokens": tokens, "new": new, "ttft_ms": min(whole), "ttft_cached_ms": behind[1]}


def rows_of(phase, maker, model):
    """(a server's own row, {clients: that of their loop})."""
    return f"{maker} {model}", {clients: f"{maker} {model}, {clients} clients" for clients in models_of(phase)[model]}


def is_measured(phase, maker, model):
    own, loops = rows_of(phase, maker, model)
    prompts = [f"{maker} {model}, prompt of {tokens}" for tokens in long_prompts(phase)[0].get(model, [])]
    return all([phase.has(name) for name in [own, *loops.values(), *prompts]])


def measure(phase, checkpoints, maker, model):
    """One server, asked by more and more clients. Rows that are there cost nothing; a server that does not come is the failure
    of its own row, and those of its clients are missing."""
    own, loops = rows_of(phase, maker, model)
    if is_measured(phase, maker, model):
        return
    try:
        servers.time_to_start(phase, maker)
        path, before = checkpoints.of(model), servers.gpu_memory(phase)
        with servers.server(phase, maker, path, ["--max-model-len", load_of(phase)["length"]]) as running:
            phase.row(own, lambda: describe(phase, maker, running, model, before))
            for clients, row in loops.items():
                phase.row(row, lambda clients=clients: closed_loop(phase, running, model, clients))
            for tokens in long_prompts(phase)[0].get(model, []):
                phase.row(f"{maker} {model}, prompt of {tokens}",
                          lambda tokens=tokens: timed_prompt(phase, running.url, model, tokens))
        if maker == "trireme" and not phase.options.rehearse:
            phase.row(f"choices {model}", lambda: servers.choices(running.log))
    except Failure as failure:
        phase.add(own, {"failure": str(failure)[-2000:]})


def responses(phase, url, prompts, length):
    """Log-probabilities of prompts; greedy texts behind them; log-probabilities of those texts, read as a whole; and texts of the
    first prompt that were written beside each other."""
    def ask(**body):
        return servers.ask(url, min(200, phase.left), **body)

    told = ask(prompt=prompts, max_tokens=0, echo=True, logprobs=0)
    asked = {"max_tokens": length, "ignore_eos": True, "logprobs": 2, "return_tokens_as_token_ids": True}
    texts = [choice["logprobs"] for choice in ask(prompt=prompts, **asked)]
    written = [[int(token.rpartition(":")[2]) for token in text["tokens"]] for text in texts]
    whole = ask(prompt=[p + t for p, t in zip(prompts, written)], max_tokens=0, echo=True, logprobs=0)
    together = ask(prompt=prompts[0], n=cases.SERVE_TOGETHER, **asked)
    return {"prompts": [choice["logprobs"]["token_logprobs"][1:] for choice in told], "texts": texts,
            "whole": [choice["logprobs"]["token_logprobs"][-length:] for choice in whole],
            "together": [choice["logprobs"] for choice in together]}


def largest_difference(some, others):
    pairs = [pair for one, other in zip(some, others, strict=True) for pair in zip(one, other, strict=True)]
    return max(abs(a - b) for a, b in pairs)


def compare_texts(got, want, margin):
    """(tokens that are the same, texts that part although one token was clearly the most probable)."""
    same, parted = 0, 0
    for one, other in zip(got, want, strict=True):
        for token, wanted, top in zip(one["tokens"], other["tokens"], other["top_logprobs"], strict=True):
            best = sorted(top.values(), reverse=True)
            if token != wanted:
                parted += best[0] - best[1] > margin
                break  # what follows has another beginning
            same += 1
    return same, parted


def judge(got, want, dtype):
    """What the answers of a GPU are beside those of the CPU."""
    limits = cases.SERVE_TOLERANCES[dtype]
    same, parted = compare_texts(got["texts"], want["texts"], limits["margin"])
    _, apart = compare_texts(got["together"], got["texts"][:1] * len(got["together"]), limits["margin"])
    row = {"dtype": dtype, "tolerance": limits["logprob"],
           "echo_difference": largest_difference(got["prompts"], want["prompts"]),
           "whole_difference": largest_difference([text["token_logprobs"] for text in got["texts"]], got["whole"]),
           "same_tokens": same, "tokens": sum(len(text["tokens"]) for text in want["texts"]), "texts_parted": parted,
           "texts_together_parted": apart}
    within = max(row["echo_difference"], row["whole_difference"]) <= limits["logprob"]
    return {**row, "ok": within and parted + apart == 0}


def check(phase, checkpoints, dtype):
    """In a rehearsal against the emulated GPU, as the ops are."""
    small = phase.options.rehearse
    model = cases.REHEARSED_MODEL if small else cases.SERVE_CHECKED
    lengths, text = (cases.REHEARSED_SERVE_PROMPTS, cases.REHEARSED_SERVE_TEXT) if small else \
        (cases.SERVE_PROMPTS, cases.SERVE_TEXT)
    path, rng, words = checkpoints.of(model), random.Random(7), servers.shape(model)["vocab_size"]
    prompts = [[rng.randrange(words) for _ in range(length)] for length in lengths]
    options = ["--max-model-len", max(lengths) + 2 * text, "--max-num-seqs", cases.SERVE_TOGETHER + 1]
    found = []
    for maker, device in (("trireme", "cpu"), ("emulated" if small else "trireme", "cuda")):
        with servers.server(phase, maker, path, options, dtype, device) as running:
            found.append(responses(phase, running.url, prompts, text))
    want, got = found
    return {"model": model, **judge(got, want, dtype)}


def host_part(phase):
    """Of a step with many sequences, all but the model: `bench steps` computes on the CPU, and this machine's is what counts."""
    small = ["--host-sequences", 8, "--host-length", 2048] if phase.options.rehearse else []
    text = phase.run(phase.program("trireme"), "bench", "steps", "--device", "cpu", "--dtype", "float32", "--samples", 1,
                     "--sequences", 1, "--prompt", 4, "--tokens", 4, "--json", *small)
    return json.loads(text.splitlines()[0])


def models_of(phase):
    """{model: clients}."""
    return cases.REHEARSED_SERVE if phase.options.rehearse else cases.SERVE


def work(phase):
    models = list(models_of(phase))
    with servers.Checkpoints() as checkpoints:
        checkpoints.write_beside([model for model in models if not is_measured(phase, "trireme", model)])
        for model in models:
            measure(phase, checkpoints, "trireme", model)
        for dtype in ["fp32"] if phase.options.rehearse else cases.SERVE_TOLERANCES:
            phase.row(f"check {dtype}", lambda dtype=dtype: check(phase, checkpoints, dtype))
        phase.row("host", lambda: host_part(phase))
        if shutil.which("vllm") is None:
            phase.add("vllm", {"note": "vLLM is not installed"})
            return
        for model in models:
            measure(phase, checkpoints, "vllm", model)
