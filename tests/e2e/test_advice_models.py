"""Ways out that third-party models, their tokenizers and copies of them are refused with, followed."""
import json
import math
import shutil
import struct

import advice
import harness
import tiny_run
from test_bad_models import GOLDEN, IDS, TOKENIZER, read_safetensors, write_safetensors
from test_quantize import CONFIG as WIDE
from test_quantize import model_tensors
from test_quantize import write_safetensors as write_floats

CONFIG = json.loads((GOLDEN / "config.json").read_text())
NEW = ("--max-new-tokens", "2")
# A tokenizer of the golden models' 61 ids, without special tokens.
LETTERS = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
           "decoder": {"type": "Fuse"},
           "model": {"type": "BPE", "vocab": {chr(33 + i): i for i in range(61)}, "merges": []}}
# Name: keys that config.json is refused with, the advice, keys that follow it; None takes a key out.
KEYS = {
    "unknown_key": ({"rope_thetta": 5}, "remove it from the file if it does not", {}),
    "class_of_another_model": ({"architectures": ["BertForMaskedLM"]}, "if it does not, name that class",
                               {"architectures": ["LlamaForCausalLM"]}),
    "head_that_is_missing": ({"tie_word_embeddings": False, "without": "lm_head.weight"},
                             "set tie_word_embeddings to true in config.json if the head is the embedding's",
                             {"tie_word_embeddings": True, "without": "lm_head.weight"}),
    "embedding_that_is_missing": ({"tie_word_embeddings": False, "without": "model.embed_tokens.weight"},
                                  "set tie_word_embeddings to true in config.json if the embedding is the head's",
                                  {"tie_word_embeddings": True, "without": "model.embed_tokens.weight"}),
    "other_weights": ({"num_hidden_layers": CONFIG["num_hidden_layers"] + 1},
                      "may be of different downloads: use both from one", {}),
}
GEMMA = json.loads((harness.SOURCE / "tests/golden/hf/gemma3/config.json").read_text())
# The same of the golden gemma3, whose layers have windows and frequencies of their own.
KEYS_OF_GEMMA = {
    "window_of_nothing": ({"sliding_window": 0}, "write null where there is no window", {"sliding_window": None}),
    "type_of_rope": ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 8.0}}, 'write rope_type, and remove "type"',
                     {"rope_parameters": None, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
}


class Models(advice.AdviceTest):
    def model(self, name="model", golden=GOLDEN, config=None, tensors=None, without=None, tokenizer=None, **changes):
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        whole = {**(config or CONFIG), **changes}
        (folder / "config.json").write_text(json.dumps(whole))
        file = "weights.safetensors" if (golden / "weights.safetensors").exists() else "model.safetensors"
        tensors = tensors or read_safetensors(golden / file)
        write_safetensors(folder / "model.safetensors", {key: value for key, value in tensors.items() if key != without})
        if tokenizer is not None:
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        return folder

    def inspect(self, expect=0):
        return self.trireme("checkpoint", "convert", "model", "copy", "--to", "hf", expect=expect)

    def follow_keys(self, table, **model):
        for name, (refused, text, followed) in table.items():
            with self.subTest(name):
                shutil.rmtree(self.folder / "copy", ignore_errors=True)
                self.model(**model, **refused)
                self.assertIn(text, self.inspect(expect=2)[1])
                self.model(**model, **followed)
                self.inspect()

    def test_keys(self):
        self.follow_keys(KEYS)

    def test_keys_of_gemma(self):
        self.follow_keys(KEYS_OF_GEMMA, golden=harness.SOURCE / "tests/golden/hf/gemma3", config=GEMMA)

    def test_a_head_that_is_not_tied(self):
        self.model(tie_word_embeddings=True)
        text = "write false there to silence this"
        self.assertIn(text, self.inspect()[1])
        shutil.rmtree(self.folder / "copy")
        self.model(tie_word_embeddings=False)
        self.assertNotIn(text, self.inspect()[1])

    def test_files_that_are_no_model(self):
        self.model()
        convert = ["checkpoint", "convert", "--to", "hf"]
        self.follow("give the directory that has its config.json", [*convert, "model/model.safetensors", "a"],
                    [*convert, "model", "a"])
        (self.folder / "model/config.json").rename(self.folder / "config.json")
        self.refused_with("copy the model's config.json here", *convert, "model", "b")
        (self.folder / "config.json").rename(self.folder / "model/config.json")
        self.trireme(*convert, "model", "b")

    def test_objects_of_python(self):
        self.model()
        path = self.folder / "model/model.safetensors"
        path.rename(self.folder / "model/pytorch_model.bin")
        convert = ["checkpoint", "convert", "--to", "hf", "model", "a"]
        self.refused_with("save the model with save_pretrained(DIR, safe_serialization=True) and give DIR", *convert)
        (self.folder / "model/pytorch_model.bin").rename(path)
        self.trireme(*convert)

    def test_a_revision_that_the_hubs_cache_lacks(self):
        folder = self.folder / "home/hub/models--org--small"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs/main").write_text("0123abcd")
        shutil.copytree(self.model(), folder / "snapshots/0123abcd")
        environment = {"HF_HOME": str(self.folder / "home"), "HF_HUB_CACHE": ""}
        inspect = ["checkpoint", "inspect"]
        self.refused_with("it has 0123abcd: give one of them as ORG/NAME@COMMIT, or download the revision", *inspect,
                          "org/small@v9", environment=environment)
        self.trireme(*inspect, "org/small@0123abcd", environment=environment)

    def test_tokenizers(self):
        """A model that has none, and one of another model."""
        self.model(tensors=self.with_rows(285), vocab_size=285)
        self.trireme("data", "train-tokenizer", "--input", "train.txt", "--output", "own.model", "--vocab-size", "280")
        self.write("tokenizer.json", json.dumps(LETTERS))
        generate = ["generate", "model", "--prompt", "ABC", *NEW]
        ways_out = [[*generate, "--tokenizer", own] for own in ("byte", "own.model", "tokenizer.json")]
        self.follow("give --tokenizer byte, a tokenizer.json or a .model", generate, *ways_out)
        self.trireme("data", "train-tokenizer", "--input", "train.txt", "--output", "larger.model", "--vocab-size", "290")
        self.follow("give the tokenizer that the model came with (--tokenizer, data.tokenizer)",
                    [*generate, "--tokenizer", "larger.model"], [*generate, "--tokenizer", "own.model"])

    def test_settings_of_a_tokenizer(self):
        self.write("tokenizer.json", json.dumps(TOKENIZER))
        tokenize = ["tokenize", "--tokenizer", "tokenizer.json"]
        self.write("tokenizer_config.json", '{"cuts_words_backwards": true}')
        self.refused_with("remove it if it does not", *tokenize)
        self.write("tokenizer_config.json", "{}")
        self.trireme(*tokenize)

    def test_a_tokenizer_with_holes(self):
        lost = [token for token in TOKENIZER["added_tokens"] if token["id"] in (IDS - 4, IDS - 3)]
        self.assertEqual(len(lost), 2)
        rest = [token for token in TOKENIZER["added_tokens"] if token not in lost]
        self.write("tokenizer.json", json.dumps({**TOKENIZER, "added_tokens": rest}))
        tokenize = ["tokenize", "--tokenizer", "tokenizer.json"]
        self.refused_with('download the file again, or name each of them in "added_tokens"', *tokenize)
        self.write("tokenizer.json", json.dumps({**TOKENIZER, "added_tokens": [
            *rest, *({"id": token["id"], "content": f"<unused{token['id']}>", "special": True} for token in lost)]}))
        self.trireme(*tokenize)

    def test_copies_into_what_exists(self):
        self.model()
        self.write("full/file", "something")
        self.write("x.gguf", "something")
        convert = ["checkpoint", "convert", "model", "--dtype", "fp32"]
        self.follow("is not empty; remove it or give another directory", [*convert, "full", "--to", "hf"],
                    [*convert, "another", "--to", "hf"])
        self.follow("exists; remove it or give another", [*convert, "x.gguf"], [*convert, "y.gguf"])
        shutil.rmtree(self.folder / "full")
        (self.folder / "x.gguf").unlink()
        self.trireme(*convert, "full", "--to", "hf")
        self.trireme(*convert, "x.gguf")

    def test_sizes_of_shards(self):
        self.model()
        export = ["checkpoint", "export", "model", "out", "--max-shard-size"]
        self.follow("give a number and a unit, as 5GB or 512MiB", [*export, "5 apples"], [*export, "512MiB"])
        self.follow("expected less than 2^63 bytes", [*export, "99999999999GB"], [*export[:3], "sized", export[4], "5000000000"])

    def test_quantized_models(self):
        self.write("wide/config.json", json.dumps(WIDE))
        write_floats(self.folder / "wide/model.safetensors", model_tensors())
        quantize = ["checkpoint", "quantize", "--quantization", "q8_0"]
        self.trireme(*quantize, "wide", "x.gguf")
        self.follow("exists; remove it or give another", [*quantize, "wide", "x.gguf"], [*quantize, "wide", "y.gguf"])
        self.refused_with("give the original model, or dequantize it first: trireme checkpoint convert", *quantize,
                          "x.gguf", "z.gguf")
        self.trireme("checkpoint", "convert", "x.gguf", "plain", "--to", "hf", "--dtype", "bf16")
        self.trireme(*quantize, "plain", "z.gguf")
        # The weights of a model in fewer bits: its width in float64, and what divides it.
        self.write("tokens", "[1, 2, 3]\n")
        generate = ["generate", "model", "--tokenizer", "byte", "--quantization", "q8_0", *NEW]
        self.model(tensors=None)
        self.refused_with("computes in float64; give --dtype fp32 or bf16", *generate)

    def test_a_gguf_without_a_tokenizer(self):
        self.model()
        self.trireme("checkpoint", "convert", "model", "x.gguf", "--dtype", "fp32")
        self.write("tokenizer.json", json.dumps(LETTERS))
        generate = ["generate", "x.gguf", "--prompt", "ABC", *NEW]
        self.follow("give --tokenizer byte, a tokenizer.json or a .model", generate,
                    [*generate, "--tokenizer", "tokenizer.json"])
        self.follow("has no tokenizer; give --tokenizer", [*generate, "--tokenizer", "x.gguf"],
                    [*generate, "--tokenizer", "tokenizer.json"])

    def edited(self, before, after):
        """The .gguf of the golden model with a name or a word of its metadata replaced by one as long."""
        self.assertEqual(len(before), len(after))
        data = (self.folder / "x.gguf").read_bytes()
        self.assertEqual(data.count(before), 1, before)
        return self.write("edited.gguf", data.replace(before, after))

    def test_metadata_of_a_gguf(self):
        self.model(vocab_size=280, tensors=self.with_rows(280))
        own = "model/tokenizer.model"
        self.trireme("data", "train-tokenizer", "--input", "train.txt", "--output", own, "--vocab-size", "280")
        self.trireme("checkpoint", "convert", "model", "x.gguf", "--dtype", "fp32")
        generate = ["generate", "edited.gguf", "--prompt", "the", *NEW]
        own = [*generate, "--tokenizer", own]
        kind = self.word_of_tokenizer("model")
        for before, after, advice_text in (
                (b"tokenizer.ggml.token_type", b"tokenizer.ggml.token_tipe",
                 "give the model's own tokenizer.json with --tokenizer"),
                (kind, kind[:-1] + b"9",
                 "supported: gpt2, llama; or give the model's tokenizer.json")):
            with self.subTest(after):
                self.edited(before, after)
                self.follow(advice_text, generate, own)
        self.edited(b"llama.rope.freq_base", b"llama.rope.freq_bass")
        self.follow("use the HuggingFace directory of this model", own, ["generate", "model", "--prompt", "the", *NEW])

    def test_words_of_a_gguf_that_are_cut_in_an_unknown_way(self):
        qwen2 = json.loads((harness.SOURCE / "tests/golden/tokenizers/qwen2.json").read_text())["tokenizer"]
        self.model(tokenizer=qwen2, vocab_size=600, tensors=self.with_rows(600))
        self.trireme("checkpoint", "convert", "model", "x.gguf", "--dtype", "fp32")
        path = self.folder / "x.gguf"
        path.write_bytes(path.read_bytes().replace(b"tokenizer.huggingface.json", b"general.of.nobody.who.asks"))
        generate = ["generate", "edited.gguf", "--prompt", "the", *NEW]
        word = self.word_of_tokenizer("pre")
        self.edited(word, word[:-1] + b"9")
        self.follow("is not supported; give the model's tokenizer.json", generate,
                    [*generate, "--tokenizer", "model/tokenizer.json"])

    def word_of_tokenizer(self, name):
        """A key and its value as the file has them: a type, a length, the word."""
        data, key = (self.folder / "x.gguf").read_bytes(), f"tokenizer.ggml.{name}".encode()
        at = data.index(key)
        length = int.from_bytes(data[at + len(key) + 4:at + len(key) + 12], "little")
        return data[at:at + len(key) + 12 + length]

    def with_rows(self, rows):
        """The golden model's tensors with a table of other ids."""
        tensors = read_safetensors(GOLDEN / "weights.safetensors")
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            dtype, (old, columns), data = tensors[name]
            tensors[name] = [dtype, [rows, columns], (data * (rows // old + 1))[:rows * (len(data) // old)]]
        return tensors

    def test_spaces_that_a_unigram_model_keeps(self):
        """Of both kinds of files."""
        golden = harness.SOURCE / "tests/golden/tokenizers/unigram.json"
        (self.folder / "json").mkdir()
        (self.folder / "model").mkdir()
        self.write("json/tokenizer.json", json.dumps(json.loads(golden.read_text())["tokenizer"]))
        self.trireme("data", "train-tokenizer", "--input", "train.txt", "--output", "model/tokenizer.model", "--vocab-size",
                     "280", "--model-type", "unigram")
        for folder in ("json", "model"):
            tokenize = ["tokenize", "--tokenizer", folder]
            self.write(f"{folder}/tokenizer_config.json", '{"clean_up_tokenization_spaces": true}')
            self.refused_with("is not supported for a Unigram model; set it to false", *tokenize)
            self.write(f"{folder}/tokenizer_config.json", '{"clean_up_tokenization_spaces": false}')
            self.trireme(*tokenize)

    def test_a_space_before_texts(self):
        """Two files that say the opposite of it, in a class that does not decide between them."""
        golden = harness.SOURCE / "tests/golden/tokenizers/llama2.json"
        self.write("tokenizer.json", json.dumps(json.loads(golden.read_text())["tokenizer"]))
        tokenize = ["tokenize", "--tokenizer", "tokenizer.json"]
        for setting in ({"add_prefix_space": True}, {}):
            self.write("tokenizer_config.json", json.dumps({"tokenizer_class": "OarTokenizer", "add_prefix_space": False}))
            self.refused_with("does not determine which applies; make both the same, or remove the key", *tokenize)
            self.write("tokenizer_config.json", json.dumps({"tokenizer_class": "OarTokenizer", **setting}))
            self.trireme(*tokenize)

    def test_a_task_without_context(self):
        self.model(tokenizer=LETTERS)
        task = ["eval", "model", "--task", "task.jsonl"]
        self.write("task.jsonl", '{"context": "", "choices": ["A", "B"], "label": 0}\n')
        self.refused_with("has neither a BOS nor an end-of-document token: give a context", *task)
        self.write("task.jsonl", '{"context": "C", "choices": ["A", "B"], "label": 0}\n')
        self.trireme(*task)

    def test_values_too_large_for_fewer_bits(self):
        tensors = read_safetensors(GOLDEN / "weights.safetensors")
        name = "model.layers.0.mlp.up_proj.weight"
        dtype, shape, data = tensors[name]
        tensors[name] = [dtype, shape, struct.pack("<d", 1e9) + data[8:]]
        self.model(tensors=tensors, tokenizer=LETTERS)
        generate = ["generate", "model", "--prompt", "ABC", "--dtype", "fp32", *NEW]
        self.follow("which no float16 scale can represent; leave --quantization out", [*generate, "--quantization", "q8_0"],
                    generate)

    def test_an_unfinished_copy_of_another_model(self):
        self.model()
        shutil.copytree(self.folder / "model", self.folder / "other")
        export = ["checkpoint", "export", "model"]
        self.write("half/export.json", json.dumps({"source": str(self.folder / "other"), "asked": "", "state": ""}))
        self.follow("; remove it or give another directory", [*export, "half"], [*export, "whole"])
        shutil.rmtree(self.folder / "half")
        self.trireme(*export, "half")

    def test_a_prompt_of_nothing(self):
        self.model(tokenizer=LETTERS)
        generate = ["generate", "model", *NEW, "--prompt"]
        self.follow("the prompt is empty; give at least one token", [*generate, ""], [*generate, "A"])

    def test_bits_of_divided_weights(self):
        self.model(tokenizer=LETTERS)
        generate = ["generate", "model", "--prompt", "ABC", "--dtype", "fp32", *NEW]
        two = ["--ranks", 2, "--tensor-parallel", 2]
        bits = ["--quantization", "q8_0"]
        self.follow("lower --tensor-parallel, or leave --quantization out", [*generate, *bits, *two], [*generate, *two],
                    [*generate, *bits])

    def test_experts_of_ranks(self):
        golden = harness.SOURCE / "tests/golden/mixtral"
        self.model(golden=golden, config=json.loads((golden / "config.json").read_text()), tokenizer=LETTERS)
        generate = ["generate", "model", "--prompt", "ABC", "--ranks", 2, "--expert-parallel", 2, *NEW]
        self.follow("are divided among the tensor-parallel ranks: give --tensor-parallel 2", generate,
                    [*generate, "--tensor-parallel", 2])

    def test_a_cache_of_a_float64_model(self):
        self.model(tokenizer=LETTERS)
        serve = ["serve", "--model", "model", "--port", 0, "--threads", 1, "--kv-cache-dtype"]
        self.refused_with("has the type of the weights; give auto", *serve, "fp8")
        server = self.start(*serve, "auto")
        self.assertRegex(server.stdout.readline(), "listening on ")
        server.terminate()
        server.communicate(timeout=120)
        self.assertEqual(server.returncode, 0)

    def test_values_that_are_not_finite(self):
        tensors = read_safetensors(GOLDEN / "weights.safetensors")
        name = "model.embed_tokens.weight"
        dtype, shape, data = tensors[name]
        self.assertEqual(dtype, "F64")
        of_last = data[:-8] + struct.pack("<d", math.inf)  # of an id that is not in the text
        tensors[name] = [dtype, shape, of_last]
        self.model(tensors=tensors)
        self.write("tokenizer.json", json.dumps(LETTERS))
        generate = ["generate", "model", "--tokenizer", "tokenizer.json", "--prompt", "ABC", *NEW]
        self.follow("; load them with --allow-non-finite", generate, [*generate, "--allow-non-finite"])
        everywhere = {**tensors, name: [dtype, shape, struct.pack("<d", math.inf) * (len(data) // 8)]}
        self.model(tensors=everywhere)
        self.refused_with("the logits of token 1 are not finite", *generate, "--allow-non-finite")
        tensors[name] = [dtype, shape, data[:-8] + struct.pack("<d", 65536)]
        self.model(tensors=tensors)
        self.follow(", or use --dtype bf16 where they are too large for float16", [*generate, "--dtype", "fp16"],
                    [*generate, "--dtype", "bf16"])


class Adapters(advice.AdviceTest):
    """Adapters in the places of models, and beside them."""

    def setUp(self):
        super().setUp()
        self.write("tune.jsonl", '{"prompt": "the oar", "completion": " of a ship"}\n')
        self.configure(train_steps=2, output_dir="base", scheduler={})
        self.pretrain()
        self.finetune("tuned")

    def finetune(self, output, load="base", **lora):
        self.write(f"{output}.json", json.dumps({
            "output_dir": output, "checkpoint": {"load": load}, "train_batch_size": 1, "sequence_length": 32,
            "train_steps": 2, "finetune": {"train_file": "tune.jsonl", "lora": {"rank": 4, **lora}},
            "data": {"tokenizer": "byte"}, "cpu": {"threads_per_rank": 1}}))
        self.trireme("finetune", "--config", f"{output}.json")

    def test_in_the_place_of_a_model(self):
        generate = ["generate", *NEW]
        self.follow("give the model that they were trained for, and the adapters with --adapter (or merge both: trireme checkpoint merge-lora "
                    "MODEL ADAPTERS DIR)", [*generate, "tuned/adapter"], [*generate, "base", "--adapter", "tuned/adapter"],
                    ["checkpoint", "merge-lora", "base", "tuned/adapter", "merged"], [*generate, "merged", "--tokenizer", "byte"])

    def test_beside_adapters(self):
        generate = ["generate", *NEW]
        self.follow("has adapters already; merge them into a model first", [*generate, "tuned", "--adapter", "tuned/adapter"],
                    ["checkpoint", "merge-lora", "base", "tuned", "merged"],
                    [*generate, "merged", "--tokenizer", "byte", "--adapter", "tuned/adapter"])

    def test_magnitudes_beside_weights_in_fewer_bits(self):
        self.finetune("dora", use_dora=True)
        generate = ["generate", "--quantization", "q8_0", *NEW]
        self.follow("read the weights themselves; merge them into the model first (trireme checkpoint merge-lora)",
                    [*generate, "base", "--adapter", "dora/adapter"],
                    ["checkpoint", "merge-lora", "base", "dora/adapter", "merged"],
                    [*generate, "merged", "--tokenizer", "byte"])

    def test_a_key_of_an_adapter(self):
        path = self.folder / "tuned/adapter/adapter_config.json"
        config = json.loads(path.read_text())
        generate = ["generate", "base", "--adapter", "tuned/adapter", *NEW]
        path.write_text(json.dumps({**config, "new_kind_of_adapter": True}))
        self.refused_with("or remove the key if it does not affect the computation", *generate)
        path.write_text(json.dumps(config))
        self.trireme(*generate)

    def test_ranks_of_its_own_as_a_beginning(self):
        """rank_pattern: an adapter that training cannot begin with, merged, is a model to train adapters for."""
        path = self.folder / "tuned/adapter/adapter_config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "alpha_pattern": {"q_proj": 2 * config["lora_alpha"]}}))
        begin = ["finetune", "--config", "tuned.json", "--set", "output_dir=second"]
        self.follow("merge it (trireme checkpoint merge-lora) and train new adapters for the merged model",
                    [*begin, "--set", "finetune.lora.adapter=tuned/adapter"],
                    ["checkpoint", "merge-lora", "base", "tuned/adapter", "merged"],
                    [*begin, "--set", "checkpoint.load=merged"])

    def test_a_base_that_was_moved(self):
        (self.folder / "base").rename(self.folder / "moved")
        _, stderr = self.trireme("generate", "tuned", *NEW, expect=2)
        step = "tuned/checkpoints/step-00000002"
        self.assertIn("put it back, or name its path: checkpoint.load in training, trireme checkpoint "
                      f"merge-lora MODEL {step} OUT, trireme generate MODEL --adapter {self.folder}/tuned/adapter\n", stderr)
        self.trireme("checkpoint", "merge-lora", "moved", step, "merged")
        self.trireme("generate", "moved", "--adapter", "tuned/adapter", *NEW)
        self.trireme("finetune", "--config", "tuned.json", "--set", "checkpoint.load=moved", "--resume", "auto")
        (self.folder / "moved").rename(self.folder / "base")
        self.trireme("generate", "tuned", *NEW)

    def test_adapters_of_another_model(self):
        self.trireme("pretrain", "--config", "run.json", "--set", "output_dir=other", "--set", "seed=8")
        merge = ["checkpoint", "merge-lora"]
        self.follow("is another model; give that one, or train adapters for this one", [*merge, "other", "tuned", "a"],
                    [*merge, "base", "tuned", "a"])
        self.finetune("second", load="other")
        self.trireme(*merge, "other", "second", "b")


class PublishedAdapters(advice.AdviceTest):
    """Adapters that PEFT wrote, of more than linear layers, and adapters that PEFT reads in another way."""

    def setUp(self):
        super().setUp()
        self.write("tune.jsonl", '{"prompt": "AB", "completion": "CD"}\n')

    def finetune(self, base, *settings, adapter=None, expect=0, **lora):
        finetune = {"train_file": "tune.jsonl", "lora": {"rank": 4, **lora}}
        if adapter is not None:
            finetune["lora"]["adapter"] = adapter
        self.write("tune.json", json.dumps({
            "output_dir": "tuned", "checkpoint": {"load": base}, "train_batch_size": 1, "sequence_length": 16,
            "train_steps": 1, "finetune": finetune, "data": {"tokenizer": "tokenizer.json"},
            "cpu": {"threads_per_rank": 1}}))
        return self.trireme("finetune", "--config", "tune.json", "--validate", *settings, expect=expect)

    def copy(self, golden, name):
        shutil.copytree(harness.SOURCE / "tests/golden" / golden, self.folder / name)
        (self.folder / name / "tokenizer.json").write_text(json.dumps(LETTERS))

    def test_more_than_linear_layers(self):
        self.copy("peft/base", "base")
        self.copy("peft/beyond", "beyond")
        self.write("tokenizer.json", json.dumps(LETTERS))
        serve = ["serve", "--port", 0, "--threads", 1, "--tokenizer", "tokenizer.json", "--model"]
        self.refused_with("with other adapters; serve it alone with --adapter, or merge it into a model (trireme "
                          "checkpoint merge-lora)", *serve, "base", "--lora-modules", "b=beyond")
        self.assertIn("adapters of the embedding, the head or a gate); merge it (trireme checkpoint merge-lora) and train new "
                      "adapters for the merged model", self.finetune("base", adapter="beyond", expect=2)[1])
        self.trireme("checkpoint", "merge-lora", "base", "beyond", "merged")
        self.finetune("merged")
        for way_out in (["base", "--adapter", "beyond"], ["merged"]):
            server = self.start(*serve, *way_out)
            self.assertRegex(server.stdout.readline(), "listening on ")
            server.terminate()
            server.communicate(timeout=120)
            self.assertEqual(server.returncode, 0)

    def test_what_peft_reads_in_another_way(self):
        """A warning of training: the words are kept until the layers are attention's only, or all is merged."""
        self.copy("hf/qwen3_moe", "base")
        self.write("tokenizer.json", json.dumps(LETTERS))
        text = 'merge it (trireme checkpoint merge-lora), or set finetune.lora.target_modules to "attention"'
        self.finetune("base")
        _, log = self.trireme("finetune", "--config", "tune.json")
        self.assertIn(text, log)
        self.trireme("checkpoint", "merge-lora", "base", "tuned", "merged")
        self.finetune("base", "--set", "output_dir=other", target_modules="attention")
        self.assertNotIn(text, self.trireme("finetune", "--config", "tune.json", "--set", "output_dir=other")[1])

    def test_what_peft_holds_in_one_layer(self):
        self.copy("hf/phi3", "base")
        self.write("tokenizer.json", json.dumps(LETTERS))
        text = "trireme's commands compute all of them. To use the result elsewhere, merge it (trireme checkpoint merge-lora)"
        self.finetune("base")
        self.assertIn(text, self.trireme("finetune", "--config", "tune.json")[1])
        self.trireme("checkpoint", "merge-lora", "base", "tuned", "merged")


class Commands(advice.AdviceTest):
    def test_commands_of_other_programs(self):
        """Each command that is named instead of another program's is one."""
        words = ("sft", "dpo", "run", "infer", "chat", "complete", "perplexity", "server", "encode", "decode",
                 "preprocess", "benchmark", "load-balance", "plot", "validate", "info")
        for word in words:
            _, stderr = self.trireme(word, expect=2)
            meant = stderr.split('did you mean "')[1].split('"')[0].removeprefix("trireme ")
            self.trireme(*meant.split(), "--help")

    def test_help_that_an_error_names(self):
        _, stderr = self.trireme("checkpoint", "quantize", "a", expect=2)
        named = stderr.split("(see trireme ")[1].split(")")[0]
        self.assertIn("--quantization", self.trireme(*named.split())[0])

    def test_benchmarks(self):
        comm = ["bench", "comm", "--iterations", "1", "--operation", "all_reduce"]
        small = ["--max", "64", "--ranks", "2"]
        self.follow("give at least 1 byte", [*comm, "--min", "0", *small], [*comm, "--min", "1", *small])
        self.follow("give at most 4G", [*comm, "--min", "8", "--max", "8G", "--ranks", "2"], [*comm, "--min", "8", *small])
        self.follow("give --ranks N, or use mpirun", [*comm, "--min", "8", "--max", "64"], [*comm, "--min", "8", *small])
        self.trireme(*comm, "--min", "8", "--max", "64", ranks=2)
        compress = ["bench", "compress", "--iterations", "1"]
        self.follow("give at least 4 bytes", [*compress, "--size", "3", "--ranks", "2"], [*compress, "--size", "4", "--ranks", "2"])
        self.follow("give at most 4G", [*compress, "--size", "8G", "--ranks", "2"], [*compress, "--size", "4K", "--ranks", "2"])
        self.follow("give a number above 0, at most 1", [*compress, "--size", "4K", "--ratio", "0", "--ranks", "2"],
                    [*compress, "--size", "4K", "--ratio", "1", "--ranks", "2"])
        self.follow("give --ranks N, or use mpirun", [*compress, "--size", "4K"], [*compress, "--size", "4K", "--ranks", "2"])
        experts = self.write("experts/config.json", (harness.SOURCE / "tests/golden/mixtral/config.json").read_text())
        self.write("dense/config.json", (harness.SOURCE / "tests/golden/llama/config.json").read_text())
        gemm = ["bench", "gemm", "--tokens", "8", "--model"]
        self.follow("has experts: give a dense model", [*gemm, experts.parent], [*gemm, "./dense"])


if __name__ == "__main__":
    harness.main()
