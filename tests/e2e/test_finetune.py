"""A model trained from scratch, fine-tuned on instructions, answers instructions it has not seen."""
import itertools
import json
import math
import random
import re
import shutil

import harness
import tiny_run

LETTERS = "abcdefgh"
MODEL = {"model_type": "llama", "vocab_size": 257, "max_position_embeddings": 64, "hidden_size": 64,
         "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
TEMPLATE = ("{% for m in messages %}{% if m.role == 'user' %}Q {{ m.content }}\nA {% else %}"
            "{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}")


def words():
    """All words of four different letters, in a random order."""
    out = ["".join(word) for word in itertools.permutations(LETTERS, 4)]
    random.Random(3).shuffle(out)
    return out


class Finetuning(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.words = words()
        text = random.Random(4)
        # What the first model sees: the letters, and that words come again. Nothing of questions.
        self.write("letters.txt", "\n".join(f"{w} {w}" for w in text.choices(self.words, k=4000)))
        self.trireme("data", "prepare", "--input", "letters.txt", "--output", "letters")
        self.held_out, learned = self.words[:50], self.words[100:]
        self.messages("train.jsonl", learned)
        self.messages("valid.jsonl", self.words[50:100])
        self.write("chat.jinja", TEMPLATE)

    def messages(self, name, items):
        self.write(name, "".join(json.dumps({"messages": [
            {"role": "user", "content": word}, {"role": "assistant", "content": word[::-1]}]}) + "\n"
            for word in items))

    def response(self, run, word):
        prompt = f"Q {word}\nA "
        said, _ = self.trireme("generate", run, "--prompt", prompt, "--temperature", 0, "--max-new-tokens", 8)
        return said.removeprefix(prompt).removesuffix("\n")

    def exact_match(self, run):
        return sum(self.response(run, word) == word[::-1] for word in self.held_out) / len(self.held_out)

    def base(self, **changes):
        self.configure(model=MODEL, sequence_length=64, train_steps=60, train_batch_size=16,
                       train_micro_batch_size_per_gpu=16, output_dir="base", evaluation={},
                       data={"train_data_path": "letters", "tokenizer": "byte"},
                       optimizer={"params": {"lr": 3e-3}}, **changes)
        self.pretrain()

    def finetune_config(self, **changes):
        document = {"output_dir": "tuned", "checkpoint": {"load": "base"}, "train_batch_size": 16,
                    "train_micro_batch_size_per_gpu": 16, "sequence_length": 64, "seed": 5,
                    "finetune": {"train_file": "train.jsonl", "valid_file": "valid.jsonl",
                                 "chat_template": "chat.jinja", "num_train_epochs": 30},
                    "optimizer": {"params": {"lr": 3e-3, "weight_decay": 0.0}},
                    "data": {"tokenizer": "byte"}, "cpu": {"threads_per_rank": 1}}
        document.update(changes)
        self.write("tune.json", json.dumps(document))

    def finetune(self, *arguments, **options):
        return self.trireme("finetune", "--config", "tune.json", *arguments, **options)

    def test_answers_what_it_has_not_seen(self):
        self.base()
        # Learned at one stroke, between the 25th and the 40th epoch.
        self.finetune_config()
        self.finetune("--set", "finetune.num_train_epochs=60")
        self.assertLess(self.exact_match("base"), 0.1)
        self.assertGreater(self.exact_match("tuned"), 0.9)
        # Asked by its own template, or by one that is given: the same prompt, and only the answer is shown.
        word = next(w for w in self.held_out if self.response("tuned", w) == w[::-1])
        asked = ["generate", "tuned", "--chat", "--prompt", word, "--temperature", 0, "--max-new-tokens", 8]
        self.assertEqual(self.trireme(*asked)[0], word[::-1] + "\n")
        self.assertEqual(self.trireme(*asked, "--chat-template", "chat.jinja")[0], word[::-1] + "\n")
        self.write("other.jinja", TEMPLATE.replace("Q ", "Q no "))
        self.assertNotEqual(self.trireme(*asked, "--chat-template", "other.jinja")[0], word[::-1] + "\n")
        self.assert_refused("generate", "base", "--chat", "--prompt", word, says="template")
        self.assert_refused("generate", "tuned", "--chat-template", "chat.jinja", says="--chat")
        self.assert_members_are_documented("tuned")
        records = self.records("tuned")
        self.assertEqual(records[-1]["epoch"], 60)
        self.assertIn("validation_loss", records[-1])
        # Its own validation examples, unless it is told.
        report = json.loads(self.trireme("eval", "tuned", "--json")[0])
        self.assertAlmostEqual(report["loss"], records[-1]["validation_loss"], delta=1e-5)
        self.assert_refused("eval", "tuned", "--validation-set", "a", says="has one validation set, without a name")
        for option in (["--max-samples", 2], ["--validation-set", "a"]):
            self.assert_refused("eval", "tuned", "--task", "task.jsonl", *option, says="excludes")

    def test_adapters(self):
        """Beside a frozen base: learned, resumed, evaluated, written for PEFT, and read back from there."""
        self.base()
        lora = {"rank": 16, "alpha": 32, "dropout": 0.05}
        self.finetune_config(checkpoint={"load": "base", "save_interval": 100})
        document = json.loads((self.folder / "tune.json").read_text())
        document["finetune"] |= {"lora": lora, "num_train_epochs": 8}
        self.write("tune.json", json.dumps(document))
        self.finetune()
        tuned = self.losses("tuned")
        records = self.records("tuned")
        self.assertLess(records[-1]["validation_loss"], 0.85 * records[0]["loss"])
        # What is saved is the adapters: the base is where it was.
        manifest = json.loads((self.folder / "tuned/checkpoints/step-00000198/manifest.json").read_text())
        self.assertTrue(all(".lora_" in tensor["name"] for tensor in manifest["tensors"]), manifest["tensors"][:3])
        shutil.rmtree(self.folder / "tuned/checkpoints/step-00000198")
        self.finetune("--resume", "auto")
        self.assertEqual(self.losses("tuned"), tuned)
        # The run, and the base with PEFT's files of it.
        data = ["--data", "letters", "--max-samples", 20, "--json"]
        of_run = json.loads(self.trireme("eval", "tuned", *data)[0])["loss"]
        config = json.loads((self.folder / "tuned/adapter/adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["peft_type"]), (16, 32, "LORA"))
        of_peft = json.loads(self.trireme("eval", "base", "--adapter", "tuned/adapter", *data)[0])["loss"]
        of_base = json.loads(self.trireme("eval", "base", *data)[0])["loss"]
        self.assertEqual(of_run, of_peft)
        self.assertNotAlmostEqual(of_run, of_base, places=2)
        # Merged into the weights: what PEFT's files and what the run says.
        self.trireme("checkpoint", "merge-lora", "base", "tuned/adapter", "merged")
        self.trireme("checkpoint", "export", "tuned", "exported")
        for merged in ("merged", "exported"):
            of_merged = json.loads(self.trireme("eval", merged, *data)[0])["loss"]
            self.assertAlmostEqual(of_merged, of_run, delta=1e-4 * of_run)
        self.assertEqual((self.folder / "merged/model.safetensors").read_bytes(),
                         (self.folder / "exported/model.safetensors").read_bytes())
        word = self.held_out[0]
        texts = {self.trireme("generate", *model, "--prompt", f"Q {word}\nA ", "--temperature", 0)[0]
                 for model in (["tuned"], ["base", "--adapter", "tuned/adapter"])}
        self.assertEqual(len(texts), 1)

    def test_magnitudes(self):
        """Adapters with magnitudes: begun as the base, resumed, written, merged, and the beginning of other training."""
        self.base()
        self.finetune_config(checkpoint={"load": "base", "save_interval": 20})
        document = json.loads((self.folder / "tune.json").read_text())
        lora = {"rank": 8, "alpha": 16, "dropout": 0.05, "use_dora": True}
        document["finetune"] |= {"lora": lora, "num_train_epochs": 1.2}
        self.write("tune.json", json.dumps(document))
        self.finetune()
        tuned = self.losses("tuned")
        data = ["--data", "letters", "--max-samples", 20, "--json"]
        loss = {}

        def evaluate(name, *model):
            loss[name] = json.loads(self.trireme("eval", *model, *data)[0])["loss"]
            return loss[name]

        of_run = evaluate("run", "tuned")
        self.assertNotAlmostEqual(of_run, evaluate("base", "base"), places=2)
        self.assertEqual(evaluate("peft", "base", "--adapter", "tuned/adapter"), of_run)
        self.assertTrue(json.loads((self.folder / "tuned/adapter/adapter_config.json").read_text())["use_dora"])
        self.trireme("checkpoint", "merge-lora", "base", "tuned/adapter", "merged")
        self.trireme("checkpoint", "export", "tuned", "exported")
        self.assertAlmostEqual(evaluate("merged", "merged"), of_run, delta=1e-4 * of_run)
        self.assertEqual((self.folder / "merged/model.safetensors").read_bytes(),
                         (self.folder / "exported/model.safetensors").read_bytes())
        # Without these, the same training begins with the same loss: magnitudes change nothing at first.
        self.finetune("--set", "output_dir=plain", "--set", "finetune.lora.use_dora=false",
                      "--set", "finetune.num_train_epochs=0.1")
        self.assertAlmostEqual(self.losses("plain")[0][1], tuned[0][1], delta=1e-5 * tuned[0][1])
        # Training that begins with the adapters begins where they are.
        again = ["--set", "output_dir=again", "--set", "finetune.num_train_epochs=0.1", "--set",
                 "finetune.lora.dropout=0"]
        self.finetune(*again, "--set", "finetune.lora.adapter=tuned/adapter")
        self.assertLess(self.losses("again")[0][1], 0.9 * tuned[0][1])
        self.assert_refused("finetune", "--config", "tune.json", *again, "--set", "output_dir=refused", "--set",
                            "finetune.lora.adapter=tuned/adapter", "--set", "finetune.lora.rank=4", "--set",
                            "finetune.lora.alpha=3",
                            says=["finetune.lora.rank is 4, its r 8", "finetune.lora.alpha is 3, its lora_alpha 16"])
        # Continued, even where the adapters of the beginning are gone: the same run to the bit.
        shutil.rmtree(max((self.folder / "tuned/checkpoints").glob("step-*")))
        self.finetune("--resume", "auto")
        self.assertEqual(self.losses("tuned"), tuned)

    def test_adapters_beside_weights_in_4_bits(self):
        """Learned as beside full weights, resumed to the same bits, and merged into the weights as they were."""
        self.base()
        self.finetune_config(checkpoint={"load": "base", "save_interval": 100})
        document = json.loads((self.folder / "tune.json").read_text())
        document["finetune"] |= {"lora": {"rank": 16, "alpha": 32}, "num_train_epochs": 8, "quantization": "nf4",
                                 "double_quantization": True}
        self.write("tune.json", json.dumps(document))
        self.finetune()
        tuned = self.losses("tuned")
        records = self.records("tuned")
        self.assertLess(records[-1]["validation_loss"], 0.85 * records[0]["loss"])
        resolved = json.loads((self.folder / "tuned/resolved_config.json").read_text())["finetune"]
        self.assertEqual((resolved["quantization"], resolved["double_quantization"]), ("nf4", True))
        # The base is read and packed again.
        last = max((self.folder / "tuned/checkpoints").glob("step-*"))
        manifest = json.loads((last / "manifest.json").read_text())
        self.assertTrue(all(".lora_" in tensor["name"] for tensor in manifest["tensors"]), manifest["tensors"][:3])
        shutil.rmtree(last)
        self.finetune("--resume", "auto")
        self.assertEqual(self.losses("tuned"), tuned)
        # 0.516 bytes a weight, and of 14 small matrices groups and offset.
        said = "\n".join(self.trireme("finetune", "--config", "tune.json", "--set", "output_dir=other", "--validate"))
        bits = int(re.search(r"of these in 4 bits .*\((\d+) bytes\)", said).group(1))
        weights = 2 * (4 * 64 * 64 + 3 * 64 * 128)
        self.assertLess(0.515 * weights, bits)
        self.assertLess(bits, 0.54 * weights)
        # Merged into the full weights.
        data = ["--data", "letters", "--max-samples", 20, "--json"]
        self.trireme("checkpoint", "merge-lora", "base", "tuned/adapter", "merged")
        of_run, of_merged = (json.loads(self.trireme("eval", model, *data)[0])["loss"] for model in ("tuned", "merged"))
        self.assertAlmostEqual(of_merged, of_run, delta=1e-4 * of_run)
        refused = ["finetune", "--config", "tune.json", "--set", "output_dir=other", "--set"]
        self.assert_refused(*refused, "parallel.tensor_model_parallel_size=2", "--set", "train_micro_batch_size_per_gpu=auto",
                            ranks=2, says="not whole blocks of 64")
        del document["finetune"]["lora"]
        self.write("tune.json", json.dumps(document))
        self.assert_refused(*refused, "seed=6", says=["finetune.quantization", "finetune.lora.rank"])

    def test_what_a_run_is_tied_to(self):
        """Adapters to their base wherever both lie, a run to its examples, an export to the chat template."""
        self.base()
        self.finetune_config()
        document = json.loads((self.folder / "tune.json").read_text())
        document["finetune"] |= {"lora": {"rank": 4}, "num_train_epochs": 1}
        document["checkpoint"] = {"load": "base", "save_interval": 10}
        self.write("tune.json", json.dumps(document))
        self.finetune()
        data = ["--data", str(self.folder / "letters"), "--max-samples", 4, "--json"]
        loss = json.loads(self.trireme("eval", "tuned", *data)[0])["loss"]
        self.trireme("checkpoint", "export", "tuned", "exported")
        self.assertEqual((self.folder / "exported/chat_template.jinja").read_text(), TEMPLATE)
        # With the adapters too.
        self.assertEqual((self.folder / "tuned/adapter/chat_template.jinja").read_text(), TEMPLATE)
        self.trireme("generate", "base", "--adapter", "tuned/adapter", "--chat", "--prompt", "abcd", "--max-new-tokens", 2)
        # From another folder, and moved together.
        (self.folder / "elsewhere").mkdir()
        out, _ = self.trireme("eval", "../tuned", *data, prefix=["env", "-C", self.folder / "elsewhere"])
        self.assertEqual(json.loads(out)["loss"], loss)
        for name in ("base", "tuned"):
            shutil.copytree(self.folder / name, self.folder / "moved" / name)
        (self.folder / "base").rename(self.folder / "hidden")
        self.assertEqual(json.loads(self.trireme("eval", "moved/tuned", *data)[0])["loss"], loss)
        (self.folder / "hidden").rename(self.folder / "base")
        # On its own examples, whatever became of the template's file.
        (self.folder / "chat.jinja").rename(self.folder / "gone.jinja")
        self.assertGreater(json.loads(self.trireme("eval", "tuned", "--json")[0])["loss"], 0)
        (self.folder / "gone.jinja").rename(self.folder / "chat.jinja")
        # The base has learned more: its earlier checkpoint is still there.
        self.pretrain("--resume", "auto", "--set", "train_steps=61", "--set", "scheduler.params.decay_steps=60")
        self.assertEqual(json.loads(self.trireme("eval", "tuned", *data)[0])["loss"], loss)
        self.trireme("checkpoint", "merge-lora", "base", "tuned", "merged")
        self.assertAlmostEqual(json.loads(self.trireme("eval", "merged", *data)[0])["loss"], loss, delta=1e-4 * loss)
        self.assertEqual((self.folder / "merged/chat_template.jinja").read_text(), TEMPLATE)
        later = "base/checkpoints/step-00000061"
        self.assert_refused("checkpoint", "merge-lora", later, "tuned", "refused", says=[later, "is another model"])
        # Other examples.
        last = max((self.folder / "tuned/checkpoints").glob("step-*"))
        shutil.rmtree(last)
        train = (self.folder / "train.jsonl").read_text()
        refused = ["finetune", "--config", "tune.json", "--resume", "auto"]
        self.assertIn("configuration is valid", self.trireme(*refused, "--validate")[0])
        self.messages("train.jsonl", self.words[100:][::-1])
        self.assert_refused(*refused, says="other examples")
        self.assert_refused(*refused, "--validate", says="other examples")
        self.write("train.jsonl", train)
        # Another base of the same shape.
        shutil.rmtree(self.folder / "base")
        self.base(seed=9)
        self.assert_refused("eval", "tuned", *data, says=["trained with base model", "is another model"])
        self.assert_refused("finetune", "--config", "tune.json", "--resume", "auto", says="is another model")
        # Which lies beside the copy all the same.
        self.assertEqual(json.loads(self.trireme("eval", "moved/tuned", *data)[0])["loss"], loss)

    def test_held_out_by_a_configuration_of_trl(self):
        """Model and tokenizer come with model_name_or_path; what is held out is known of the same examples only."""
        self.base()
        self.write("tune.json", json.dumps({
            "output_dir": "tuned", "model_name_or_path": "base", "max_length": 64, "train_batch_size": 16,
            "finetune": {"train_file": "train.jsonl", "chat_template": "chat.jinja", "val_size": 0.1,
                         "num_train_epochs": 0.3}}))
        self.finetune()
        self.assertGreater(json.loads(self.trireme("eval", "tuned", "--json")[0])["loss"], 0)
        # It has all it needs: the base may go.
        (self.folder / "base").rename(self.folder / "gone")
        self.trireme("finetune", "--config", "tune.json", "--resume", "auto", "--validate")
        self.messages("train.jsonl", self.words[100:][::-1])
        self.assert_refused("eval", "tuned", says=["train_file has changed", "--data"])

    def test_preferences(self):
        """The reversed word is preferred to the word: from ln 2, which equal models give, to almost always."""
        self.base()
        self.write("pairs.jsonl", "".join(json.dumps(
            {"prompt": f"Q {word}\nA ", "chosen": word[::-1], "rejected": word}) + "\n" for word in self.words[:400]))
        self.finetune_config(checkpoint={"load": "base", "save_interval": 100})
        document = json.loads((self.folder / "tune.json").read_text())
        document["finetune"] = {"method": "dpo", "train_file": "pairs.jsonl", "val_size": 0.1, "num_train_epochs": 20,
                                "dpo": {"beta": 0.2}}
        document["scheduler"] = {"type": "constant", "params": {"warmup_steps": 0}}
        self.write("tune.json", json.dumps(document))
        self.finetune()
        records = self.records("tuned")
        self.assertAlmostEqual(records[0]["loss"], math.log(2), places=4)
        self.assertAlmostEqual(records[0]["rewards_margins"], 0, places=4)
        self.assertLess(records[-1]["validation_loss"], 0.15)
        self.assertGreater(records[-1]["rewards_accuracies"], 0.95)
        self.assert_members_are_documented("tuned")
        # Continued, the reference is still the model of the beginning.
        last = max((self.folder / "tuned/checkpoints").glob("step-*"))
        shutil.rmtree(last)
        before = self.losses("tuned")
        self.finetune("--resume", "auto")
        self.assertEqual(self.losses("tuned"), before)
        self.trireme("finetune", "--config", "tune.json", "--set", "output_dir=two", "--set",
                     "train_micro_batch_size_per_gpu=auto", "--set", "finetune.num_train_epochs=0.5", ranks=2)
        for ours, theirs in zip(self.losses("two")[:-1], before):  # the last batch is a part of one
            self.assertAlmostEqual(ours[1], theirs[1], delta=2e-3, msg=f"step {ours[0]}")

    def short(self, run, *arguments, **options):
        self.finetune("--set", f"output_dir={run}", "--set", "finetune.num_train_epochs=0.2", *arguments, **options)
        return self.losses(run)

    def test_layouts_and_resumed_runs_are_the_same_run(self):
        self.base()
        self.finetune_config(train_micro_batch_size_per_gpu="auto", checkpoint={"load": "base", "save_interval": 2})
        whole = self.short("whole")
        self.assertEqual(len(whole), 5)
        divided = self.short("divided", "--set", "zero_optimization.stage=2", ranks=2)
        for (step, loss, norm, valid), (_, loss2, norm2, valid2) in zip(whole, divided):
            for ours, theirs in ((loss, loss2), (norm, norm2), (valid or 0, valid2 or 0)):
                self.assertAlmostEqual(ours, theirs, delta=1e-4 * abs(ours), msg=f"step {step}")
        # Continued after step 2 by whoever finds the checkpoint.
        for later in (3, 4, 5):
            folder = self.folder / f"whole/checkpoints/step-{later:08d}"
            if folder.exists():
                shutil.rmtree(folder)
        self.short("whole", "--resume", "auto")
        self.assertEqual(self.losses("whole"), whole)

    def test_says_what_is_wrong(self):
        self.base()
        self.finetune_config()
        self.write("wrong.jsonl", '{"messages": []}\n{"question": "a"}\n')
        refused = ["finetune", "--config", "tune.json"]
        self.assert_refused(*refused, "--set", "finetune.train_file=wrong.jsonl", says=["wrong.jsonl:2", "messages"])
        self.assert_refused(*refused, "--set", "data.data_path=letters", says="fine-tuning reads finetune.train_file")
        self.assert_refused("pretrain", "--config", "tune.json", says="trireme finetune")
        self.assert_refused("finetune", "--config", "run.json", says="finetune.train_file")
        self.assert_refused(*refused, "--set", "checkpoint.load=nowhere", says="nowhere")


class ChatTokens(tiny_run.RunTest):
    """A tokenizer with a beginning of text and an end of turn, and the template that writes them."""
    SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
    TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

    def write_tokenizer(self):
        """Bytes as byte-level BPE spells them, no merges; what ends a turn is not what ends a text."""
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        letters = {b: chr(b) for b in plain} | {b: chr(256 + n) for n, b in enumerate(
            b for b in range(256) if b not in plain)}
        added = [{"id": 256 + n, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": True} for n, token in enumerate(self.SPECIAL)]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        self.write("tokenizer/tokenizer.json", json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {letters[b]: b for b in range(256)}, "merges": []}}))
        self.write("tokenizer/tokenizer_config.json", json.dumps({
            "bos_token": self.SPECIAL[0], "eos_token": self.SPECIAL[1], "chat_template": self.TEMPLATE}))

    def setUp(self):
        super().setUp()
        self.write_tokenizer()
        self.trireme("data", "prepare", "--input", "train.txt", "--output", "tokens", "--tokenizer", "tokenizer")
        self.configure(model=MODEL | {"vocab_size": 260, "bos_token_id": 256, "eos_token_id": 257}, sequence_length=64,
                       train_steps=20, output_dir="base", evaluation={},
                       data={"train_data_path": "tokens", "tokenizer": "tokenizer"})
        self.pretrain()
        self.trireme("checkpoint", "export", "base", "model")
        # What nobody needs to know is noted by one rank.
        config = json.loads((self.folder / "model/config.json").read_text())
        self.write("model/config.json", json.dumps(config | {"dual_chunk_attention_config": {"chunk_size": 64}}))
        self.items = tiny_run.WORDS[:6]
        self.write("train.jsonl", "".join(json.dumps(record) + "\n" for record in [
            {"text": "<|im_end|> is text"},
            *({"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": word.upper()}]}
              for word in self.items)]))
        self.write("tune.json", json.dumps({
            "output_dir": "tuned", "checkpoint": {"load": "model", "save_interval": 50}, "train_batch_size": 2,
            "sequence_length": 64, "seed": 5, "train_steps": 120, "finetune": {"train_file": "train.jsonl"},
            "optimizer": {"params": {"lr": 3e-3}}, "cpu": {"threads_per_rank": 1}}))

    def test_answers_end_with_their_turn(self):
        tune = ["finetune", "--config", "tune.json"]
        self.trireme(*tune)
        self.trireme("checkpoint", "export", "tuned", "exported")
        self.assertEqual((self.folder / "exported/chat_template.jinja").read_text(), self.TEMPLATE)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((self.folder / "exported" / name).read_bytes(),
                             (self.folder / "tokenizer" / name).read_bytes())
        # Where other programs look for ends.
        ends = json.loads((self.folder / "exported/generation_config.json").read_text())["eos_token_id"]
        self.assertEqual(ends, [257, 259])
        self.trireme("checkpoint", "quantize", "tuned", "tuned.gguf", "--quantization", "q8_0")
        self.trireme("checkpoint", "quantize", "tuned", "quantized", "--quantization", "fp8")
        self.assertEqual((self.folder / "quantized/chat_template.jinja").read_text(), self.TEMPLATE)
        for word in self.items[:2]:
            for model in ("tuned", "exported", "tuned.gguf"):
                said, _ = self.trireme("generate", model, "--chat", "--prompt", word, "--temperature", 0,
                                       "--max-new-tokens", 40)
                self.assertEqual(said, word.upper() + "\n")
        # Asked so, it knows the answers; the template begins the text, once.
        self.write("task.jsonl", "".join(json.dumps({
            "context": word, "choices": [word.upper(), other.upper()], "label": 0}) + "\n"
            for word, other in zip(self.items, self.items[1:])))
        reports = [json.loads(self.trireme("eval", "exported", "--task", "task.jsonl", "--apply-chat-template",
                                           "--json", *more)[0]) for more in ([], ["--add-bos"])]
        self.assertEqual(reports[0]["acc"], 1)
        self.assertEqual(reports[1]["acc"], 1)
        # Made longer, the run would have had another warm-up and another decay.
        steps = self.records("tuned")[-1]["step"]
        longer = [*tune, "--resume", "auto", "--set", "train_steps=240"]
        warm_up = math.ceil(0.03 * steps)
        self.assertGreater(math.ceil(0.06 * steps), warm_up)
        self.assert_refused(*longer, says=f"set scheduler.params.warmup_steps to {warm_up} and "
                                          f"scheduler.params.decay_steps to {steps}; or ")
        self.trireme(*tune, "--resume", "auto", "--set", f"train_steps={steps + 1}", "--set",
                     f"scheduler.params.warmup_steps={warm_up}", "--set", f"scheduler.params.decay_steps={steps}")
        self.assertEqual(len(self.records("tuned")), steps + 1)

    def test_what_follows_weights_of_others_remembers_it(self):
        """Texts get what the tokenizer puts around them, wherever those weights lie today."""
        self.configure(model=MODEL | {"vocab_size": 260, "bos_token_id": 256, "eos_token_id": 257}, sequence_length=32,
                       train_steps=1, output_dir="more", evaluation={}, checkpoint={"load": "model"},
                       scheduler={"type": "constant", "params": {"warmup_steps": 0}},
                       data={"train_data_path": "tokens", "tokenizer": str(self.folder / "tokenizer")})
        self.pretrain()
        shutil.rmtree(self.folder / "model")
        self.pretrain("--resume", "auto", "--set", "train_steps=2")
        for run, remembered in (("base", [False] * 2), ("more", [True] * 2)):
            said = [json.loads(path.read_text())["state"]["origin"]["special_tokens"]
                    for path in (self.folder / run / "checkpoints").glob("step-*/manifest.json")]
            self.assertEqual(said, remembered)
        # Of such a model tasks take the whole length.
        self.write("task.jsonl", json.dumps({"context": "sea " * 12, "choices": ["a", "b"], "label": 0}))
        report = json.loads(self.trireme("eval", "more", "--task", "task.jsonl", "--json")[0])
        self.assertEqual(report.get("truncated", 0), 0)

    def rendered(self, tokenizer, conversation, *more, expect=0):
        """What `trireme tokenize --chat --render` writes of a conversation, and says beside it."""
        self.write("chat.json", json.dumps(conversation))
        return self.trireme("tokenize", "--tokenizer", tokenizer, "--chat", "--render", *more, expect=expect,
                            prefix=("bash", "-c", '"$@" < chat.json', "bash"))

    def test_templates_by_name(self):
        """A template for tools beside the default one: in rows, and in everything that is written of the run."""
        with_tools = "{{ tools | tojson }}" + self.TEMPLATE
        folder = self.folder / "model"
        config = json.loads((folder / "tokenizer_config.json").read_text())
        self.write("model/tokenizer_config.json", json.dumps(config | {"chat_template": [
            {"name": "default", "template": self.TEMPLATE}, {"name": "tool_use", "template": with_tools}]}))
        talk = [{"role": "user", "content": "sea"}, {"role": "assistant", "content": "SEA", "reasoning": "why"}]
        tools = [{"type": "function", "function": {"name": "f"}}]
        rows = [{"messages": talk}, {"messages": talk, "tools": tools}, {"messages": talk, "tools": "[]"}]
        self.write("train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        tune = ["finetune", "--config", "tune.json", "--set", "train_steps=2", "--set", "finetune.lora.rank=2"]
        _, said = self.trireme(*tune)
        # Text that nothing reads is named once, with its first row.
        self.assertEqual(said.count("which the chat template does not read"), 1, said)
        self.assertRegex(said, r'train.jsonl:1: a message has text in "reasoning", .* \(3 records\)')
        self.trireme("checkpoint", "export", "tuned", "exported")
        self.trireme("checkpoint", "merge-lora", "model", "tuned/adapter", "merged")
        self.trireme("checkpoint", "quantize", "tuned", "tuned.gguf", "--quantization", "q8_0")
        for written in ("exported", "merged", "tuned/adapter"):
            path = self.folder / written
            self.assertEqual((path / "chat_template.jinja").read_text(), self.TEMPLATE)
            self.assertEqual((path / "additional_chat_templates/tool_use.jinja").read_text(), with_tools)
        conversation = {"messages": [{"role": "user", "content": "sea"}], "tools": tools}
        for tokenizer in ("exported", "merged", "tuned.gguf"):
            self.assertTrue(self.rendered(tokenizer, conversation)[0].startswith('[{"type": "function"'), tokenizer)
            self.assertTrue(self.rendered(tokenizer, conversation["messages"])[0].startswith("<|begin|>"), tokenizer)
        # A row whose template does not look at its tools or documents is refused.
        documents = [{"messages": talk}, {"messages": talk, "documents": [{"text": "x"}]}]
        for row, more, says in ((documents[1], (), "documents"), (rows[1], ("finetune.chat_template=default",), "tools")):
            self.write("wrong.jsonl", json.dumps(rows[0]) + "\n" + json.dumps(row) + "\n")
            sets = [word for setting in ("finetune.train_file=wrong.jsonl", "output_dir=other", *more)
                    for word in ("--set", setting)]
            self.assert_refused(*tune, *sets, says=["wrong.jsonl:2", f'"{says}"'])
        # One that has both names of them keeps the one that is chosen.
        self.trireme(*tune, "--set", "output_dir=one", "--set", "finetune.chat_template=tool_use")
        self.trireme("checkpoint", "export", "one", "alone")
        self.assertEqual((self.folder / "alone/chat_template.jinja").read_text(), with_tools)
        self.assertFalse((self.folder / "alone/additional_chat_templates/tool_use.jinja").exists())

    def test_the_last_message_goes_on(self):
        talk = [{"role": "user", "content": "sea"}, {"role": "assistant", "content": "The s"}]
        asked = {"messages": talk, "continue_final_message": True}
        begun = "<|begin|><|im_start|>user\nsea<|im_end|>\n<|im_start|>assistant\nThe s"
        self.assertEqual(self.rendered("tokenizer", asked)[0], begun)
        self.assertEqual(self.rendered("tokenizer", talk)[0], begun + "<|im_end|>\n")
        self.assertEqual(self.rendered("tokenizer", {"messages": talk, "add_generation_prompt": True})[0],
                         begun + "<|im_end|>\n<|im_start|>assistant\n")
        _, said = self.rendered("tokenizer", asked | {"add_generation_prompt": True}, expect=2)
        self.assertIn("exclude each other", said)
        _, said = self.rendered("tokenizer", {"messages": talk, "tools": [{"name": "f"}]}, expect=2)
        self.assertIn('"tools"', said)
        _, said = self.rendered("tokenizer", [{"role": "user", "content": "a", "thinking": "why"}])
        self.assertIn('"thinking"', said)

    def test_ranks_say_once_what_all_see(self):
        _, said = self.trireme("finetune", "--config", "tune.json", "--set", "train_steps=2", ranks=2)
        for what in ("spell special tokens", "dual_chunk_attention_config"):
            self.assertEqual([line for line in said.splitlines() if what in line][1:], [], said)
            self.assertIn(what, said)


if __name__ == "__main__":
    harness.main()
