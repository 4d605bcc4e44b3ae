"""What the calls of gpu_check.sh run: the cases of both programs, and the order of their worth."""

# model: sequences of a micro-batch and their tokens, type of the optimizer's moments, recomputation. As large as one
# GPU of 141 GB holds with room to spare.
TRAIN = {
    "qwen2.5-0.5b": {"batch": 16, "sequence_length": 1024},
    "qwen2.5-1.5b": {"batch": 16, "sequence_length": 1024},
    "qwen2.5-3b": {"batch": 16, "sequence_length": 1024, "recompute": "selective"},
    "qwen2.5-7b": {"batch": 8, "sequence_length": 1024, "state_dtype": "bfloat16", "recompute": "selective",
                   "steps": 2, "micro_batches": 4},
    "gpt2-124m": {"batch": 64, "sequence_length": 1024},
    "gpt2-1.5b": {"batch": 16, "sequence_length": 1024},
    "llama-1b": {"batch": 4, "sequence_length": 4096},
    "llama-8b": {"batch": 1, "sequence_length": 8192, "state_dtype": "bfloat16", "recompute": "selective",
                 "steps": 2, "micro_batches": 4},
    # 64 experts, 8 a token: 3.6 billion weights, of which a token meets 0.7.
    "experts-64": {"config": "scripts/gpu_check/experts-64.json", "batch": 8, "sequence_length": 2048, "steps": 2,
                   "micro_batches": 4},
}
FP8_ORDER, FP8_RECIPE = ["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b"], "delayed"
FREE, TUNED = ", not deterministic", ", timed products"


def plain(models):
    return [(model, "", "none", []) for model in models]


# Model, what is said of it, recipe of 8-bit floats, options: in the order of their worth, should
# time run out.
TRAIN_FIRST = [*plain(["qwen2.5-0.5b"]), ("qwen2.5-0.5b", FREE, "none", ["--not-deterministic"]),
               *plain(["qwen2.5-7b", "qwen2.5-1.5b", "gpt2-124m"])]
FP8_FIRST = [("qwen2.5-0.5b", "", FP8_RECIPE, []), ("qwen2.5-7b", "", FP8_RECIPE, [])]
TRAIN_LATER = [("qwen2.5-0.5b", TUNED, "none", ["--not-deterministic", "--autotune"]),
               *plain(["qwen2.5-3b", "llama-1b", "gpt2-1.5b", "llama-8b"]),
               ("qwen2.5-1.5b", "", FP8_RECIPE, []), ("qwen2.5-3b", "", FP8_RECIPE, [])]
TRAIN_LAST = plain(["experts-64"])
# A model whose attention weighs most, with the cuDNN of Python's packages in the place of the loader's.
OTHER_CUDNN, OTHER_CUDNN_WHAT = "llama-1b", ", cuDNN of Python's packages"
TRAIN_ALSO = [("qwen2.5-0.5b", FREE), ("qwen2.5-0.5b", TUNED)]
PEERS_ORDER = ["qwen2.5-0.5b", "gpt2-124m", "qwen2.5-1.5b", "qwen2.5-3b", "llama-1b"]
PEERS_FIRST = [("compiled", "qwen2.5-0.5b"), ("compiled", "qwen2.5-1.5b")]
PEERS_LATER = [("eager", "qwen2.5-0.5b"), ("compiled", "gpt2-124m"), ("eager", "qwen2.5-1.5b"), ("compiled", "llama-1b")]
# Tokens of the prompt and of the text; long ones, where keys and values weigh most.
SHORT, LONG = (512, 128), (16384, 64)
# Model, what is said of it, tokens, options.
DECODE_FIRST = [("llama-1b", "", SHORT, []), ("llama-8b", "", SHORT, [])]
DECODE_LATER = [("qwen2.5-0.5b", "", SHORT, []), ("qwen2.5-7b", "", SHORT, []), ("llama-1b", ", 16,384 tokens", LONG, []),
                ("llama-1b", ", 16,384 tokens, cache int8", LONG, ["--kv-cache-dtype", "int8"]),
                ("llama-1b", ", 16,384 tokens, cache fp8_e4m3", LONG, ["--kv-cache-dtype", "fp8_e4m3"]),
                ("llama-1b", ", weights q8_0", SHORT, ["--quantization", "q8_0"]),
                ("llama-1b", ", weights q4_0", SHORT, ["--quantization", "q4_0"])]
# Weights of products of few rows, and the rows.
FEW_ROWS_WEIGHTS, FEW_ROWS = {"bfloat16": [], "q8_0": ["--quantization", "q8_0"], "q4_0": ["--quantization", "q4_0"]}, \
    "1,2,4,8,16,32,64"
GEMM = ["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b"]
MICRO_BATCHES, STEP_TOKENS = 8, 524288

# Of the ops phase: seconds in which an op says something, or counts as hung.
OPS_DTYPES, OPS_DTYPES_LATER = ["float32", "bfloat16", "other"], ["float64", "float16"]
OP_SECONDS, LARGE_OP_SECONDS = 60, 60
# Of the tools phase: models whose step is timed call by call, ops under the sanitizer, and under
# the profiler.
LAUNCH_TIMES = ["qwen2.5-0.5b", "qwen2.5-7b", "gpt2-124m"]
SANITIZED = ["paged_attention", "rmsnorm_backward", "softmax_cross_entropy", "sample_rows", "embedding_backward",
             "rotary", "silu_gated_backward", "router_forward"]
# Op: options of its cases.
COUNTED = {"rmsnorm_forward": ["--large"], "rmsnorm_backward": ["--large"], "paged_attention": ["--large"],
           "softmax_cross_entropy": []}
COUNTED_LAUNCHES = 3

# The models phase: ranks that share the GPU, and how they divide the run.
RANKS = {2: {"parallel": {"tensor_model_parallel_size": 2}},
         4: {"parallel": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}},
         8: {"parallel": {"tensor_model_parallel_size": 2}, "zero_optimization": {"stage": 3}}}
REHEARSED_RANKS = [2]

REHEARSED_OPS = ["add", "fill_zero"]
REHEARSED_MODEL = "quickstart"
REHEARSED = {"batch": 1, "sequence_length": 16}
REHEARSED_TRAIN = [("quickstart", "", "none", [])]
REHEARSED_DECODE = [("quickstart", "", (4, 4), []), ("quickstart", ", cache int8", (8, 4), ["--kv-cache-dtype", "int8"]),
                    ("quickstart", ", weights q8_0", (4, 4), ["--quantization", "q8_0"])]
REHEARSED_FP8 = [("llama-15m", "", FP8_RECIPE, [])]  # products in fp8 want multiples of 16
REHEARSED_MICRO_BATCHES, REHEARSED_STEP_TOKENS = 2, 64

# The serve phase: models with the clients of closed loops, requests of each client, tokens of
# prompts and of texts.
SERVE = {"llama-1b": [1, 16, 32, 128], "llama-8b": [1, 16, 32]}
# Model: tokens of a prompt that is read alone.
LONG_PROMPTS = {"llama-1b": [16384], "llama-8b": [16384, 32000]}
LONG_PROMPT_NEW, LONG_PROMPT_TEXT = 512, 8  # tokens behind a cached prefix; of the text
SERVE_LOAD = {"requests": 4, "least": 8, "prompt": 512, "tokens": 128, "length": 32768}
SERVE_CHECKED = "llama-1b"
GPU_SHARE = 0.9  # --gpu-memory-utilization, of both servers
# Of log-probabilities against the CPU's; greedy texts may part where the two most probable tokens are closer than the margin.
# float32: as between layouts. bfloat16: on a CPU it differs from float32 by 0.035, so two ways to round by twice that.
SERVE_TOLERANCES = {"fp32": {"logprob": 1e-4, "margin": 1e-3}, "bf16": {"logprob": 0.1, "margin": 0.1}}
SERVE_PROMPTS, SERVE_TEXT, SERVE_TOGETHER = [5, 64, 300], 32, 7  # tokens; texts of one prompt at a time

REHEARSED_LONG_PROMPTS, REHEARSED_LONG_PROMPT_NEW = {REHEARSED_MODEL: [96]}, 16
REHEARSED_SERVE = {REHEARSED_MODEL: [1, 2]}
REHEARSED_SERVE_LOAD = {"requests": 2, "least": 2, "prompt": 16, "tokens": 8, "length": 128}
REHEARSED_SERVE_PROMPTS, REHEARSED_SERVE_TEXT = [3, 20], 8
