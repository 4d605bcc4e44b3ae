"""The configurations under configs/pretrain and configs/finetune, scaled down: every key of theirs but sizes, paths and
rates is as shipped."""
import json

import harness
import tiny_run

RANKS = {"gpt-tp2-pp2": 4, "llama-3d-zero1": 8, "llama-long-ring": 4, "mixtral-ep": 4, "zero3": 4}
SMALLER = {
    "gpt2": {"n_layer": 4, "n_embd": 32, "n_head": 4, "n_positions": 64, "vocab_size": 257,
             "bos_token_id": "null", "eos_token_id": "null"},
    "llama": {"num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 257, "max_position_embeddings": 64},
}
RUN = {"sequence_length": 32, "train_batch_size": 16, "train_steps": 3, "data.split": "90,10",
       "data.data_path": "corpus", "scheduler.params.warmup_steps": 1, "evaluation.eval_iters": 1,
       "cpu.threads_per_rank": 1}


class ShippedConfigs(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        for document in range(20):
            self.write(f"documents/{document:02}.txt", tiny_run.text(200, document))
        self.trireme("data", "prepare", "--input", "documents", "--output", "corpus")

    def test_each_trains(self):
        folder = harness.SOURCE / "configs" / "pretrain"
        self.assertEqual(sorted(path.stem for path in folder.glob("*.json")), sorted(RANKS))
        for name, ranks in RANKS.items():
            with self.subTest(config=name):
                model = SMALLER["gpt2" if name.startswith("gpt") else "llama"]
                changes = {**{f"model.{key}": value for key, value in model.items()}, **RUN, "output_dir": name}
                sets = [argument for key, value in changes.items() for argument in ("--set", f"{key}={value}")]
                self.trireme("pretrain", "--config", folder / f"{name}.json", "--ranks", ranks, *sets)
                records = self.records(name)
                self.assertEqual(len(records), 3)
                self.assertLess(records[-1]["loss"], records[0]["loss"])

    def test_each_serves(self):
        for file in sorted((harness.SOURCE / "configs" / "serve").glob("*.json")):
            with self.subTest(config=file.stem):
                self.configure(output_dir="served")
                self.pretrain()
                server = self.start("serve", "--config", file, "--model", "served", "--port", 0,
                                    "--kv-cache-memory-bytes", 1 << 20)
                self.assertIn("listening on http://127.0.0.1:", server.stdout.readline())
                server.terminate()
                self.assertEqual(server.wait(120), 0)
                self.assertIn(f"{json.loads(file.read_text())['max_num_seqs']} at a time", server.stderr.read())

    def test_each_finetunes(self):
        folder = harness.SOURCE / "configs" / "finetune"
        kinds = {"sft": "train", "lora": "train", "qlora": "train", "dpo": "pairs"}
        self.assertEqual(sorted(path.stem for path in folder.glob("*.json")), sorted(kinds))
        self.configure(model=tiny_run.config()["model"] | {"max_position_embeddings": 64, "hidden_size": 64},
                       sequence_length=64, output_dir="base", evaluation={})
        self.pretrain()
        self.write("chat.jinja", "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
        for name, record in {
                "train": lambda word: {"messages": [{"role": "user", "content": word},
                                                    {"role": "assistant", "content": word.upper()}]},
                "pairs": lambda word: {"prompt": word, "chosen": word.upper(), "rejected": word}}.items():
            self.write(f"{name}.jsonl", "".join(json.dumps(record(word)) + "\n" for word in tiny_run.WORDS * 4))
        run = {"checkpoint.load": "base", "finetune.chat_template": "chat.jinja", "finetune.num_train_epochs": 2,
               "sequence_length": 64, "train_batch_size": 4, "optimizer.params.lr": 0.01, "cpu.threads_per_rank": 1}
        for name, kind in kinds.items():
            with self.subTest(config=name):
                changes = {**run, "output_dir": name, "finetune.train_file": f"{kind}.jsonl"}
                sets = [argument for key, value in changes.items() for argument in ("--set", f"{key}={value}")]
                self.trireme("finetune", "--config", folder / f"{name}.json", "--ranks", 2, *sets)
                records = self.records(name)
                self.assertLess(records[-1]["loss"], 0.8 * records[0]["loss"])
                self.assertIn("validation_loss", records[-1])


if __name__ == "__main__":
    harness.main()
