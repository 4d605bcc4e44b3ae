"""Parallel layouts over real MPI processes: the losses of one rank, and checkpoints that any layout reads."""
import json

import harness
import tiny_run

# Sizes that 2 and 4 ranks do not divide.
MODEL = {"model_type": "llama", "vocab_size": 257, "max_position_embeddings": 27, "hidden_size": 32,
         "intermediate_size": 45, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 8}
ONE_RANK = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8,
            "sequence_length": 27, "train_steps": 4, "model": MODEL, "checkpoint": {},
            "evaluation": {"eval_interval": 2, "eval_iters": 1},
            "scheduler": {"type": "constant", "params": {"warmup_steps": 1}},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
LAYOUTS = [
    {"tp": 4},
    {"tp": 2, "sequence_parallel": True},
    {"pp": 4, "schedule": "gpipe"},
    {"pp": 4, "schedule": "1f1b"},
    {"pp": 2, "schedule": "interleaved_1f1b", "virtual": 2},
    {"pp": 2, "schedule": "zb_h1"},
    {"pp": 2, "schedule": "zb_h2", "tp": 2, "sequence_parallel": True},
    {"pp": 2, "tp": 2, "layers": [5, 3]},
]


def settings(layout):
    """The --set arguments of a layout on four ranks."""
    tp, pp = layout.get("tp", 1), layout.get("pp", 1)
    dp = 4 // (tp * pp)
    pairs = {"parallel.tensor_model_parallel_size": tp, "parallel.pipeline_model_parallel_size": pp,
             "parallel.sequence_parallel": json.dumps(layout.get("sequence_parallel", False)),
             "parallel.virtual_pipeline_stages": layout.get("virtual", 1),
             "parallel.pipeline_schedule": layout.get("schedule", "1f1b"),
             "parallel.pipeline_layout": json.dumps(layout["layers"]) if "layers" in layout else "auto",
             "gradient_accumulation_steps": 8 // dp}
    return [argument for key, value in pairs.items() for argument in ("--set", f"{key}={value}")]


class Layouts(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.configure(**ONE_RANK)
        self.pretrain("--set", "output_dir=one")

    def assert_same_losses(self, run, tolerance=1e-5):
        expected = self.records("one")
        found = self.records(run)
        self.assertEqual(len(found), len(expected))
        for got, want in zip(found, expected):
            for key in ("loss", "grad_norm", "validation_loss"):
                if key in want:
                    self.assertAlmostEqual(got[key] / want[key], 1, delta=tolerance, msg=f"{run}: {key} {got} {want}")

    def test_losses_are_those_of_one_rank(self):
        for number, layout in enumerate(LAYOUTS):
            for virtual_nodes in (0, 2):
                if virtual_nodes and number % 3:
                    continue
                run = f"layout{number}-{virtual_nodes}"
                with self.subTest(layout=layout, virtual_nodes=virtual_nodes):
                    self.pretrain("--ranks", 4, "--set", f"output_dir={run}", "--set",
                                  f"comm.ranks_per_node={virtual_nodes}", *settings(layout))
                    self.assert_same_losses(run)

    def test_a_checkpoint_continues_in_another_layout(self):
        layout = LAYOUTS[6]
        self.configure(**{**ONE_RANK, "checkpoint": {"save_interval": 2}, "output_dir": "moved"})
        self.pretrain("--ranks", 4, "--set", "train_steps=4", *settings(layout))
        # Back to step 2, then on with one rank: same losses.
        self.trireme("checkpoint", "verify", "moved/checkpoints/step-00000002")
        self.pretrain("--resume", "moved/checkpoints/step-00000002", "--set", "output_dir=moved")
        self.assert_same_losses("moved")
        layouts = [(), ("--ranks", 2, "--tensor-parallel", 2), ("--ranks", 2, "--pipeline-parallel", 2)]
        losses = [json.loads(self.trireme("eval", run, "--json", *layout)[0])["loss"]
                  for run in ("moved", "one") for layout in layouts]
        for loss in losses:
            self.assertAlmostEqual(loss / losses[0], 1, delta=1e-5)

    def test_what_cannot_be_is_refused_before_work(self):
        self.assert_refused("pretrain", "--config", "run.json", "--set", "parallel.tensor_model_parallel_size=3",
                            says="does not divide the 1 ranks")
        self.assert_refused("pretrain", "--config", "run.json", "--validate", "--ranks", 4, "--set", "tp=4", "--set",
                            "model.num_attention_heads=6", "--set", "model.num_key_value_heads=3",
                            says="does not divide the model's 6 attention heads")


if __name__ == "__main__":
    harness.main()
