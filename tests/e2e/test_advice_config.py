"""Ways out that a run's configuration is refused with: each one, followed, gives a configuration that is accepted."""
import json
import re

import advice
import harness
import tiny_run

MODEL = tiny_run.config()["model"]
ENDLESS = {**MODEL, "eos_token_id": None}
EXPERTS = {**MODEL, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
COPIES = {"stage": 3, "zero_hpz_partition_size": 2}
PATHS = {"train_data_path": "train", "valid_data_path": "valid"}
DATA = {**PATHS, "tokenizer": "byte"}
PARAMS = {"lr": 5e-3}
OFF = {"eval_interval": 0}


def parallel(**sizes):
    return {"parallel": sizes, "train_micro_batch_size_per_gpu": 2, "evaluation": OFF}


def pipeline(layers, schedule, chunks, **changes):
    return {"model": {**MODEL, "num_hidden_layers": layers}, "gradient_accumulation_steps": "auto",
            **parallel(pipeline_model_parallel_size=2, pipeline_schedule=schedule, virtual_pipeline_stages=chunks),
            **changes}


# Name: the keys that are refused, the advice, keys that follow it, one set for each way out, and the number of ranks. Keys
# replace those of the tiny run; None takes one out.
CONFIG = {
    "batch_rule": ({"gradient_accumulation_steps": 3}, 'leave one of the three out, or write "auto"',
                   [{"gradient_accumulation_steps": "auto"}, {"gradient_accumulation_steps": 3, "train_batch_size": None}]),
    "set_without_name": ({"data": {**DATA, "valid_data_path": {"": "valid"}}}, "has a set with an empty name; give it one",
                         [{"data": {**DATA, "valid_data_path": {"words": "valid"}}}]),
    "set_named_test": ({"data": {**DATA, "valid_data_path": {"test": "valid"}}},
                       "is reserved for data.test_data_path; use another",
                       [{"data": {**DATA, "valid_data_path": {"held_out": "valid"}}}]),
    "no_set": ({"data": {**DATA, "valid_data_path": {}}, "evaluation": OFF}, "expected at least one set; use null for none",
               [{"data": {**DATA, "valid_data_path": None}, "evaluation": OFF}]),
    "unavailable_value": ({"optimizer": {"state_dtype": "fp16"}}, "is not available in this version; use ",
                          [{"optimizer": {"state_dtype": "bf16"}}, {"optimizer": {"state_dtype": "fp32"}}]),
    "key_and_alias": ({"learning_rate": 1e-3}, "means the same as ", [{"learning_rate": 1e-3, "optimizer": {}}, {}]),
    "deepspeed_twice": ({"deepspeed": {"zero_optimization": {"stage": 1}}, "deepspeed_config": {"zero_optimization": {}}},
                        "is an alias of deepspeed, which is set too; keep one",
                        [{"deepspeed": {"zero_optimization": {"stage": 1}}}]),
    "param_dtype": ({"data_types": {"param_dtype": "bf16"}}, "write bf16.enabled or fp16.enabled",
                    [{"bf16": {"enabled": True}}, {"fp16": {"enabled": True}}]),
    "autocast": ({"torch_autocast": {"enabled": True}}, "write bf16.enabled or fp16.enabled",
                 [{"bf16": {"enabled": True}}, {"fp16": {"enabled": True}}]),
    "master_weights": ({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
                       "write optimizer.master_weights: false",
                       [{"bf16": {"enabled": True}, "optimizer": {"master_weights": False}}]),
    "optimizer_states": ({"bf16": {"enabled": True, "bf16_optimizer_states": True}},
                         'write optimizer.state_dtype: "bf16"',
                         [{"bf16": {"enabled": True}, "optimizer": {"state_dtype": "bf16"}}]),
    "max_grad_norm": ({"optimizer": {"params": {**PARAMS, "max_grad_norm": 1.0}}}, "write gradient_clipping",
                      [{"gradient_clipping": 1.0}]),
    "cpu_offload": ({"zero_optimization": {"stage": 2, "cpu_offload": True}},
                    'write zero_optimization.offload_optimizer: {"device": "cpu"}',
                    [{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}]),
    "cpu_offload_param": ({"zero_optimization": {"stage": 3, "cpu_offload_params": True}},
                          'write zero_optimization.offload_param: {"device": "cpu"}',
                          [{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}]),
    "quantized_gradients": ({"zero_optimization": {"stage": 3, "zero_quantized_gradients": True}},
                            "write compression.gradients with zero_optimization.stage 0 or 1",
                            [{"zero_optimization": {"stage": stage}, "compression": {"gradients": {"method": "quantize", "bits": 4}}}
                             for stage in (0, 1)]),
    "copies_of_experts": ({"model": EXPERTS, "zero_optimization": COPIES, **parallel(expert_model_parallel_size=2)},
                          "several nodes; set parallel.expert_model_parallel_size and parallel.expert_tensor_parallel_size to 1, "
                          "or zero_hpz_partition_size to 1",
                          [{"model": EXPERTS, "zero_optimization": COPIES, **parallel(expert_model_parallel_size=1)},
                           {"model": EXPERTS, "zero_optimization": {"stage": 3}, **parallel(expert_model_parallel_size=2)}], 2),
    "tensor_parallel": ({"tensor_parallel": {"tp_size": 2}}, "write tensor_parallel.autotp_size",
                        [{"tensor_parallel": {"autotp_size": 2}}], 2),
    "betas": ({"optimizer": {"params": {**PARAMS, "betas": [0.9, 0.99]}}, "adam_beta1": 0.8},
              "adam_beta1: sets a part of optimizer.params.betas, which is set too; keep one",
              [{"optimizer": {"params": {**PARAMS, "betas": [0.9, 0.99]}}}, {"adam_beta1": 0.8}]),
    "momentum_of_lion": ({"optimizer": {"type": "Lion", "params": {"momentum": 0.9}}}, "see optimizer.params.betas",
                         [{"optimizer": {"type": "Lion", "params": {"betas": [0.9, 0.99]}}}]),
    "layers_per_chunk": ({"num_layers_per_virtual_pipeline_stage": 1},
                         "give parallel.virtual_pipeline_stages, the number of chunks per rank",
                         [pipeline(4, "interleaved_1f1b", 2)], 2),
    "validation_sets": ({"multiple_validation_sets": True}, 'name the sets: data.valid_data_path: {"wiki": path, "code": path}',
                        [{"data": {**DATA, "valid_data_path": {"wiki": "valid", "code": "valid"}}}]),
    "train_samples": ({"train_samples": 240}, "give train_steps (samples / train_batch_size)", [{"train_steps": 30}]),
    "warmup_fraction": ({"lr_warmup_fraction": 0.1}, "give scheduler.params.warmup_steps",
                        [{"scheduler": {"params": {"warmup_steps": 3}}}]),
    "loss_scale": ({"initial_loss_scale": 65536}, "give fp16.initial_scale_power, its base-2 logarithm",
                   [{"fp16": {"enabled": True, "initial_scale_power": 16}}]),
    "timeout": ({"distributed_timeout_minutes": 5}, "give comm.timeout, in seconds", [{"comm": {"timeout": 300}}]),
    "recomputation": ({"recompute_activations": True}, 'write activation_checkpointing.granularity: "selective"',
                      [{"activation_checkpointing": {"granularity": "selective"}}]),
    "warmup_twice": ({"scheduler": {"params": {"warmup_steps": 5, "warmup_ratio": 0.1}}}, "; keep one",
                     [{"scheduler": {"params": {"warmup_steps": 5}}}, {"scheduler": {"params": {"warmup_ratio": 0.1}}}]),
    "cos_min_ratio": ({"scheduler": {"type": "cosine", "params": {"cos_min_ratio": 0.1}}}, "give scheduler.params.min_lr",
                      [{"scheduler": {"type": "cosine", "params": {"min_lr": 5e-4}}}]),
    "decay_of_wsd": ({"scheduler": {"type": "WSD"}, "lr_decay_iters": 20},
                     "with WSD give lr_wsd_decay_iters, the length of the decay",
                     [{"scheduler": {"type": "WSD"}, "lr_wsd_decay_iters": 20}]),
    "heads_of_context": ({"model": {**MODEL, "num_attention_heads": 2},
                          **parallel(context_parallel_size=4, cp_comm_type="a2a")},
                         ': use "p2p", or another parallel.context_parallel_size',
                         [{"model": {**MODEL, "num_attention_heads": 2},
                           **parallel(context_parallel_size=4, cp_comm_type="p2p")}], 4),
    "context_size": ({"model": {**MODEL, "num_attention_heads": 2},
                      **parallel(context_parallel_size=4, cp_comm_type="a2a")},
                     ': use "p2p", or another parallel.context_parallel_size',
                     [{"model": {**MODEL, "num_attention_heads": 2},
                       **parallel(context_parallel_size=2, cp_comm_type="a2a")}], 4),
    "ranks_of_layout": (parallel(data_parallel_size=2, tensor_model_parallel_size=2),
                        "needs 4 ranks but the run has 2; change the layout or start 4, or let the number of ranks "
                        "follow: --set parallel.data_parallel_size=auto --set gradient_accumulation_steps=auto",
                        [{**parallel(data_parallel_size="auto", tensor_model_parallel_size=2),
                          "gradient_accumulation_steps": "auto"},
                         parallel(data_parallel_size=2, tensor_model_parallel_size=1)], 2),
    "more_ranks": (parallel(data_parallel_size=2, tensor_model_parallel_size=2), "change the layout or start 4",
                   [(parallel(data_parallel_size=2, tensor_model_parallel_size=2), 4)], 2),
    "shards": ({"parallelism": {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 2}},
               "supported: -1 and 1 (shard over all of them), or 1 (no sharding)",
               [{"parallelism": {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": -1}},
                {"parallelism": {"data_parallel_replicate_degree": 4, "data_parallel_shard_degree": 1}}], 4),
    "device": ({"device": "cuda"}, 'set "device": "cpu" (--device cpu), or run on a machine with a GPU and its driver', [{"device": "cpu"}]),
    "two_precisions": ({"bf16": {"enabled": True}, "fp16": {"enabled": True}},
                       "is true together with fp16.enabled; choose one",
                       [{"bf16": {"enabled": True}}, {"fp16": {"enabled": True}}]),
    "end_of_documents": ({"model": ENDLESS, "data": {**PATHS, "eod_mask_loss": True}},
                         "needs the end-of-document id: give data.eod_token_id or data.tokenizer",
                         [{"model": ENDLESS, "data": {**PATHS, "eod_mask_loss": True, "eod_token_id": 256}},
                          {"model": ENDLESS, "data": {**DATA, "eod_mask_loss": True}}]),
    "data_twice": ({"data": {**DATA, "data_path": "train"}}, "; keep one",
                   [{"data": DATA}, {"data": {"data_path": "documents", "tokenizer": "byte"}}]),
    "split_of_whole_files": ({"data": {**DATA, "split": "90,5,5"}}, "no effect on data.train_data_path: leave one of the two out",
                             [{"data": DATA},
                              {"data": {"data_path": "documents", "split": "90,5,5", "tokenizer": "byte"}}]),
    "autotune": ({"cuda": {"autotune": True}}, "set cuda.gemm_algorithms to a folder that stores the choices, or "
                 "set deterministic or cuda.autotune to false",
                 [{"cuda": {"autotune": True, "gemm_algorithms": "algorithms"}},
                  {"cuda": {"autotune": True}, "deterministic": False}, {"cuda": {"autotune": False}}]),
    "algorithms": ({"cuda": {"gemm_algorithms": "algorithms"}}, "which is false: set it to true",
                   [{"cuda": {"autotune": True, "gemm_algorithms": "algorithms"}}]),
    "one_chunk": (pipeline(4, "gpipe", 2), 'use "interleaved_1f1b", or parallel.virtual_pipeline_stages 1',
                  [pipeline(4, "interleaved_1f1b", 2), pipeline(4, "gpipe", 1)], 2),
    "micro_batches": (pipeline(4, "interleaved_1f1b", 2, train_batch_size=6),
                      'change one of the two, or use "1f1b" and parallel.virtual_pipeline_stages 1',
                      [pipeline(4, "interleaved_1f1b", 2), pipeline(4, "1f1b", 1, train_batch_size=6)], 2),
    "micro_batches_of_one_chunk": (pipeline(2, "interleaved_1f1b", 1, train_batch_size=6),
                                   'change one of the two, or use "1f1b"\n',
                                   [pipeline(2, "1f1b", 1, train_batch_size=6)], 2),
    "schedule_file": (pipeline(2, "./of2.json", 1, train_batch_size=6), '"micro_batches" is 4, but gradient_accumulation_steps '
                      "is 3; change one of the two", [pipeline(2, "./of2.json", 1)], 2),
    "schedule_instruction": (pipeline(2, "./bad.json", 1), "expected F, B, I or W, the micro-batch and, with several chunks, a dot and the chunk",
                             [pipeline(2, "./of2.json", 1)], 2),
    "no_experts": (parallel(expert_model_parallel_size=2), "the model has no experts to divide; use 1",
                   [parallel(expert_model_parallel_size=1)], 2),
    "vocabulary_of_data": ({"model": {**MODEL, "vocab_size": 100}, "data": PATHS},
                           "raise model.vocab_size or prepare the data with the model's tokenizer", [{"data": PATHS}]),
    "vocabulary_of_tokenizer": ({"model": {**MODEL, "vocab_size": 200}}, "set model.vocab_size to at least 257",
                                [{"model": {**MODEL, "vocab_size": 257}}]),
    "too_few_tokens": ({"data": {**DATA, "train_data_path": "short"}},
                       "use more text, another data.split or a shorter sequence_length",
                       [{"data": DATA}, {"data": {**DATA, "train_data_path": "short"}, "sequence_length": 8}]),
    "too_small_a_split": ({"data": {"data_path": "documents", "split": "1,998,1"}},
                          "use more text, another data.split or a shorter sequence_length",
                          [{"data": {"data_path": "documents", "split": "50,49,1"}}]),
    "too_small_a_set": ({"data": {**DATA, "valid_data_path": {"a": "short", "b": "valid"}}},
                        "prepare it from more text, or leave the set out",
                        [{"data": {**DATA, "valid_data_path": {"a": "train", "b": "valid"}}},
                         {"data": {**DATA, "valid_data_path": {"b": "valid"}}}]),
    "no_validation_file": ({"data": {"train_data_path": "train", "tokenizer": "byte"}},
                           "data.valid_data_path is not set; give it; or set evaluation.eval_interval to 0",
                           [{}, {"data": {"train_data_path": "train", "tokenizer": "byte"}, "evaluation": OFF}]),
    "empty_validation_file": ({"data": {**DATA, "valid_data_path": "letter"}, "evaluation": OFF},
                              "has fewer than two tokens; prepare it from more text", [{"data": DATA, "evaluation": OFF}]),
    "one_document": ({"data": {"data_path": "train", "tokenizer": "byte"}},
                     "prepare the text as several documents, or prepare separate validation text and set data.train_data_path and "
                     "data.valid_data_path; or set evaluation.eval_interval to 0",
                     [{"data": {"data_path": "documents", "tokenizer": "byte"}}, {"data": DATA},
                      {"data": {"data_path": "train", "tokenizer": "byte"}, "evaluation": OFF}]),
    "no_share": ({"data": {"data_path": "documents", "split": "100,0,0", "tokenizer": "byte"}},
                 "has no share for validation; give it one",
                 [{"data": {"data_path": "documents", "split": "90,10,0", "tokenizer": "byte"}}]),
}


class Config(advice.AdviceTest):
    def setUp(self):
        super().setUp()
        # 200 documents: data.split gives each part some.
        self.write("documents.jsonl", "".join(json.dumps({"text": tiny_run.text(30, i)}) + "\n" for i in range(200)))
        self.write("short.txt", "a short text")
        self.write("letter.txt", "a")
        for name in ("documents.jsonl", "short.txt", "letter.txt"):
            self.trireme("data", "prepare", "--input", name, "--output", name.split(".")[0])
        self.trireme("schedule", "show", "--schedule", "1f1b", "--stages", 2, "--micro-batches", 4, "--json", "of2.json")
        text = (self.folder / "of2.json").read_text()
        self.write("bad.json", text.replace('"F0"', '"X0"', 1))

    def document(self, changes):
        whole = tiny_run.config(**changes)
        self.write("run.json", json.dumps({key: value for key, value in whole.items() if value is not None}))

    def validate(self, ranks, **options):
        several = () if ranks == 1 else ("--ranks", ranks)
        return self.pretrain("--validate", *several, **options)

    def test_config(self):
        for name, (refused, text, ways_out, *ranks) in CONFIG.items():
            with self.subTest(name):
                ranks = ranks[0] if ranks else 1
                self.document(refused)
                _, stderr = self.validate(ranks, expect=2)
                self.assertIn(text, stderr)
                for followed in ways_out:
                    keys, count = followed if isinstance(followed, tuple) else (followed, ranks)
                    self.document(keys)
                    self.assertIn("configuration is valid", self.validate(count)[0])

    def test_file_of_optimizer_states(self):
        """A path that a folder cannot have, and another one."""
        zero = {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "train.bin/states"}}
        self.document({"zero_optimization": zero, "scheduler": {}})
        self.assertIn("; free some space there, or set nvme_path to another folder", self.pretrain(expect=2)[1])
        zero["offload_optimizer"]["nvme_path"] = "states"
        self.document({"zero_optimization": zero, "scheduler": {}})
        self.pretrain()

    def test_override(self):
        self.follow("write it as key=value, for example train_steps=100",
                    ["pretrain", "--config", "run.json", "--validate", "--set", "train_steps:100"],
                    ["pretrain", "--config", "run.json", "--validate", "--set", "train_steps=100"])

    def test_names_that_are_nearly_right(self):
        """In a file, in --set, and as a flag."""
        self.document({"train_stepz": 20})
        _, stderr = self.pretrain("--validate", expect=2)
        named = re.search(r'train_stepz: unknown key; did you mean "(\S+)"\?', stderr)[1]
        self.document({named: 20})
        self.pretrain("--validate", "--set", f"{named}=10")
        _, stderr = self.pretrain("--validate", "--train-stepz", "20", expect=2)
        named = re.search(r"unknown option --train-stepz; did you mean (\S+)\?", stderr)[1]
        self.pretrain("--validate", named, "20")

    def test_configuration_of_another_command(self):
        self.write("tune.jsonl", '{"text": "the oar of a ship"}\n')
        self.trireme("pretrain", "--config", "run.json", "--set", "train_steps=2", "--set", "output_dir=base", "--set",
                     "scheduler.params.warmup_steps=0")
        self.write("tune.json", json.dumps({
            "output_dir": "tuned", "checkpoint": {"load": "base"}, "train_batch_size": 1, "sequence_length": 32,
            "train_steps": 2, "finetune": {"train_file": "tune.jsonl"}, "data": {"tokenizer": "byte"}}))
        self.follow("run it with trireme finetune", ["pretrain", "--config", "tune.json"],
                    ["finetune", "--config", "tune.json"])

    def test_deepspeeds_file_as_a_runs(self):
        """Both ways: named in a configuration, and by flags alone."""
        self.write("zero.json", json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 1}}))
        ways_out = ('a DeepSpeed configuration: give a run\'s keys by flags, or set "deepspeed" of a run\'s configuration '
                    'to this file')
        self.document({"deepspeed": "zero.json", "train_micro_batch_size_per_gpu": None})
        model = self.write("model.json", json.dumps(MODEL))
        self.follow(ways_out, ["pretrain", "--config", "zero.json", "--validate"],
                    ["pretrain", "--config", "run.json", "--validate"],
                    ["pretrain", "--config", "zero.json", "--validate", "--model", model, "--output-dir", "run",
                     "--sequence-length", "32", "--train-steps", "30", "--data-train-data-path", "train"])


if __name__ == "__main__":
    harness.main()
