"""Takes the pictures of the web page that README.md and docs/guide/serving.md show.

    TRIREME=build/release/trireme python3 -B tests/e2e/web_ui_screenshots.py docs/images
"""
import json
import sys
import unittest
from pathlib import Path

import harness
import served_run
import test_web_ui
import tiny_run

SIZES = {"page": (1280, 760, False, False), "page-dark": (1280, 760, False, True), "page-phone": (390, 760, True, False)}
MAX_BYTES = 150_000
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
CONVERSATION = [
    ("What is a trireme?", "A Greek warship with three banks of oars on each side, rowed by 170 men in time."),
    ("Why three banks?", "More oars move a hull of the same length faster: the banks share one keel, as ranks share one model."),
    ("How fast was it?", "About eight knots in a sprint. The Olympias, a reconstruction of 1987, has reached nine."),
]


class Screenshots(test_web_ui.Page):
    def setUp(self):
        """A small model that was fine-tuned until it knows one conversation by heart."""
        harness.CommandTest.setUp(self)
        self.write("train.txt", tiny_run.text(2000, 1))
        self.trireme("data", "prepare", "--input", "train.txt", "--output", "train")
        model = {**tiny_run.config()["model"], "max_position_embeddings": served_run.LENGTH, "hidden_size": 64,
                 "intermediate_size": 128}
        self.configure(model=model, output_dir="base", train_steps=10, data={"train_data_path": "train", "tokenizer": "byte"},
                       checkpoint={}, evaluation={"eval_iters": 0})
        self.pretrain()
        turns = [{"role": role, "content": text} for pair in CONVERSATION for role, text in zip(("user", "assistant"), pair)]
        self.write("conversation.jsonl", json.dumps({"messages": turns}) + "\n")
        self.write("chat.jinja", TEMPLATE)
        self.write("tune.json", json.dumps({
            "checkpoint": {"load": "base"}, "output_dir": "run", "train_batch_size": 1, "sequence_length": 512,
            "finetune": {"train_file": "conversation.jsonl", "chat_template": "chat.jinja", "num_train_epochs": 400},
            "optimizer": {"params": {"lr": 5e-3, "weight_decay": 0}}, "cpu": {"threads_per_rank": 1}}))
        self.trireme("finetune", "--config", "tune.json", timeout=600)

    def test_them(self):
        page = self.open()
        self.set(page, temperature=0, max_tokens=200)
        for question, response in CONVERSATION:
            self.assertEqual(self.say(page, question), response)
        held = self.hold(texts=3)  # others' requests, so that the gauges show a server at work
        page.wait("poll().then(() => document.getElementById('g-running').textContent === '3')")
        page.wait("poll().then(() => !document.getElementById('g-rate').textContent.match(/^(0|–)/))")
        for name, (width, height, phone, dark) in SIZES.items():
            page.show(width, height, phone=phone, dark=dark)
            page.run(f"document.getElementById('settings').open = {'false' if phone else 'true'}; "
                     "document.getElementById('log').scrollTop = 0")
            page.wait(f"innerWidth === {width}")
            picture = page.screenshot()
            self.assertLess(len(picture), MAX_BYTES)
            (Path(sys.argv[1]) / f"{name}.png").write_bytes(picture)
        self.let_go(held)
        self.stop(self.server)


if __name__ == "__main__":
    unittest.main(argv=["web_ui_screenshots", "Screenshots.test_them"])
