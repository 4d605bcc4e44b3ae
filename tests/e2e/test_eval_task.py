"""`trireme eval --task` against a reference of lm-evaluation-harness's definitions, written out here."""
import json
import math
import re

import harness
import tiny_run

QUESTIONS = [("the oar of a", [" ship", " night", " sea"], 0), ("three ranks rowing", ["as one", "by night", "x"], 1),
             ("a quiet sea ", ["by", "oar", "with three"], 2), ("", ["the", "ship"], 0),
             ("over " * 12, ["a quiet sea by night", "oar"], 1)]
TEXTS = ["the oar of a ship", "three  ranks rowing as one over a quiet sea by night\n" * 3, "x",
         "theoarofashipwiththreeranksrowingasoneoveraquietseabynightandmore" * 2]


def mean_and_error(hits):
    mean = sum(hits) / len(hits)
    return mean, math.sqrt(sum((h - mean) ** 2 for h in hits) / (len(hits) - 1)) / math.sqrt(len(hits))


def rolling_windows(tokens, prefix, length):
    """lm_eval.utils.get_rolling_token_windows with context_len 1, through make_disjoint_window: (context, predicted)."""
    first = min(length, len(tokens))
    windows = [([prefix, *tokens[:first - 1]], tokens[:first])]
    predicted = first
    while predicted < len(tokens):
        count = min(len(tokens) - predicted, length)
        end = predicted + count
        windows.append((tokens[end - length - 1:end - 1], tokens[end - count:end]))
        predicted += count
    return [(a[:len(a) - (len(b) - 1)], b) for a, b in windows]


class Tasks(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.configure(train_steps=20)
        self.pretrain()

    def evaluate(self, records, *arguments, **options):
        self.write("task.jsonl", "".join(json.dumps(record) + "\n" for record in records))
        report, _ = self.trireme("eval", "run", "--task", "task.jsonl", "--samples", "samples.jsonl", "--json",
                                 *arguments, **options)
        samples = [json.loads(line) for line in (self.folder / "samples.jsonl").read_text().splitlines()]
        return json.loads(report), samples

    def test_choices(self):
        records = [{"context": c, "choices": choices, "label": label} for c, choices, label in QUESTIONS]
        report, samples = self.evaluate(records)
        hits = {"acc": [], "acc_norm": [], "acc_bytes": []}
        for (_, choices, label), sample in zip(QUESTIONS, samples):
            lls = sample["log_likelihoods"]
            self.assertEqual(sample["label"], label)
            self.assertTrue(all(ll < 0 for ll in lls))
            for name, lengths in (("acc", [1] * len(lls)), ("acc_norm", map(len, choices)),
                                  ("acc_bytes", (len(c.encode()) for c in choices))):
                scores = [ll / n for ll, n in zip(lls, lengths)]
                hits[name].append(scores.index(max(scores)) == label)
        for name, values in hits.items():
            mean, error = mean_and_error(values)
            self.assertAlmostEqual(report[name], mean)
            self.assertAlmostEqual(report[f"{name}_stderr"], error)
        for ranks, layout in ((2, ["--tensor-parallel", 2]), (2, []), (2, ["--pipeline-parallel", 2])):
            _, divided = self.evaluate(records, *layout, ranks=ranks)
            for ours, theirs in zip(samples, divided):
                for a, b in zip(ours["log_likelihoods"], theirs["log_likelihoods"]):
                    self.assertAlmostEqual(a, b, delta=1e-4 * abs(a))

    def test_chat_template(self):
        """Contexts that a template writes are those that are written out by hand, without a delimiter."""
        self.write("chat.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                   "{% if add_generation_prompt %}assistant:{% endif %}")
        items = [{"choices": choices, "label": label} for _, choices, label in QUESTIONS]
        asked = [{"context": c, **item} for (c, _, _), item in zip(QUESTIONS, items)]
        shot = [{"role": "system", "content": "row"}, {"role": "user", "content": "a ship"}]
        asked.append({"context": shot, **items[0]})
        by_hand = [{"context": f"user: {c}\nassistant:", **item} for (c, _, _), item in zip(QUESTIONS, items)]
        by_hand.append({"context": "system: row\nuser: a ship\nassistant:", **items[0]})
        applied, samples = self.evaluate(asked, "--apply-chat-template", "--chat-template", "chat.jinja",
                                         "--sequence-length", 32)
        written, reference = self.evaluate(by_hand, "--target-delimiter", "", "--sequence-length", 32)
        self.assertEqual(samples, reference)
        self.assertEqual(applied["acc"], written["acc"])
        self.assertNotEqual(self.evaluate(asked, "--apply-chat-template", "--chat-template", "chat.jinja",
                                          "--target-delimiter", " ")[1], reference)
        for says, wrong in (("--apply-chat-template", ["--chat-template", "chat.jinja"]),
                            ("chat_template", ["--apply-chat-template"]), ("--apply-chat-template", [])):
            self.assert_refused("eval", "run", "--task", "task.jsonl", *wrong, says=says)
        # Text of a message that the template does not read is named once, by one rank.
        shot[1]["tone"] = "dry"
        self.write("task.jsonl", (json.dumps({"context": shot, **items[0]}) + "\n") * 2)
        _, said = self.trireme("eval", "run", "--task", "task.jsonl", "--apply-chat-template",
                               "--chat-template", "chat.jinja", ranks=2)
        self.assertEqual(said.count('task.jsonl:1: a message has text in "tone"'), 1, said)
        self.assertEqual(said.count("does not read"), 1, said)

    def test_texts(self):
        report, samples = self.evaluate([{"text": text} for text in TEXTS])
        # Each window of the reference is asked for on its own, as a question about its bytes.
        total, compared = 0.0, []
        for text, sample in zip(TEXTS, samples):
            windows = rolling_windows(list(text.encode()), None, 32)
            asked = [{"context": "" if a[0] is None else bytes(a).decode(), "choices": [bytes(b).decode(), "x"],
                      "label": 0} for a, b in windows]
            # The harness moves spaces at the end of a context to the choice: such windows are no questions.
            if not any(record["context"].endswith((" ", "\n")) for record in asked):
                _, parts = self.evaluate(asked, "--target-delimiter", "")
                reference = sum(part["log_likelihoods"][0] for part in parts)
                self.assertAlmostEqual(sample["log_likelihood"], reference, delta=1e-4 * abs(reference))
                compared.append(len(windows))
            self.assertEqual(sample["words"], len(re.split(r"\s+", text)))
            self.assertEqual(sample["bytes"], len(text.encode()))
            total -= sample["log_likelihood"]
        self.assertGreater(max(compared), 1)
        words, size = sum(len(re.split(r"\s+", t)) for t in TEXTS), sum(len(t.encode()) for t in TEXTS)
        self.assertAlmostEqual(report["word_perplexity"] / math.exp(total / words), 1, places=6)
        self.assertAlmostEqual(report["byte_perplexity"] / math.exp(total / size), 1, places=6)
        self.assertAlmostEqual(report["bits_per_byte"], total / size / math.log(2))


if __name__ == "__main__":
    harness.main()
