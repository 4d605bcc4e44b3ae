"""The configurations under configs/pretrain, scaled down: every key of theirs but the sizes is as shipped."""
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


if __name__ == "__main__":
    harness.main()
