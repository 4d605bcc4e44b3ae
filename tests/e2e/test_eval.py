"""Validation sets with names, `trireme eval` and `trireme generate` under layouts that the run did not have."""
import json

import harness
import tiny_run

SETS = {"wiki": "valid", "code.c-1": [0.3, "valid", 0.7, "other"]}
EXPERTS = {"model_type": "mixtral", "vocab_size": 257, "max_position_embeddings": 27, "hidden_size": 32,
           "intermediate_size": 45, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
           "head_dim": 8, "num_local_experts": 3, "num_experts_per_tok": 2}
# What a step leaves for the next beside the weights: selection biases, and shares of the experts for the balancing loss.
BIASED = {"model_type": "deepseek", "vocab_size": 257, "max_position_embeddings": 32, "hidden_size": 32,
          "intermediate_size": 45, "moe_intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
          "scoring_func": "sigmoid", "topk_method": "noaux_tc", "router_bias_update_speed": 0.02,
          "seq_aux": False, "router_aux_loss_scope": "global", "aux_loss_alpha": 0.05}


class Evaluation(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.write("other.txt", tiny_run.text(200, 5))
        self.trireme("data", "prepare", "--input", "other.txt", "--output", "other")

    def named(self, sets, **changes):
        self.configure(data={"train_data_path": "train", "valid_data_path": sets, "tokenizer": "byte"}, **changes)

    def evaluate(self, *arguments):
        return json.loads(self.trireme("eval", "run", "--json", *arguments)[0])

    def train_plain_and_with_names(self, steps, interval, **changes):
        """Training does not notice, whatever is evaluated and when. Returns the records of run, which has SETS."""
        self.configure(train_steps=steps, **changes)
        self.pretrain("--set", "output_dir=plain", "--set", "evaluation.eval_iters=0")
        self.named(SETS, train_steps=steps, evaluation={"eval_interval": interval, "eval_iters": 0},
                   logging={"tensorboard": {"enabled": True}}, **changes)
        self.pretrain()
        records = self.records()
        self.assertEqual(list(records[-1]["validation_losses"]), list(SETS))
        self.assertFalse(any("validation_loss" in r for r in records))
        self.assertEqual([(r["loss"], r["grad_norm"]) for r in records],
                         [(r["loss"], r["grad_norm"]) for r in self.records("plain")])
        self.assertEqual(self.weights(steps), self.weights(steps, "plain"))
        self.assertEqual(records[-1]["validation_losses"]["wiki"], self.records("plain")[-1]["validation_loss"])
        return records

    def test_weights_in_fewer_bits(self):
        """A model that has learned something is hardly worse in 8 bits, and a little in 4; generate takes them too."""
        model = dict(tiny_run.config()["model"], hidden_size=64, intermediate_size=128)
        self.configure(train_steps=60, model=model)
        self.pretrain()
        plain = self.evaluate()["perplexity"]
        seen = {"as trained": plain}
        for name, most in (("q8_0", 1.01), ("q4_0", 1.15)):
            seen[name] = self.evaluate("--quantization", name)["perplexity"]
            self.assertLess(seen[name], most * plain)
            self.assertNotEqual(seen[name], plain)
            two = self.evaluate("--quantization", name, "--ranks", 2, "--tensor-parallel", 2)["perplexity"]
            self.assertAlmostEqual(two / seen[name], 1, delta=2e-3)
            out = self.trireme("generate", "run", "--quantization", name, "--prompt", "the oar", "--max-new-tokens", 8,
                               "--temperature", 0)[0]
            self.assertTrue(out.startswith("the oar"), out)
        self.assertNotEqual(seen["q8_0"], seen["q4_0"])
        self.assertLess(plain, 12, "it has learned nothing: the comparison means nothing")
        print("perplexity:", ", ".join(f"{name} {value:.4f}" for name, value in seen.items()))
        self.assert_refused("eval", "run", "--quantization", "fp8", says=["--quantization", "q8_0", "q4_0"])
        self.assert_refused("eval", "run", "--quantization", "q8_0", "--ranks", 4, "--tensor-parallel", 4,
                            says=["inputs on a rank are not whole blocks of 32", "--tensor-parallel"])

    def test_experts_do_not_notice_validation(self):
        records = self.train_plain_and_with_names(6, 2, model=BIASED)
        self.assertEqual([r["step"] for r in records if "validation_losses" in r], [2, 4, 6])
        self.assertIn("e_score_correction_bias", self.weights(6))

    def test_sets_with_names(self):
        records = self.train_plain_and_with_names(12, 5)
        self.assertEqual([r["step"] for r in records if "validation_losses" in r], [5, 10, 12])
        log = (self.folder / "run/train.log").read_text()
        for name in SETS:
            self.assertRegex(log, f"validation loss at iteration 10 on {name} set "
                                  "\\| lm loss value: [0-9.E+]+ \\| lm loss PPL: ")
            self.assertIn(f"validation set {name}: ", log)
        events = b"".join(path.read_bytes() for path in (self.folder / "run/tensorboard").iterdir())
        for name in SETS:
            self.assertEqual(events.count(f"lm loss validation/{name}".encode()), 3)
        self.trireme("report", "run", "-o", "report.html")
        for name in SETS:
            self.assertIn(f"run, validation {name}", (self.folder / "report.html").read_text())
        # eval: all of them, or the one that is named.
        sets = self.evaluate()["sets"]
        for name, loss in records[-1]["validation_losses"].items():
            self.assertAlmostEqual(sets[name]["loss"], loss, delta=1e-6)
            self.assertEqual(self.evaluate("--validation-set", name)["sets"], {name: sets[name]})
        self.assertNotEqual(sets["wiki"]["tokens"], sets["code.c-1"]["tokens"])
        self.assertIn("set         wiki\n", self.trireme("eval", "run")[0])
        alone = self.evaluate("--data", "valid")
        self.assertEqual(alone["loss"], sets["wiki"]["loss"])
        self.assertEqual(list(alone["sets"]), [""])
        self.assertEqual(alone["sets"][""], {member: alone[member] for member in sets["wiki"]})
        self.assert_refused("eval", "run", "--validation-set", "wikis", says=["wikis", "wiki, code.c-1"])
        self.assert_refused("eval", "plain", "--validation-set", "wiki", says="no named validation sets")
        # Two ranks, and a run that continues.
        self.pretrain("--ranks", 2, "--set", "output_dir=two")
        for one, many in zip(records, self.records("two"), strict=True):
            for name, loss in one.get("validation_losses", {}).items():
                self.assertAlmostEqual(many["validation_losses"][name], loss, delta=1e-5 * loss)

    def test_what_is_wrong_with_sets_is_said_at_once(self):
        self.write("letters.txt", "ab")
        self.trireme("data", "prepare", "--input", "letters.txt", "--output", "letters")
        self.named({"": "valid", "a b": "valid", "test": "valid", "ok": [0, "valid"]})
        self.assert_refused("pretrain", "--config", "run.json",
                            says=["4 problems", "empty name", '"a b"', '"test"', "data.valid_data_path.ok: expected weights above 0, got [0,"])
        self.named({"short": "letters", "gone": "nowhere", "good": "valid"})
        for arguments in ((), ("--validate",), ("--ranks", 2)):
            self.assert_refused("pretrain", "--config", "run.json", *arguments,
                                says=["2 problems", "data.valid_data_path.short: has 2 tokens",
                                      "data.valid_data_path.gone: "])
        self.configure(multiple_validation_sets=True)
        self.assert_refused("pretrain", "--config", "run.json",
                            says=["multiple_validation_sets", "data.valid_data_path"])

    def test_any_layout_evaluates_and_generates_what_one_rank_does(self):
        changes = {"train_steps": 4, "scheduler": {"type": "constant"}, "sequence_length": 27, "checkpoint": {},
                   "evaluation": {"eval_iters": 1}}
        self.configure(**changes, model=EXPERTS, train_batch_size=4, train_micro_batch_size_per_gpu=2,
                       zero_optimization={"stage": 3})
        self.pretrain("--ranks", 2)
        loss = self.evaluate()["loss"]
        for layout in (("--ranks", 2, "--context-parallel", 2),
                       ("--ranks", 2, "--context-parallel", 2, "--cp-comm-type", "a2a"),
                       ("--ranks", 4, "--context-parallel", 4, "--cp-comm-type", "a2a+p2p"),
                       ("--ranks", 2, "--context-parallel", 2, "--cp-balance", "contiguous"),
                       ("--ranks", 2, "--expert-parallel", 2),
                       ("--ranks", 2, "--expert-tensor-parallel", 2),
                       ("--ranks", 4, "--tensor-parallel", 2, "--sequence-parallel", "--context-parallel", 2,
                        "--expert-parallel", 2, "--expert-tensor-parallel", 2),
                       ("--ranks", 4, "--pipeline-parallel", 2, "--context-parallel", 2, "--expert-parallel", 2)):
            with self.subTest(layout=layout):
                self.assertAlmostEqual(self.evaluate(*layout)["loss"] / loss, 1, delta=1e-5)
        for sampling in (("--temperature", 0), ("--seed", 3)):
            command = ("generate", "run", "--prompt", "the oar", "--max-new-tokens", 12, *sampling)
            one = self.trireme(*command)[0]
            self.assertGreater(len(one), len("the oar") + 6)
            for layout in (("--ranks", 2, "--tensor-parallel", 2),
                           ("--ranks", 4, "--tensor-parallel", 2, "--pipeline-parallel", 2, "--expert-parallel", 2)):
                with self.subTest(layout=layout, sampling=sampling):
                    self.assertEqual(self.trireme(*command, *layout)[0], one)
        self.assert_refused("generate", "run", "--ranks", 2, "--expert-parallel", 2,
                            says="divided among the tensor-parallel ranks: give --tensor-parallel 2")

    def test_layouts_that_cannot_be_are_refused(self):
        self.configure(train_steps=1, scheduler={"type": "constant"})
        self.pretrain()
        for layout, says in ((("--ranks", 2, "--context-parallel", 4), ["--context-parallel 4", "2 ranks"]),
                             (("--ranks", 2, "--tensor-parallel", 4),
                              ["error: --tensor-parallel 4 does not divide the 2 ranks; give --ranks 4"]),
                             (("--ranks", 2, "--expert-parallel", 2), ["--expert-parallel", "no experts"]),
                             (("--pipeline-parallel", 3, "--ranks", 3), ["--pipeline-parallel", "2 layers"]),
                             (("--ranks", 3, "--tensor-parallel", 3), ["--tensor-parallel", "4 attention heads"])):
            with self.subTest(layout=layout):
                self.assert_refused("eval", "run", *layout, says=says)
                if "--context-parallel" not in layout:
                    self.assert_refused("generate", "run", *layout, says=says)
        self.assert_refused("generate", "run", "--ranks", 2, says=["2 ranks", "--tensor-parallel 1"])


if __name__ == "__main__":
    harness.main()
