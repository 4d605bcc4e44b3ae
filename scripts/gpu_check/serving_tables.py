"""What the page says of the serve phase: loads, the cache's size, vLLM beside it, whether texts are the CPU's."""
import cases
from cells import NOT_RUN, number, percent, table


def clients_of(page):
    """{model: clients}."""
    return cases.REHEARSED_SERVE if page.rehearsal else cases.SERVE


def models_of(page):
    return list(clients_of(page))


def loads(page):
    """(model, clients)."""
    return [(model, count) for model, clients in clients_of(page).items() for count in clients]


def why_missing(page, maker, model, clients):
    """In the cell of a loop that has no result."""
    note = page.row("serve", maker).get("note")
    states = [page.state("serve", f"{maker} {model}, {clients} clients"), page.state("serve", f"{maker} {model}")]
    failed = [state for state in states if state.startswith("failed")]
    return failed[0] if failed else f"{NOT_RUN}: {note}" if note else NOT_RUN


def of_loop(page, maker, model, clients):
    """(its row, tokens a second in words)."""
    row = page.row("serve", f"{maker} {model}, {clients} clients")
    return row, number(row["tokens_per_second"]) if row else why_missing(page, maker, model, clients)


def milliseconds(row, name):
    return number(row.get(name + "_ms"), "{:.1f}" if "ttft" in name else "{:.2f}")


def serving(page):
    load = cases.REHEARSED_SERVE_LOAD if page.rehearsal else cases.SERVE_LOAD
    predicted, rows = page.predicted["serve"], []
    for model, clients in loads(page):
        p = predicted["loads"].get(model, {}).get(str(clients), {})
        row, rate = of_loop(page, "trireme", model, clients)
        floor, between = page.row("speed", f"decode {model}").get("floor_ms"), row.get("p50_itl_ms")
        alone = clients == 1
        rows.append([model, clients, number(p.get("tokens_per_second")), rate, milliseconds(row, "p50_ttft"),
                     milliseconds(row, "p99_ttft"), number(p.get("itl_ms"), "{:.2f}"), milliseconds(row, "p50_itl"),
                     milliseconds(row, "p99_itl"),
                     percent(predicted["share_of_floor"].get(model)) if alone else "",
                     percent(floor / between if floor and between else None) if alone else "", number(row.get("host_us"))])
    text = f"""\
`trireme serve --device cuda` with random weights in bfloat16 and no option but its longest text, {load['length']:,} tokens, in
closed loops of `trireme bench serve`: prompts of {load['prompt']} random tokens, greedy texts of {load['tokens']}. Steps of one token a
sequence are recorded graphs. "Of reading": the floor of [decoding](#decoding) over the median time between tokens. "Host": of a
step, all but the model and the choice of tokens. Predictions are of {predicted['written']}:
{predicted['why']}."""
    return ["## Serving", "", *text.splitlines(), "",
            *table(["model", "clients", "tokens/s, predicted", "measured", "TTFT P50, ms", "P99", "ITL P50, predicted, ms",
                    "measured", "P99", "of reading, predicted", "measured", "host, us a step"], rows)]


def prompts(page):
    chosen = cases.REHEARSED_LONG_PROMPTS if page.rehearsal else cases.LONG_PROMPTS
    predicted, rows = page.predicted["prompts"], []
    for model, counts in chosen.items():
        for tokens in counts:
            row, p = page.row("serve", f"trireme {model}, prompt of {tokens}"), predicted["ttft_ms"].get(f"{model} {tokens}")
            rows.append([model, f"{tokens:,}", number(p), number(row.get("ttft_ms")), number(row.get("ttft_cached_ms"), "{:.1f}")])
    return ["## Long prompts", "",
            "Milliseconds to the first token of a prompt that is read alone, and of one whose tokens but the last "
            f"{cases.LONG_PROMPT_NEW}",
            f"the prefix cache has. Predicted: {predicted['why']}.", "",
            *table(["model", "tokens", "predicted, ms", "measured", "behind a cached prefix, ms"], rows)]


def memory(page):
    rows = []
    for model in models_of(page):
        for maker, name in (("trireme", "trireme"), ("vllm", "vLLM")):
            row = page.row("serve", f"{maker} {model}")
            p = page.predicted["serve"]["kv_tokens"].get(model) if maker == "trireme" else None
            rows.append([model, name, number(row.get("free_before_gib"), "{:.1f}"), number(row.get("in_use_gib"), "{:.1f}"),
                         percent(row.get("in_use_share")), number(row.get("kv_gib"), "{:.1f}"),
                         number(p) if maker == "trireme" else "", number(row.get("kv_tokens")),
                         number(row.get("ready_s"), "{:.1f}")])
    return ["## Memory for keys and values", "",
            f"`--gpu-memory-utilization {cases.GPU_SHARE}`: that share of the GPU's memory is to be in use once a server answers.",
            "",
            *table(["model", "server", "free before, GiB", "in use, GiB", "of all", "keys and values, GiB",
                    "tokens they hold, predicted", "measured", "ready after, s"], rows)]


def beside(page):
    rows = []
    for model, clients in loads(page):
        (ours, rate), (theirs, their_rate) = (of_loop(page, maker, model, clients) for maker in ("trireme", "vllm"))
        cells = [milliseconds(row, name) for name in ("p50_ttft", "p50_itl", "p99_itl") for row in (ours, theirs)]
        ratio = ours["tokens_per_second"] / theirs["tokens_per_second"] if ours and theirs else None
        p = page.predicted["serve"]["peer_ratio"]
        rows.append([model, clients, rate, their_rate, *cells, number(p["value"].get(model, {}).get(str(clients)), "{:.2f}"),
                     number(ratio, "{:.2f}")])
    return ["## Serving beside vLLM", "",
            "`vllm serve` with the same files, longest text and share of the memory; the same client, the same requests.",
            f"Predicted: {page.predicted['serve']['peer_ratio']['why']}.", "",
            *table(["model", "clients", "tokens/s", "vLLM", "TTFT P50, ms", "vLLM", "ITL P50, ms", "vLLM", "ITL P99, ms", "vLLM",
                    "ratio, predicted", "measured"], rows)]


def checks(page):
    """Rows of the table of checks."""
    rows = []
    for dtype, limits in cases.SERVE_TOLERANCES.items():
        row, state = page.row("serve", f"check {dtype}"), page.state("serve", f"check {dtype}")
        said = state if not row else \
            f"prompts {row['echo_difference']:.1e}, recorded {row['whole_difference']:.1e}; {row['same_tokens']} of " \
            f"{row['tokens']} tokens, {row['texts_parted']} + {row['texts_together_parted']} texts part: " \
            f"{'agrees' if row['ok'] else 'DIFFERS'}"
        rows.append([f"{models_of(page)[0]} served in {dtype}: log-probabilities of prompts against the CPU, of recorded steps "
                     "against the text as a whole; greedy texts against the CPU, and beside each other",
                     f"within {limits['logprob']:.0e}; no text parts where a margin is above {limits['margin']:.0e}", said])
    host = page.row("serve", "host")
    rows.append([f"the host's part of a step of {host.get('host_sequences', 256)} sequences", page.predicted["checks"]["host"],
                 f"{host['host_us']:.0f} us, P99 {host['host_p99_us']:.0f}" if host else page.state("serve", "host")])
    return rows
