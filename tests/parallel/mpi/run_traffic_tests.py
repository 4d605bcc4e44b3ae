"""The bytes of one whole training step, counted outside of the program, against metrics.jsonl and formulas.

A run of five steps sends what a run of four sends and one step more: start and saving are the same in both,
so the difference of what the ranks gave to MPI is exactly one step. (Nothing is learned, because the weights'
checksums are a part of what saving sends, and numbers are of different lengths in decimal.)

usage: TRIREME=BINARY run_traffic_tests.py PMPI_LIBRARY
"""
import json
import re
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "e2e"))
import tiny_run  # noqa: E402

PMPI = sys.argv[1]
if not Path(PMPI).exists():  # the loader would only warn, and nothing would be counted
    sys.exit(f"{PMPI} does not exist: build the target trireme_pmpi_count")
# Each step also adds up, over all ranks: valid tokens, the sums of losses and of squared gradients, whether
# somebody wants to stop, and the eight counts of metrics.jsonl.
SCALAR_BYTES = 8 * (4 + 8)
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


class TrafficOfOneStep(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.changes = {}

    def configure_run(self, run, steps):
        self.configure(**{"output_dir": run, "train_steps": steps, "checkpoint": {"save_interval": 0},
                          "evaluation": {"eval_interval": 0},
                          "scheduler": {"type": "constant", "params": {"warmup_steps": 0}},
                          "optimizer": {"type": "SGD", "params": {"lr": 0}}, **self.changes})

    def count(self, ranks, steps):
        """What the ranks gave to MPI in a run of so many steps, and the run's records."""
        run, prefix = f"run-{steps}", self.folder / f"count-{steps}"
        shutil.rmtree(self.folder / run, ignore_errors=True)
        for path in self.folder.glob(f"count-{steps}.*.json"):
            path.unlink()
        self.configure_run(run, steps)
        out, err = self.pretrain(ranks=ranks, environment={"LD_PRELOAD": PMPI, "PMPI_COUNT_PREFIX": str(prefix)})
        counted = [json.loads(path.read_text()) for path in self.folder.glob(f"count-{steps}.*.json")]
        self.assertEqual(sorted(c["rank"] for c in counted), list(range(ranks)), out + err)
        return sum(c["bytes"] for c in counted), self.records(run)

    def one_step(self, ranks, **changes):
        """The bytes of each kind in the last step, which MPI must have been given."""
        self.changes = changes
        before, _ = self.count(ranks, 4)
        after, records = self.count(ranks, 5)
        steps = [{match[1]: int(value) for name, value in record.items()
                  if (match := re.fullmatch(r"comm_(\w+)_bytes", name))} for record in records]
        kinds = dict(steps[-1])
        if "model" not in changes:  # where tokens choose experts, steps differ; the first one has the start as well
            self.assertEqual(steps[1:], [kinds] * 4)
        self.assertEqual(sorted(kinds), ["all_gather", "all_reduce", "all_to_all", "broadcast", "control",
                                         "reduce_scatter", "send", "window"])
        self.window = kinds.pop("window")
        self.assertEqual(sum(kinds.values()), after - before, kinds)
        return {name: sent for name, sent in kinds.items() if sent != 0}

    def payload(self):
        """Bytes that data-parallel ranks reduce in a step."""
        self.changes = {}
        self.configure_run("alone", 1)
        out, _ = self.pretrain("--validate")
        return int(re.search(r"gradients .*\((\d+) bytes\)", out)[1]) + SCALAR_BYTES

    def test_one_ring(self):
        for ranks, comm in ((2, {}), (4, {"bucket_size": 16384}), (4, {"ranks_per_node": 2})):
            with self.subTest(ranks=ranks, comm=comm):
                step = self.one_step(ranks, comm={"algorithm": "ring", **comm})
                self.assertEqual(step, {"all_reduce": 2 * (ranks - 1) * self.payload()})
                self.assertEqual(self.window, 0)

    def test_windows_of_two_nodes(self):
        step = self.one_step(4, comm={"ranks_per_node": 2})
        self.assertEqual(step, {"all_reduce": 2 * self.payload()})
        self.assertEqual(self.window, 4 * self.payload())

    def test_zero(self):
        step = self.one_step(2, comm={"algorithm": "ring"}, zero_optimization={"stage": 3})
        self.assertEqual(sorted(step), ["all_gather", "all_reduce", "reduce_scatter"])

    def test_tensor_pipeline_and_context_parallel(self):
        step = self.one_step(8, comm={"algorithm": "ring"}, parallel={
            "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 2,
            "sequence_parallel": True})
        self.assertEqual(sorted(step), ["all_gather", "all_reduce", "reduce_scatter", "send"])

    def test_pipeline_and_experts(self):
        model = {**tiny_run.config()["model"], "model_type": "mixtral", **EXPERTS}
        step = self.one_step(4, comm={"algorithm": "ring"}, model=model, parallel={
            "pipeline_model_parallel_size": 2, "expert_model_parallel_size": 2})
        self.assertLessEqual({"all_reduce", "all_to_all", "send"}, set(step))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
