#!/usr/bin/env python3
"""Every family goes all the way: pretraining from its configuration, fine-tuning in each form, preferences, export, generation and
serving from the export. A case is a configuration of tests/golden/hf.
"""
import json
import struct

import harness
import served_run
import tiny_run

GOLDEN = harness.SOURCE / "tests/golden/hf"
TEMPLATE = "{% for m in messages %}{{ m.role[0] }} {{ m.content }}{{ eos_token }}{% endfor %}"
PROMPT, TOKENS, VOCABULARY = "the oar of", 12, 257


class Families(served_run.ServerTest):
    def setUp(self):
        tiny_run.RunTest.setUp(self)
        messages = [{"messages": [{"role": "user", "content": "oar"}, {"role": "assistant", "content": word}]}
                    for word in tiny_run.WORDS]
        pairs = [{"prompt": "oar ", "chosen": word, "rejected": "x"} for word in tiny_run.WORDS]
        for name, records in (("chat.jsonl", messages), ("pairs.jsonl", pairs)):
            self.write(name, "".join(json.dumps(record) + "\n" for record in records))
        self.write("chat.jinja", TEMPLATE)

    def finetune(self, name, **method):
        self.write(f"{name}.json", json.dumps({
            "checkpoint": {"load": "run"}, "output_dir": name, "train_batch_size": 2, "sequence_length": 32,
            "optimizer": {"params": {"lr": 1e-3}}, "cpu": {"threads_per_rank": 1},
            "finetune": {"chat_template": "chat.jinja", "num_train_epochs": 1, **method}}))
        self.trireme("finetune", "--config", f"{name}.json")

    def likeliest(self, model, text):
        """The most probable token after each token of the text, by the forward pass of training."""
        self.write("ids.jsonl", json.dumps(list(text.encode())) + "\n")
        self.trireme("logits", model, "--tokens", "ids.jsonl", "--output", "logits.safetensors", "--dtype", "fp32")
        raw = (self.folder / "logits.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", raw[:8])
        begin, end = json.loads(raw[8:8 + size])["logits"]["data_offsets"]
        numbers = struct.unpack(f"<{(end - begin) // 4}f", raw[8 + size + begin:8 + size + end])
        rows = [numbers[i:i + VOCABULARY] for i in range(0, len(numbers), VOCABULARY)]
        return [row.index(max(row)) for row in rows]

    def assert_texts_are_one(self, model):
        """The text of generate, of the server, and what the forward pass of training finds most probable."""
        generated, _ = self.trireme("generate", model, "--tokenizer", "byte", "--prompt", PROMPT, "--temperature", 0,
                                    "--max-new-tokens", TOKENS)
        text = generated.removesuffix("\n")
        self.assertTrue(text.startswith(PROMPT), text)
        server = self.serve("--tokenizer", "byte", "--dtype", "fp32", model=model)
        answer = self.complete(prompt=PROMPT, temperature=0, max_tokens=TOKENS)["choices"][0]["text"]
        self.stop(server)
        self.assertEqual(PROMPT + answer, text)
        likeliest = self.likeliest(model, text)
        self.assertEqual(bytes(likeliest[len(PROMPT) - 1:-1]).decode(), answer)

    def all_the_way(self, name):
        config = json.loads((GOLDEN / name / "config.json").read_text())
        self.configure(model={**config, "vocab_size": VOCABULARY}, train_steps=20, evaluation={"eval_iters": 0}, checkpoint={})
        self.pretrain()
        self.finetune("sft", train_file="chat.jsonl")
        self.finetune("lora", train_file="chat.jsonl", lora={"r": 4})
        self.finetune("qlora", train_file="chat.jsonl", lora={"r": 4}, quantization="nf4")
        self.finetune("dpo", train_file="pairs.jsonl", method="dpo")
        self.trireme("checkpoint", "export", "sft", "out")
        self.trireme("checkpoint", "diff", "sft", "out")
        self.assert_texts_are_one("out")
        self.trireme("eval", "out", "--data", "valid", "--sequence-length", 32)


def case(name):
    return lambda self: self.all_the_way(name)


for folder in sorted(GOLDEN.iterdir()):
    setattr(Families, f"test_{folder.name}", case(folder.name))


if __name__ == "__main__":
    harness.main()
