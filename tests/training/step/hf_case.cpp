#include "tests/training/step/hf_case.h"

#include <algorithm>

#include "engine/ops/loss/cross_entropy.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"

namespace trireme::test {
namespace {

std::vector<int32_t> ints(const ConstTensor& t) {
  const auto* data = t.as<int32_t>();
  return std::vector<int32_t>(data, data + t.numel());
}

}  // namespace

HfCase::HfCase(const std::string& name)
    : source_(golden_folder(name)), expected_(golden_folder(name) + "/expected.safetensors") {
  source_.check(source_.config());
  row_length_ = batch().max_seqlen;
}

RunConfig HfCase::config(const ParallelSizes& sizes, DType dtype) const {
  RunConfig config;
  config.model = source_.config();
  MoeConfig& moe = config.model.moe;
  moe.balance_coef = moe.z_coef = moe.importance_coef = moe.load_coef = 0;
  config.model.residual_dropout = config.model.embedding_dropout = 0;
  config.model.attention_dropout = 0;
  config.parallel = sizes;
  config.dtype = dtype;
  config.gradient_clipping = 0;
  config.micro_batch_size = 2;
  config.train_batch_size = 2;
  config.gradient_accumulation_steps = 1;
  config.sequence_length = row_length_;
  config.train_steps = 1;
  return config;
}

MicroBatch HfCase::batch() const {
  MicroBatch batch;
  batch.tokens = ints(expected_.tensor("input_ids"));
  batch.targets = ints(expected_.tensor("targets"));
  for (int32_t& target : batch.targets)
    if (target < 0) target = kIgnoredTarget;
  batch.cu_seqlens = ints(expected_.tensor("cu_seqlens"));
  for (size_t n = 1; n < batch.cu_seqlens.size(); ++n) {
    const int32_t length = batch.cu_seqlens[n] - batch.cu_seqlens[n - 1];
    batch.max_seqlen = std::max(batch.max_seqlen, length);
    for (int32_t p = 0; p < length; ++p) batch.positions.push_back(p);
  }
  for (size_t t = 0; t < batch.tokens.size(); ++t)
    batch.global_index.push_back(static_cast<int64_t>(t));
  batch.valid_targets =
      std::ssize(batch.targets) - std::ranges::count(batch.targets, kIgnoredTarget);
  return batch;
}

std::vector<double> HfCase::gradient(const ParameterSpec& spec) const {
  const HfSource from = hf_source(source_.config(), spec.name);
  const ConstTensor t = expected_.tensor("grad." + from.tensor);
  const std::vector<double> all = to_doubles(t);
  const int64_t rows = spec.shape[0], columns = spec.shape.numel() / rows;
  const int64_t width = from.transposed ? t.size(t.rank() - 1) : columns;
  const int64_t before = from.matrices == 0 ? 0 : t.numel() / from.matrices * from.matrix;
  std::vector<double> out;
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t r = from.first_row + k * from.row_step;
      out.push_back(
          all[static_cast<size_t>(before + (from.transposed ? c * width + r : r * columns + c))]);
    }
  return out;
}

}  // namespace trireme::test
