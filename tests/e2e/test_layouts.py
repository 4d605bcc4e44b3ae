"""Parallel layouts over real MPI processes: the losses of one rank, and checkpoints that any layout reads."""
import json

import harness
import tiny_run

# Sizes that 2 and 4 ranks do not divide.
MODEL = {"model_type": "llama", "vocab_size": 257, "max_position_embeddings": 27, "hidden_size": 32,
         "intermediate_size": 45, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 8}
EXPERTS = {**MODEL, "model_type": "qwen2_moe", "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 13,
           "shared_expert_intermediate_size": 11, "decoder_sparse_step": 4, "router_aux_loss_coef": 0.01}
# What a rank of a real run waits for is mostly the other processes on its core: few and short steps.
SEQUENCES = 4
ONE_RANK = {"train_batch_size": SEQUENCES, "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": SEQUENCES, "sequence_length": 27, "train_steps": 3, "model": MODEL,
            "checkpoint": {}, "evaluation": {"eval_interval": 2, "eval_iters": 1},
            "scheduler": {"type": "constant", "params": {"warmup_steps": 1}},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
LAYOUTS = [
    {"tp": 4},
    {"tp": 2, "sequence_parallel": True, "nodes": 2},
    {"pp": 4, "schedule": "gpipe"},
    {"pp": 4, "schedule": "1f1b"},
    {"pp": 2, "schedule": "interleaved_1f1b", "virtual": 2},
    {"pp": 2, "schedule": "zb_h1", "zero": 1},
    {"pp": 2, "schedule": "zb_h2", "tp": 2, "sequence_parallel": True},
    {"pp": 2, "schedule": "waves.json", "zero": 2},
    {"pp": 2, "tp": 2, "layers": [5, 3]},
    {"cp": 2, "zero": 2},
    {"cp": 2, "cp_comm_type": "a2a", "tp": 2},
    {"cp": 4, "cp_comm_type": "a2a+p2p", "nodes": 2},
    {"zero": 3},
]
EXPERT_LAYOUTS = [
    {"ep": 4, "zero": 1},
    {"ep": 2, "etp": 2, "tp": 2},
    # Four dimensions and all of ZeRO at once, over two virtual nodes.
    {"ranks": 8, "tp": 2, "sequence_parallel": True, "pp": 2, "cp": 2, "ep": 2, "zero": 3, "nodes": 4},
]
# Two micro-batches forward, then backward, weights in the reverse order: of two stages and two micro-batches.
WAVES = {"version": 1, "stages": 2, "micro_batches": 2, "ranks": [["F0", "F1", "I0", "I1", "W1", "W0"]] * 2}


def settings(layout):
    """The arguments of a layout, by default of four ranks. nodes: ranks of a virtual node."""
    tp, pp, cp, ranks = (layout.get(key, default) for key, default in (("tp", 1), ("pp", 1), ("cp", 1), ("ranks", 4)))
    dp = ranks // (tp * pp * cp)
    pairs = {"parallel.tensor_model_parallel_size": tp, "parallel.pipeline_model_parallel_size": pp,
             "parallel.context_parallel_size": cp, "parallel.cp_comm_type": layout.get("cp_comm_type", "p2p"),
             "parallel.sequence_parallel": json.dumps(layout.get("sequence_parallel", False)),
             "parallel.virtual_pipeline_stages": layout.get("virtual", 1),
             "parallel.pipeline_schedule": layout.get("schedule", "1f1b"),
             "parallel.pipeline_layout": json.dumps(layout["layers"]) if "layers" in layout else "auto",
             "parallel.expert_model_parallel_size": layout.get("ep", 1),
             "parallel.expert_tensor_parallel_size": layout.get("etp", 1),
             "zero_optimization.stage": layout.get("zero", 0), "comm.ranks_per_node": layout.get("nodes", 0),
             "gradient_accumulation_steps": SEQUENCES // dp}
    return ["--ranks", ranks, *(argument for key, value in pairs.items() for argument in ("--set", f"{key}={value}"))]


class Layouts(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.configure(**ONE_RANK)
        self.pretrain("--set", "output_dir=one")

    def assert_same_losses(self, run, reference="one", steps=3, tolerance=1e-5):
        expected = self.records(reference)[:steps]
        found = self.records(run)
        self.assertEqual(len(found), len(expected))
        for got, want in zip(found, expected):
            for key in ("loss", "grad_norm", "validation_loss"):
                if key in want:
                    self.assertAlmostEqual(got[key] / want[key], 1, delta=tolerance, msg=f"{run}: {key} {got} {want}")

    def assert_waiting_is_reported(self, run, stages):
        for record in self.records(run):
            self.assertEqual("pipeline_idle_ms" in record, stages > 1, run)
            self.assertGreater(record["exposed_comm_ms"], 0, run)
            self.assertGreater(record.get("pipeline_idle_ms", 1), 0, run)
            self.assertLess(record["exposed_comm_ms"] + record.get("pipeline_idle_ms", 0), record["step_ms"], run)

    def assert_layouts(self, layouts, reference):
        for number, layout in enumerate(layouts):
            with self.subTest(layout=layout):
                run = f"{reference}-{number}"
                self.pretrain("--set", f"output_dir={run}", "--set", "train_steps=2", *settings(layout))
                self.assert_same_losses(run, reference, steps=2)
                self.assert_waiting_is_reported(run, layout.get("pp", 1))
                self.assert_members_are_documented(run)

    def test_losses_are_those_of_one_rank(self):
        self.write("waves.json", json.dumps(WAVES))
        self.assert_layouts(LAYOUTS, "one")
        self.assertFalse({"exposed_comm_ms", "pipeline_idle_ms"} & self.records("one")[0].keys())

    def test_losses_of_experts_are_those_of_one_rank(self):
        self.configure(**{**ONE_RANK, "model": EXPERTS, "train_steps": 2})
        self.pretrain("--set", "output_dir=experts")
        self.assert_layouts(EXPERT_LAYOUTS, "experts")

    def test_a_checkpoint_continues_in_another_layout(self):
        layout = LAYOUTS[6]
        self.configure(**{**ONE_RANK, "checkpoint": {"save_interval": 2}, "output_dir": "moved"})
        self.pretrain(*settings(layout))
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
