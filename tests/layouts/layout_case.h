// Combination of parallel dimensions and training options, and the set of all combinations.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "training/config/run_config.h"

namespace trireme::test {

struct LayoutCase {
  ParallelSizes sizes;
  std::string schedule = "1f1b";  // "custom": from a file, different from all named ones
  int virtual_stages = 1;
  std::vector<int64_t> stage_layers;             // empty: equal stages
  int zero = 0;                                  // stage
  OffloadDevice offload = OffloadDevice::kNone;  // of optimizer states
  std::string optimizer = {};                    // empty: AdamW, with a large eps
  Recompute recompute = Recompute::kNone;
  bool packed = false;  // several documents in a sequence, attention inside each
  // "mixtral", "qwen2_moe", "deepseek", "deepseek_v3", "gpt_oss", "llama4": a model with experts
  // instead.
  std::string experts;
  bool llama = true;  // else GPT-2: tied head, biases, learned positions
  // Variant of llama: "mistral" (a window in all layers, linear RoPE scaling), "qwen2" (biases of
  // q, k and v, tied head, a window in the upper layers, dynamic RoPE scaling), "qwen3" (norms of q
  // and k, YaRN), "gemma2" (soft caps of scores and logits, post-norms), "gemma3" (post-norms, own
  // rotary frequencies in layers with a window, tied head), "smollm3" (layers without rotary
  // positions, which have a window, tied head), "granite" (scaled embedding, softmax, branches and
  // logits, tied head), "olmo2" (post-norms in place of pre-norms, norms of all heads of q and of
  // k), "glm4" (rotary positions of neighbours on half of each head, YaRN, queries scaled by
  // position, post-norms, biases of q, k and v).
  std::string variant;
  bool dropout = false;
  // With compression the inner widths of the model are multiples of 32, so that blocks of 8 columns
  // fit all layouts.
  GradientCompressionConfig compression = {};
  WeightCompressionConfig weights = {};
  OuterConfig outer = {};  // sizes are those of one site
  DType dtype = DType::kF64;

  int ranks() const { return outer.sites_in_job() * world_size(sizes); }
  std::string model() const;  // "gpt2", "llama", a variant or a kind of experts
  std::string name() const;   // "pp2 dp1 cp1 tp4 sp, 1f1b, selective, packed, gpt2"
};

// Case of these sizes, with defaults else.
LayoutCase layout(int dp, int tp, int pp, int cp, int zero = 0, bool sequence_parallel = false);
// Compression of matrices, for LayoutCase::compression and outer.compression: norms are sent
// exactly, other vectors are not.
CompressionConfig compression(const CompressionOptions& options);

// "pp2 dp1 cp1 tp4 sp": the case's line in the published table.
std::string mesh(const LayoutCase& c);
// Further properties: "schedule zb_h1", "full recompute", "packed documents", ...
std::vector<std::string> variants(const LayoutCase& c);
// Value in every dimension, for the published table: {"tp", "2"}, {"ZeRO stage", "0"}, ...
std::vector<std::pair<std::string, std::string>> dimensions(const LayoutCase& c);

// All cases for at most `most` ranks, in a fixed order.
std::vector<LayoutCase> all_cases(int most);
// Sample of `count` cases, drawn without repetition with `seed`, in order. Every value of every
// dimension appears in the sample.
std::vector<LayoutCase> sample_cases(const std::vector<LayoutCase>& all, size_t count,
                                     uint64_t seed);

// Models with experts, with every division of the experts.
std::vector<LayoutCase> expert_cases(int most);

// Configuration of a case: a model whose vocabulary, sequence and inner width are not divisible by
// the parallel dimensions, 8 sequences per step, 5 steps.
RunConfig config_of(const LayoutCase& c);
// The same case on one rank, without options that must not change the result.
LayoutCase reference_of(const LayoutCase& c);

}  // namespace trireme::test
