"""Compressed gradients of a run: the bytes that are sent, a run that is killed, and what does not fit."""
import re

import harness
import tiny_run

METHOD = "compression.gradients.method"
STEPS = 300  # of a run that is killed before it ends
HIDDEN, INNER, KV = 32, 64, 16
LAYER = [(HIDDEN, HIDDEN), (KV, HIDDEN), (KV, HIDDEN), (HIDDEN, HIDDEN), (INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)]
MATRICES = [(257, HIDDEN), *LAYER, *LAYER]  # of the tiny run, in the order of its parameters


def gradients(method, **options):
    return {"gradients": {"method": method, "min_bytes": 1024, **options}}


def weights(**options):
    return {"zero_optimization": {"stage": 3}, "compression": {"parameters": {"method": "quantize", "min_bytes": 1024, **options}}}


def padded(size):
    return -(-size // 8) * 8


class Compression(tiny_run.RunTest):
    def run_on_two(self, output, *arguments):
        return self.pretrain("--ranks", 2, "--set", f"output_dir={output}", *arguments, timeout=300)

    def run_on_four(self, *assignments):
        """Five steps of two replicas, each divided by tensor parallelism unless an assignment changes that."""
        chosen = ["parallel.tensor_model_parallel_size=2", "train_steps=5", *assignments]
        self.pretrain("--ranks", 4, *[part for one in chosen for part in ("--set", one)], timeout=300)

    def sent(self, run):
        """Bytes of all-to-alls and of all-reduces in the last step, by all ranks."""
        record = self.records(run)[-1]
        return record["comm_all_to_all_bytes"], record["comm_all_reduce_bytes"]

    def test_bytes(self):
        """The codes of all matrices by the formulas of docs/design/outer.md, and the norms as they are."""
        self.configure(train_steps=5, comm={"algorithm": "ring"})
        self.run_on_two("exact")
        self.configure(train_steps=5, comm={"algorithm": "ring"}, compression=gradients("quantize", bits=4, block=16))
        self.run_on_two("compressed")
        codes = sum(rows * (4 * columns // 16 + columns // 2) for rows, columns in MATRICES)
        norms = 5 * HIDDEN * 4
        all_to_all, all_reduce = self.sent("compressed")
        self.assertEqual(all_to_all, 2 * (codes + norms))  # each of two ranks sends one half in both phases
        plain_all_to_all, plain_all_reduce = self.sent("exact")
        self.assertEqual(plain_all_to_all, 0)
        weights = sum(rows * columns for rows, columns in MATRICES) * 4
        self.assertLess(all_reduce, plain_all_reduce - 2 * weights)

    def test_a_killed_run_ends_with_the_same_bits(self):
        adam = {"type": "OneBitAdam", "params": {"lr": 5e-3, "freeze_step": 8}}
        for method, changes in (
                ("quantize", {"compression": gradients("quantize", warmup_steps=3, bits=1, block=16)}),
                ("powersgd", {"compression": gradients("powersgd", warmup_steps=3, rank=2)}),
                ("moments", {"compression": gradients("quantize", bits=1, block=16), "optimizer": adam})):
            with self.subTest(method):
                changes.update({"checkpoint": {"save_interval": 5, "keep_last": 2}, "train_steps": STEPS})
                self.configure(output_dir=f"whole-{method}", **changes)
                self.pretrain("--ranks", 2, timeout=300)
                self.configure(output_dir="run", **changes)
                for steps in (2, 7, 4):
                    self.kill_at(steps)
                self.pretrain("--ranks", 2, "--resume", "auto", timeout=300)
                self.assertEqual(self.losses(), self.losses(f"whole-{method}"))
                self.assertEqual(self.weights(STEPS), self.weights(STEPS, f"whole-{method}"))
                text, _ = self.trireme("checkpoint", "inspect", "run")
                for kind in ("residual.0", "residual.1", "residual.sum"):
                    self.assertIn(kind, text)
                (self.folder / "run").rename(self.folder / f"run-{method}")

    def test_bytes_of_quantized_weights(self):
        """The longest message of two ranks, by the formula of docs/design/zero.md: 8 bits and a scale for 16 elements."""
        self.configure(train_steps=5, comm={"algorithm": "ring"}, **weights(block=16))
        self.run_on_two("run")
        row, norm = HIDDEN + 4 * HIDDEN // 16, 4 * HIDDEN
        table = 129 * row  # of 257 rows
        # Of a layer's 9344 elements, with padding, the first half ends after 46 of the 64 rows of the gate.
        layer = 2 * norm + (2 * HIDDEN + 2 * KV + 46) * row
        self.assertGreater(layer, (64 - 46 + INNER) * row + HIDDEN * 2 * row)
        # The tied table and the layers are gathered twice in each of two micro-batches, the last norm once.
        self.assertEqual(self.records()[1]["comm_all_gather_bytes"], 2 * 2 * (2 * table + 2 * 2 * layer + norm))

    def test_windows_of_quantized_weights(self):
        """Ranks of one node gather codes through shared memory, as they gather exact weights, and fewer bytes."""
        copied = {}
        for run, changes in (("exact", {"zero_optimization": {"stage": 3}}), ("quantized", weights(block=16))):
            self.configure(train_steps=5, **changes)
            self.run_on_two(run)
            record = self.records(run)[1]
            self.assertEqual(record["comm_all_gather_bytes"], 0)
            copied[run] = record["comm_window_bytes"]
        self.assertGreater(copied["quantized"], 0)
        self.assertLess(copied["quantized"], copied["exact"])

    def test_a_killed_run_of_quantized_weights(self):
        saved = {"checkpoint": {"save_interval": 5, "keep_last": 2}, "train_steps": STEPS}
        self.configure(output_dir="exact", zero_optimization={"stage": 3}, **saved)
        self.pretrain("--ranks", 2, timeout=300)
        for bits, difference in ((8, 0.02), (4, 0.1)):
            with self.subTest(bits):
                changes = {**weights(bits=bits, block=16), **saved}
                self.configure(output_dir=f"whole-{bits}", **changes)
                self.pretrain("--ranks", 2, timeout=300)
                self.configure(output_dir="run", **changes)
                for steps in (2, 7, 4):
                    self.kill_at(steps)
                self.pretrain("--ranks", 2, "--resume", "auto", timeout=300)
                self.assertEqual(self.losses(), self.losses(f"whole-{bits}"))
                self.assertEqual(self.weights(STEPS), self.weights(STEPS, f"whole-{bits}"))
                self.assertNotEqual(self.losses(), self.losses("exact"))
                exact, quantized = (self.losses(run)[-1][1] for run in ("exact", "run"))
                self.assertLess(abs(quantized - exact), difference * exact)
                (self.folder / "run").rename(self.folder / f"run-{bits}")

    def test_blocks_of_weights_that_a_layout_cuts(self):
        self.configure(**weights(block=32))
        self.assert_refused("pretrain", "--config", "run.json", "--ranks", 4, "--set", "parallel.tensor_model_parallel_size=2",
                            says=["compression.parameters: model.layers.0.self_attn.o_proj.weight (32, 32)",
                                  "use a block that divides 16", "or set min_bytes above 4096"])

    def test_a_second_copy_of_the_weights(self):
        """The same numbers; of four ranks two and two divide the layers again, and backward gathers these."""
        self.configure(train_steps=5, comm={"algorithm": "ring"}, zero_optimization={"stage": 3})
        self.pretrain("--ranks", 4, "--set", "output_dir=without", timeout=300)
        copy = "zero_optimization.zero_hpz_partition_size=2"
        self.pretrain("--ranks", 4, "--set", copy, timeout=300)
        self.assertEqual(self.losses(), self.losses("without"))
        self.assertEqual(self.weights(5), self.weights(5, "without"))
        layers = 2 * 4 * 9344  # bytes, with padding
        without, sent = (self.records(run)[1]["comm_all_gather_bytes"] for run in ("without", "run"))
        self.assertEqual(without - sent, (3 - 2) * layers)
        other = ("--ranks", 4, "--set", "output_dir=other")
        report, _ = self.pretrain(*other, "--set", copy, "--validate")
        self.assertIn(f"second copy of these     {layers / 2 / 1024:.1f} KiB ({layers // 2} bytes)", report)
        self.assert_refused("pretrain", "--config", "run.json", *other, "--set", "zero_optimization.zero_hpz_partition_size=3",
                            says="3 must divide the 4 ranks with the same weights")

    def test_a_second_copy_on_several_nodes(self):
        self.configure(train_steps=5, comm={"ranks_per_node": 2}, zero_optimization={"stage": 3})
        for ranks, output in ((4, "run"), (2, "followed")):
            _, log = self.pretrain("--ranks", 4, "--set", f"output_dir={output}",
                                   "--set", f"zero_optimization.zero_hpz_partition_size={ranks}", timeout=300)
            advice = "; set it to 2, the largest size inside a node" if ranks == 4 else "several nodes"
            self.assertEqual(log.count(advice), 1 if ranks == 4 else 0)
        self.assertEqual(self.losses("followed"), self.losses())

    def test_one_replica_drops_residuals(self):
        self.configure(compression=gradients("quantize", bits=1), scheduler={"type": "constant"})
        self.pretrain("--ranks", 2, "--set", "train_steps=10", timeout=300)
        _, errors = self.pretrain("--resume", "auto")
        self.assertIn("this run compresses no gradients, so the residuals in ", errors)

    def test_memory_is_planned(self):
        """The wires and residuals of rank 0 by the formulas of docs/design/outer.md, as a part of the total."""
        pieces = [MATRICES[:6], MATRICES[6:]]  # halves of the elements: the up projection begins the second
        elements = [sum(rows * columns for rows, columns in piece) for piece in pieces]
        norms = [2 * HIDDEN, 3 * HIDDEN]
        self.assertEqual(elements[0] + norms[0], elements[1] + norms[1])
        wires = [sum(padded(4 * rows) + padded(rows * columns) for rows, columns in piece) + 4 * exact
                 for piece, exact in zip(pieces, norms)]  # one block of 8 bits per row
        memory = sum(wires) + 2 * wires[0]
        for feedback, residuals in ((True, 4 * (sum(elements) + elements[0])), (False, 0)):
            self.configure(compression=gradients("quantize", bits=8, error_feedback=feedback))
            report, _ = self.pretrain("--ranks", 2, "--validate")
            lines = re.findall(r"(?m)^  ([^\d\n]+) [\d.]+ \w+ \((\d+) bytes\)$", report)
            planned = {name.strip(): int(size) for name, size in lines}
            self.assertEqual(planned["compressed gradients"], memory + residuals)
            self.assertEqual(planned.pop("total"), sum(planned.values()))

    def test_one_replica_needs_none(self):
        self.configure(train_steps=5, compression=gradients("quantize"))
        text, errors = self.pretrain()
        self.assertIn(f"{METHOD}: has no effect with parallel.data_parallel_size 1", text + errors)

    def test_blocks_that_a_layout_cuts(self):
        self.configure(compression=gradients("quantize", block=32))
        self.assert_refused("pretrain", "--config", "run.json", "--ranks", 4, "--set", "parallel.tensor_model_parallel_size=2",
                            says=["compression.gradients: model.layers.0.self_attn.o_proj.weight (32, 32)",
                                  "use a block that divides 16", "or set min_bytes above 4096"])
        for way_out in ("block=16", "min_bytes=4097"):
            self.run_on_four(f"compression.gradients.{way_out}", f"output_dir={way_out}")
        # Halves of 12 columns consist of no multiples of 8.
        narrow = {**tiny_run.config()["model"], "hidden_size": 24}
        self.configure(model=narrow, compression=gradients("quantize", block=8))
        self.assert_refused("pretrain", "--config", "run.json", "--ranks", 4, "--set", "parallel.tensor_model_parallel_size=2",
                            says=[": use another method", "or set min_bytes above"])
        self.run_on_four(f"{METHOD}=top_k", "compression.gradients.block=4", "output_dir=narrow")

    def test_moments(self):
        """Replicas exchange the moments of OneBitAdam in 1 bit after its warm-up, in which sums are exact."""
        adam = {"type": "OneBitAdam", "params": {"lr": 5e-3, "freeze_step": 5, "cuda_aware": False, "comm_backend_name": "nccl"}}
        self.configure(train_steps=8, optimizer=adam, compression=gradients("quantize", block=16))
        config = ("pretrain", "--config", "run.json", "--ranks", 2)
        self.assert_refused(*config, "--set", "zero_optimization.stage=1",
                            says="OneBitAdam needs whole moments: set zero_optimization.stage to 0, got 1")
        self.assert_refused(*config, "--set", "optimizer.state_dtype=bf16", says="set optimizer.state_dtype to fp32")
        self.trireme(*config, "--set", "zero_optimization.stage=0", "--set", "optimizer.state_dtype=fp32")
        sent = [record["comm_all_to_all_bytes"] for record in self.records()]
        pieces = [MATRICES[:6], MATRICES[6:]]  # halves of the elements
        norms = 5 * HIDDEN * 4
        codes = sum(padded(4 * rows * columns // 16) + padded(rows * columns // 8) for piece in pieces for rows, columns in piece)
        self.assertEqual(sent, 5 * [0] + 3 * [2 * (codes + norms)])

    def test_moments_of_experts(self):
        experts = {**tiny_run.config()["model"], "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
        self.configure(train_steps=5, model=experts, optimizer={"type": "OneBitAdam", "params": {"lr": 5e-3}})
        config = ("pretrain", "--config", "run.json", "--ranks", 2)
        self.assert_refused(*config, says="OneBitAdam is not supported with experts; "
                                          "set optimizer.type to AdamW and compression.gradients.method to quantize")
        self.trireme(*config, "--set", "optimizer.type=AdamW", "--set", f"{METHOD}=quantize")
        self.assertGreater(self.records()[-1]["comm_all_to_all_bytes"], 0)

    def test_nodes_of_different_sizes(self):
        """Of three ranks two are on the first node."""
        self.configure(train_steps=5, train_batch_size=6, compression=gradients("quantize", scope="inter_node"))
        nodes = ("--ranks", 3, "--set", "comm.ranks_per_node=2")
        self.assert_refused("pretrain", "--config", "run.json", *nodes,
                            says="nodes have different numbers of ranks with the same parameters; give each as many, or set scope to all")
        self.pretrain(*nodes, "--set", "compression.gradients.scope=all", "--set", "output_dir=all", timeout=300)
        self.pretrain("--ranks", 4, "--set", "train_batch_size=8", "--set", "comm.ranks_per_node=2", timeout=300)

    def test_whole_matrices(self):
        self.configure(compression=gradients("powersgd"))
        self.assert_refused("pretrain", "--config", "run.json", "--ranks", 4, "--set", "parallel.tensor_model_parallel_size=2",
                            says=[f"{METHOD}: powersgd encodes whole matrices", "set it to 1, or use quantize, top_k or random_k"])
        self.run_on_four("parallel.tensor_model_parallel_size=1", "output_dir=undivided")
        autotune = ("cuda.autotune=true", "deterministic=false")
        self.assert_refused("pretrain", "--config", "run.json", "--ranks", 2, *[a for one in autotune for a in ("--set", one)],
                            says="needs the same products on all ranks: set cuda.autotune to false")
        self.run_on_four("parallel.tensor_model_parallel_size=1", *autotune, "cuda.autotune=false", "output_dir=not-timed")
        for method in ("quantize", "top_k", "random_k"):
            self.run_on_four(f"{METHOD}={method}", "compression.gradients.block=16", f"output_dir={method}")


if __name__ == "__main__":
    harness.main()
