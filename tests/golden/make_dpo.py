#!/usr/bin/env python3
"""Direct preference optimization of the model in tests/golden/peft/base, by TRL's formula in float64: tests/golden/dpo.

    /tmp/venv/bin/python tests/golden/make_dpo.py    (the packages of make_peft.py)

dpo.json: pairs of answers as token ids, how many of them are the prompt, what a reference model is said to give them, and
for each kind of loss the loss and the rewards; gradients.safetensors: the gradients of three tensors for each kind.
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
KINDS = {"sigmoid": {"loss_type": "sigmoid", "beta": 0.3, "label_smoothing": 0.0},
         "smoothed": {"loss_type": "sigmoid", "beta": 0.1, "label_smoothing": 0.2},
         "ipo": {"loss_type": "ipo", "beta": 0.2, "label_smoothing": 0.0}}
TENSORS = ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight", "model.norm.weight"]


def log_probability(model, ids, prompt, mean):
    """trl.DPOTrainer.concatenated_forward: of the completion's tokens, summed; averaged for ipo."""
    logits = model(torch.tensor([ids])).logits[0, :-1]
    labels = torch.tensor(ids[1:])
    per_token = torch.gather(logits.log_softmax(-1), 1, labels[:, None])[:, 0]
    mask = torch.arange(1, len(ids)) >= prompt
    total = (per_token * mask).sum()
    return total / mask.sum() if mean else total


def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, kind):
    """trl.DPOTrainer.dpo_loss, the two types."""
    beta, smoothing = kind["beta"], kind["label_smoothing"]
    logits = (chosen - rejected) - (ref_chosen - ref_rejected)
    if kind["loss_type"] == "ipo":
        return (logits - 1 / (2 * beta)) ** 2
    return -F.logsigmoid(beta * logits) * (1 - smoothing) - F.logsigmoid(-beta * logits) * smoothing


def main():
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_pretrained(HERE / "peft/base", dtype=torch.float64).eval()
    pairs = []
    for chosen, rejected, prompt in ((9, 6, 3), (5, 11, 2), (7, 7, 5)):
        start = torch.randint(0, model.config.vocab_size, (prompt,)).tolist()
        pairs.append({"prompt": prompt, "chosen": start + torch.randint(0, model.config.vocab_size, (chosen,)).tolist(),
                      "rejected": start + torch.randint(0, model.config.vocab_size, (rejected,)).tolist()})
    for pair in pairs:
        for answer in ("chosen", "rejected"):
            exact = log_probability(model, pair[answer], pair["prompt"], False).item()
            pair[f"reference_{answer}"] = round(exact + torch.randn(1).item() * 4, 3)
    results, gradients = {}, {}
    for name, kind in KINDS.items():
        model.zero_grad()
        mean = kind["loss_type"] == "ipo"
        losses = []
        for pair in pairs:
            now, ref = [], []
            for answer in ("chosen", "rejected"):
                now.append(log_probability(model, pair[answer], pair["prompt"], mean))
                n = len(pair[answer]) - pair["prompt"] if mean else 1
                ref.append(pair[f"reference_{answer}"] / n)
            losses.append(dpo_loss(*now, *ref, kind))
        loss = torch.stack(losses).mean()
        loss.backward()
        results[name] = {**kind, "loss": loss.item()}
        for tensor in TENSORS:
            gradients[f"{name}.{tensor}"] = model.get_parameter(tensor).grad.float().clone()
    out = HERE / "dpo"
    out.mkdir(exist_ok=True)
    (out / "dpo.json").write_text(json.dumps({"pairs": pairs, "kinds": results}, indent=1) + "\n")
    save_file(gradients, out / "gradients.safetensors")


if __name__ == "__main__":
    main()
