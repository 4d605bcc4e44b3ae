"""Sites of a run: rounds and their bytes, validation and checkpoints of the shared weights, a run that is killed."""
import json
import re
import subprocess
import sys

import harness
import manifest
import tiny_run

sys.path.insert(0, str(harness.SOURCE / "scripts/bench"))
import slow_link_rows  # noqa: E402

STEPS = 300  # of a run that is killed before it ends
HIDDEN, INNER, KV = 32, 64, 16
LAYER = [(HIDDEN, HIDDEN), (KV, HIDDEN), (KV, HIDDEN), (HIDDEN, HIDDEN), (INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)]
MATRICES = [(257, HIDDEN), *LAYER, *LAYER]  # of the tiny run
NORMS = 5 * HIDDEN
NAN = b"\x00\x00\xc0\x7f"  # float32
SIZES = [rows * columns for rows, columns in LAYER]
# Elements of the parameters in each block of the store: the embeddings, the layers with their two norms, the last norm.
STORE_BLOCKS = [[257 * HIDDEN], *2 * [[HIDDEN, *SIZES[:4], HIDDEN, *SIZES[4:]]], [HIDDEN]]
UNIT = 1024  # elements that stay together where parameters are sent exactly


def first_piece(parameters):
    """Elements of the first of two ranks that share a store block: the units that begin in its first half."""
    total, before, elements = sum(parameters), 0, 0
    for size in parameters:
        elements += sum(min(UNIT, size - at) for at in range(0, size, UNIT) if 2 * (before + at) < total)
        before += size
    return elements


def code_bytes(matrices):
    """Size of matrices in 8 bits with blocks of 16."""
    return sum(rows * (4 * columns // 16 + columns) for rows, columns in matrices)


class Outer(tiny_run.RunTest):
    def rounds(self, run="run"):
        return {record["step"]: record for record in self.records(run) if "outer_ms" in record}

    def test_rounds(self):
        """After every fifth step and the last, a site sends each weight once, and nothing in the other steps."""
        self.configure(train_steps=12, outer={"sites": 2, "period": 5})
        self.pretrain("--ranks", 4, timeout=300)
        rounds = self.rounds()
        self.assertEqual(list(rounds), [5, 10, 12])
        weights = sum(rows * columns for rows, columns in MATRICES) + NORMS
        reports = 4 * 2 * 8  # of each rank: two float64
        for record in rounds.values():
            # By the first of the site's two ranks, to which that of the other site sends as much.
            self.assertEqual(record["outer_sent_bytes"], 4 * sum(map(first_piece, STORE_BLOCKS)))
            self.assertEqual(record["comm_send_bytes"], 2 * 4 * weights + reports)
            self.assertGreater(record["outer_update_norm"], 0)
            self.assertGreater(record["outer_drift"], 0)
        for record in self.records():
            if record["step"] not in rounds:
                self.assertEqual(record["comm_send_bytes"], 0)
        self.assert_members_are_documented()

    def test_console(self):
        """The start and the steps with a round name what the sites do."""
        self.configure(train_steps=7, outer={"sites": 2, "period": 3})
        lines, start = self.pretrain("--ranks", 4, timeout=300)
        self.assertIn("outer: 2 sites of 2 ranks each, algorithm diloco, period 3 steps, updates not compressed\n", start)
        shown = {int(step): (size, ms) for step, size, ms in
                 re.findall(r"(?m)iteration +(\d+)/.*\| outer round: ([\d.]+ KiB) sent, ([\d.]+) ms \|$", lines)}
        self.assertEqual(list(shown), [3, 6, 7])
        for step, record in self.rounds().items():
            size, ms = shown[step]
            self.assertAlmostEqual(float(size.split()[0]), record["outer_sent_bytes"] / 1024, delta=0.1)
            self.assertAlmostEqual(float(ms), record["outer_ms"], delta=0.06)
        compressed = {"sites": 4, "algorithm": "streaming_diloco", "period": 4, "warmup_steps": 2,
                      "compression": {"method": "quantize", "bits": 4, "block": 16}}
        self.configure(train_steps=8, outer=compressed, output_dir="streaming")
        _, start = self.pretrain("--ranks", 4, timeout=300)
        self.assertIn("outer: 4 sites of 1 rank each, algorithm streaming_diloco, period 4 steps, warm-up 2 steps, 2 fragments, "
                      "overlap 3 steps, updates compressed by quantize (bits 4, block 16)\n", start)
        self.configure(train_steps=5, output_dir="one-site")
        lines, start = self.pretrain()
        self.assertNotIn("outer", lines + start)

    def test_compressed_rounds(self):
        """Updates in 8 bits by the formulas of docs/design/outer.md."""
        self.configure(train_steps=5, outer={"sites": 2, "period": 3, "compression":
                                             {"method": "quantize", "bits": 8, "block": 16, "min_bytes": 1024}})
        self.pretrain("--ranks", 2, timeout=300)
        sent = code_bytes(MATRICES) + 4 * NORMS
        self.assertEqual([record["outer_sent_bytes"] for record in self.rounds().values()], 2 * [sent])

    def test_bytes_of_adasum(self):
        """The Gram matrices of all tensors besides, from the first rank of each site; a warm-up needs none."""
        sites = 4
        gram = (len(MATRICES) + NORMS // HIDDEN) * sites * (sites + 1) // 2 * 8
        for name, ranks in (("ranks-4", 4), ("ranks-8", 8)):
            sent = {}
            for algorithm in ("average", "adasum"):
                self.configure(train_steps=6, train_batch_size=16, output_dir=f"{name}-{algorithm}",
                               outer={"sites": sites, "algorithm": algorithm, "period": 5, "warmup_steps": 1})
                self.pretrain("--ranks", ranks, timeout=300)
                sent[algorithm] = [record["outer_sent_bytes"] for record in self.rounds(f"{name}-{algorithm}").values()]
            extra = [adasum - average for adasum, average in zip(sent["adasum"], sent["average"])]
            self.assertEqual(extra, [0, 3 * gram, 3 * gram])

    def kinds(self, step):
        """Kinds of the tensors of a checkpoint that belong to the outer algorithm."""
        kinds = {tensor["kind"] for tensor in json.loads(self.weights(step))}
        return sorted(kind for kind in kinds if kind.startswith("outer.") and "residual" not in kind)

    def test_overlapped_rounds(self):
        """Bytes of each fragment when its round ends, checkpoints in and after a round, and evaluations that change nothing."""
        compression = {"method": "quantize", "bits": 8, "block": 16, "min_bytes": 1024}
        changes = {"train_steps": 10, "outer": {"sites": 2, "algorithm": "streaming_diloco", "period": 5, "fragments": 2,
                                                "overlap_steps": 3, "compression": compression}}
        self.configure(checkpoint={"save_interval": 8}, **changes)
        self.pretrain("--ranks", 2, timeout=300)
        upper = code_bytes(LAYER) + 4 * 2 * HIDDEN
        lower = code_bytes([(257, HIDDEN), *LAYER]) + 4 * 3 * HIDDEN
        # The fragment of the upper layer begins after steps 2 and 7, that of the lower one after 5; the last step ends both.
        sent = {step: record["outer_sent_bytes"] for step, record in self.rounds().items()}
        self.assertEqual(sent, {5: upper, 8: lower, 10: upper + lower + upper})
        self.assertEqual(self.kinds(8), ["outer.local", "outer.local.site.1", "outer.momentum", "outer.update"])
        self.assertEqual(self.kinds(10), ["outer.momentum"])
        self.configure(output_dir="evaluated", evaluation={"eval_interval": 1, "eval_iters": 2}, **changes)
        self.pretrain("--ranks", 2, timeout=300)
        self.assertEqual(len({r["validation_loss"] for r in self.records("evaluated")[:4]}), 1)  # of the initial weights
        self.assertEqual(self.weights(10, "evaluated"), self.weights(10))

    def test_validation_is_of_the_checkpoint(self):
        """In the middle of a round, too: both are of the shared weights."""
        self.configure(train_steps=9, outer={"sites": 2, "period": 5}, checkpoint={"save_interval": 7},
                       evaluation={"eval_interval": 7, "eval_iters": 0})
        self.pretrain("--ranks", 2, timeout=300)
        losses = {record["step"]: record["validation_loss"] for record in self.records() if "validation_loss" in record}
        self.assertEqual(list(losses), [7, 9])
        for step, loss in losses.items():
            text, _ = self.trireme("eval", "--model", f"run/checkpoints/step-{step:08d}", "--data", "valid", "--json")
            self.assertAlmostEqual(json.loads(text)["loss"], loss, places=5)

    def test_a_killed_run_ends_with_the_same_bits(self):
        streaming = {"algorithm": "streaming_diloco", "period": 6, "overlap_steps": 3, "compression":
                     {"method": "quantize", "bits": 4, "block": 16, "min_bytes": 1024}}
        for name, outer in (("diloco", {"period": 4}), ("streaming", streaming),
                            ("adasum", {"algorithm": "adasum", "period": 4, "fragments": 2, "overlap_steps": 2, "compression":
                                        {"method": "quantize", "bits": 8, "block": 16, "min_bytes": 1024}}),
                            ("block_momentum", {"algorithm": "block_momentum", "period": 3, "warmup_steps": 4, "compression":
                                                {"method": "quantize", "bits": 1, "block": 16, "min_bytes": 1024}})):
            with self.subTest(name):
                changes = {"outer": {"sites": 2, **outer}, "checkpoint": {"save_interval": 5, "keep_last": 2},
                           "train_steps": STEPS}
                self.configure(output_dir=f"whole-{name}", **changes)
                self.pretrain("--ranks", 2, timeout=300)
                self.configure(output_dir="run", **changes)
                for steps in (2, 7, 4):
                    self.kill_at(steps)
                self.pretrain("--ranks", 2, "--resume", "auto", timeout=300)
                self.assertEqual(self.losses(), self.losses(f"whole-{name}"))
                self.assertEqual(self.weights(STEPS), self.weights(STEPS, f"whole-{name}"))
                (self.folder / "run").rename(self.folder / f"run-{name}")

    def test_another_number_of_sites_continues(self):
        self.configure(train_steps=8, scheduler={"type": "constant"}, checkpoint={"save_interval": 6},
                       outer={"sites": 2, "period": 4})
        self.pretrain("--ranks", 2, "--set", "train_steps=6", timeout=300)
        _, errors = self.pretrain("--ranks", 4, "--resume", "auto", "--set", "outer.sites=4", timeout=300)
        self.assertIn("outer.sites 2 -> 4: site i continues site i modulo 2", errors)
        _, errors = self.pretrain("--resume", "auto", "--set", "outer.sites=1", "--set", "train_steps=10")
        self.assertIn("this run has one site and continues from the weights that the sites of", errors)
        self.assertEqual(len(self.records()), 10)

    def test_one_site_continues_as_two_and_two_as_one(self):
        self.configure(train_steps=12, scheduler={"type": "constant"}, checkpoint={"save_interval": 4},
                       outer={"sites": 1, "period": 4})

        def train(sites, run, resume):
            _, errors = self.pretrain("--ranks", 2, "--set", f"outer.sites={sites}", "--set", f"output_dir={run}", *resume)
            return {record["step"]: record["loss"] for record in self.records(run)}, errors

        one, _ = train(1, "one", ())
        two, errors = train(2, "two", ("--resume", "one/checkpoints/step-00000004"))
        self.assertIn("outer.sites 1 -> 2: site i continues site i modulo 1", errors)
        self.assertEqual(list(two), [5, 6, 7, 8, 9, 10, 11, 12])
        self.assertEqual(list(self.rounds("two")), [8, 12])
        # All sites begin from the weights of the one, and train apart from there.
        self.assertAlmostEqual(two[5], one[5], places=5)
        self.assertNotAlmostEqual(two[8], one[8], places=5)
        again, errors = train(1, "again", ("--resume", "two/checkpoints/step-00000008"))
        self.assertIn("this run has one site and continues from the weights that the sites of", errors)
        self.assertEqual(list(again), [9, 10, 11, 12])
        self.assertEqual(self.rounds("again"), {})
        self.assertAlmostEqual(again[9], two[9], places=5)
        self.assertLess(again[12], one[4])

    def poisoned(self, outer):
        """Arguments that continue a run of two sites at step 5, between two rounds, where a weight of site 1 is not finite."""
        self.configure(train_steps=12, outer={"sites": 2, **outer}, checkpoint={"save_interval": 5}, max_consecutive_skips=3)
        self.pretrain("--ranks", 2)
        checkpoint = "run/checkpoints/step-00000005"
        manifest.overwrite(self.folder / checkpoint, "outer.local.site.1", "model.embed_tokens.weight", NAN)
        return ("pretrain", "--config", "run.json", "--ranks", 2, "--resume", checkpoint)

    def test_all_sites_stop_where_one_diverges(self):
        _, errors = self.trireme(*self.poisoned({"period": 100}), expect=4)
        self.assertEqual([(record["step"], record["skipped"]) for record in self.records()][5:],
                         [(step, False) for step in (6, 7, 8)])  # of site 0
        self.assertIn("[rank 1] warning: step 6 skipped: ", errors)
        self.assertNotIn("\nwarning: step", errors)  # site 0 skips none
        self.assertIn("stopped at step 8: 3 steps in a row were not finite, the last by a value of another site", errors)

    def test_a_site_that_skips_returns_with_the_next_round(self):
        _, errors = self.trireme(*self.poisoned({"period": 7}))
        self.assertIn("step 6 skipped: ", errors)
        self.assertIn("step 7 skipped: ", errors)
        self.assertIn("step 7: the update of site 1 is not finite and left out; the site continues from the shared weights", errors)
        self.assertNotIn("step 8", errors)
        self.assertEqual(list(self.rounds()), [7, 12])
        self.assertLess(self.records()[-1]["loss"], self.records()[4]["loss"])

    def test_sites_that_diverge_together(self):
        self.configure(train_steps=30, outer={"sites": 2}, max_consecutive_skips=3, gradient_clipping=0,
                       optimizer={"type": "SGD", "params": {"lr": 1e30}}, scheduler={"type": "constant"})
        _, errors = self.trireme("pretrain", "--config", "run.json", "--ranks", 2, expect=4)
        self.assertIn("3 steps in a row were not finite", errors)

    def refused(self, ranks, *assignments, says):
        settings = [part for one in assignments for part in ("--set", one)]
        self.assert_refused("pretrain", "--config", "run.json", "--ranks", ranks, *settings, says=says)

    def test_sites_that_do_not_fit(self):
        self.configure(train_steps=5, outer={"sites": 2}, bf16={"enabled": True})
        self.refused(3, says="outer.sites: 2 does not divide the 3 ranks of the run; set it to 1 or 3, or use 2 or 4 ranks")
        for ranks, sites in ((3, 1), (3, 3), (2, 2), (4, 2)):
            self.pretrain("--ranks", ranks, "--set", f"outer.sites={sites}", "--set", "train_batch_size=24",
                          "--set", f"output_dir=ranks-{ranks}-{sites}", timeout=300)
        self.refused(2, "optimizer.master_weights=false", says="set optimizer.master_weights to true")
        nvme = ("zero_optimization.offload_optimizer.device=nvme", "zero_optimization.offload_optimizer.nvme_path=.")
        self.refused(2, *nvme, says="set zero_optimization.offload_optimizer.device to none or cpu")
        self.pretrain("--ranks", 2, "--set", "optimizer.master_weights=true", "--set", "output_dir=master", timeout=300)
        self.pretrain("--ranks", 2, "--set", "zero_optimization.offload_optimizer.device=cpu", "--set", "output_dir=cpu", timeout=300)

    def test_rows_of_losses_are_configurations(self):
        for row in slow_link_rows.rows_of(2000):
            settings = [part for key, value in row.settings.items() for part in ("--set", f"{key}={value}")]
            self.trireme("config", "resolve", "--config", slow_link_rows.CONFIG, f"--ranks={slow_link_rows.RANKS}", *settings)

    def test_losses(self):
        """The tables of docs/design/outer.md for a run of four steps."""
        ran = subprocess.run([harness.SOURCE / "scripts/bench/slow_link_losses.py", "--trireme", harness.TRIREME, "--steps", "4",
                              "--data", self.folder, "--out", self.folder / "losses", "--only",
                              "^exact$|onebit-adam$|streaming"], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(ran.stdout, r"\| exact \| 19\.79 \| 79 \| \d\.\d+ \| \|\n")
        self.assertRegex(ran.stdout, r"\| `OneBitAdam`, `freeze_step` 400 \| 0\.78 \| 22 \| \d\.\d+ \| [+-][\d.]+ % \|\n")
        self.assertRegex(ran.stdout, r"\| `streaming_diloco`, 8 bits \| 50 \| \| \| \| \| \d\.\d+ \| [+-][\d.]+ % \| \d\.\d+ \| ")


if __name__ == "__main__":
    harness.main()
