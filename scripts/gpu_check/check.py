#!/usr/bin/env python3
"""One call of gpu_check.sh, in the order of the rows' worth; what the end of its time leaves out is at the end.

Exit codes: 0 all done, 1 done with failures, 3 out of time.
"""
import argparse
import json
import re
import sys

import cases
import facts
import merge
import models
import ops
import page
import peers
import serve
import servers
import speed
import tools
from phase import Call, Failure, OutOfTime, Phase, Stop


def first(call):
    """Whether everything computes what it should, and the rates of training and decoding."""
    facts.work(Phase(call, "facts"))
    ops.work(Phase(call, "ops"), cases.OPS_DTYPES)
    rates = Phase(call, "speed")
    speed.ceilings(rates)
    speed.training(rates, cases.TRAIN_FIRST)
    speed.decoding(rates, cases.DECODE_FIRST)
    speed.training(rates, cases.FP8_FIRST)
    facts.tools(Phase(call, "facts"))
    speed.training(rates, cases.TRAIN_LATER)
    speed.decoding(rates, cases.DECODE_LATER)
    speed.training(rates, cases.TRAIN_LAST)


def second(call):
    """PyTorch beside it, and where the time goes."""
    facts.stop_without_libraries(Phase(call, "facts"))
    with servers.Checkpoints(keep=not call.options.rehearse) as checkpoints:
        if not call.options.rehearse and not call.options.only:
            checkpoints.write_beside(cases.SERVE)
        peers.work(Phase(call, "peers"), cases.PEERS_FIRST)
        rates, looks = Phase(call, "speed"), Phase(call, "tools")
        speed.products(rates, cases.GEMM[:2])
        speed.ops(rates)
        speed.few_rows(rates)
        tools.launch_times(looks)
        tools.sanitizers(looks)
        tools.counters(looks)
        models.work(Phase(call, "models"))
        models.ranks(Phase(call, "models"))
        speed.other_cudnn(rates)
        ops.work(Phase(call, "ops"), cases.OPS_DTYPES_LATER, "other types, ")
        peers.work(Phase(call, "peers"), cases.PEERS_LATER)
        speed.products(rates, cases.GEMM[2:])
        ops.large(Phase(call, "ops"))


def third(call):
    """Serving."""
    facts.stop_without_libraries(Phase(call, "facts"))
    serve.work(Phase(call, "serve"))


CALLS = {1: first, 2: second, 3: third}


def publish(call):
    """Rows so far as gpu.json and gpu.md, and the logs."""
    results = merge.merged([call.path] if call.path.exists() else [])
    (call.out / "gpu.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    predictions = page.read(page.HERE / "predictions.json", None)
    (call.out / "gpu.md").write_text(page.Page(results, predictions).text(), encoding="utf-8")
    call.pack_logs()


def run(call):
    code = None
    try:
        CALLS[call.options.call](call)
    except OutOfTime:
        print("out of time: what is missing needs another call", flush=True)
        code = 3
    except Stop as stop:
        call.failed += 1
        print(f"\n{'!' * 100}\n!! {stop}\n{'!' * 100}\n", flush=True)
    except Failure as failure:
        Phase(call, "facts").add(f"call {call.options.call}", {"failure": str(failure)[-2000:]})
    if call.options.only and not call.chosen:
        print(f"--only {call.options.only.pattern}: no row of call {call.options.call} matches", flush=True)
        code = 2
    if call.clocks:
        call.clocks.stop()
    # With chosen rows the others are missing.
    done = {"complete": code is None and not call.options.only, "rehearsal": call.options.rehearse}
    call.write({"phase": "calls", "id": str(call.options.call), **done})
    publish(call)
    return code or (1 if call.failed else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--call", type=int, choices=CALLS, required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seen", action="append", default=[])
    parser.add_argument("--only", type=re.compile)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--rehearse", action="store_true")
    sys.exit(run(Call(parser.parse_args())))


if __name__ == "__main__":
    main()
