#include "tests/training/step/golden_case.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/rows/transfer.h"
#include "optim/adamw.h"
#include "tests/support/compare.h"
#include "tests/support/json_file.h"
#include "tests/support/source_folder.h"
#include "transformer/families/config_json.h"

namespace trireme::test {
namespace {

std::vector<int32_t> ints(const SafetensorsReader& file, const std::string& name, int64_t row) {
  ConstTensor t = file.tensor(name);
  if (row >= 0 && t.rank() == 2) t = t.slice(0, row, row + 1);
  const int32_t* data = t.as<int32_t>();
  return std::vector<int32_t>(data, data + t.numel());
}

// Conv1D stores (in, out); rows [begin, end) of the transposed matrix.
std::vector<double> transposed_rows(const ConstTensor& t, int64_t begin, int64_t end) {
  const std::vector<double> values = to_doubles(t);
  const int64_t in = t.size(0), out = t.size(1);
  std::vector<double> result;
  for (int64_t o = begin; o < end; ++o)
    for (int64_t i = 0; i < in; ++i) result.push_back(values[static_cast<size_t>(i * out + o)]);
  return result;
}

}  // namespace

GoldenCase::GoldenCase(const std::string& name, DType dtype)
    : folder_(concat(test::source_folder(), "/tests/golden/", name)) {
  const Json manifest = read_json_file<Json>(folder_ + "/manifest.json");
  ConfigReport report;
  config_.model =
      read_model_config(read_json_file<Json>(folder_ + "/config.json"), "model", report);
  report.throw_if_errors(name);
  const Json& optimizer = manifest.at("optimizer");
  config_.optimizer.lr = optimizer.at("lr");
  AdamW rule;
  rule.betas = {optimizer.at("beta1"), optimizer.at("beta2")};
  rule.eps = optimizer.at("eps");
  config_.optimizer.rule = rule.clone();
  config_.optimizer.weight_decay = optimizer.at("weight_decay");
  config_.scheduler.style = DecayStyle::kConstant;
  config_.gradient_clipping = manifest.at("clip").at("max_norm");
  config_.micro_batch_size = manifest.at("batch");
  config_.train_batch_size = config_.micro_batch_size;
  config_.gradient_accumulation_steps = 1;
  config_.sequence_length = manifest.at("sequence_length");
  config_.train_steps = manifest.at("steps");
  config_.dtype = dtype;
  tolerance_ = manifest.at("tolerance").at("float64_relative");
  steps_tolerance_ = manifest.at("tolerance").at("steps_relative");
}

SafetensorsReader GoldenCase::open(const std::string& file) const {
  return SafetensorsReader(concat(folder_, "/", file, ".safetensors"));
}

std::vector<double> GoldenCase::reference(const SafetensorsReader& file, const std::string& prefix,
                                          const ParameterSpec& spec) const {
  const auto tensor = [&](const std::string& name) { return file.tensor(prefix + name); };
  if (config_.model.family != ModelFamily::kGpt2 || spec.name.find(".h.") == std::string::npos)
    return to_doubles(tensor(spec.name));
  const int64_t c = config_.model.hidden_size;
  const std::string parts[] = {".q_proj", ".k_proj", ".v_proj"};
  for (int64_t p = 0; p < 3; ++p) {
    const std::string& part = parts[p];
    const size_t at = spec.name.find(part);
    if (at == std::string::npos) continue;
    std::string fused = spec.name;
    fused.replace(at, part.size(), ".c_attn");
    const ConstTensor t = tensor(fused);
    return t.rank() == 1 ? to_doubles(t.slice(0, p * c, (p + 1) * c))
                         : transposed_rows(t, p * c, (p + 1) * c);
  }
  const ConstTensor t = tensor(spec.name);
  return t.rank() == 2 ? transposed_rows(t, 0, t.size(1)) : to_doubles(t);
}

void GoldenCase::load_weights(Ctx& ctx, ParameterStore& store) const {
  const SafetensorsReader file = open("weights");
  for (size_t h = 0; h < store.specs().size(); ++h) {
    const std::vector<double> values = reference(file, "", store.specs()[h]);
    const Tensor view = store.value(static_cast<ParamHandle>(h));
    TRIREME_CHECK(std::ssize(values) == view.numel(), store.specs()[h].name, " has ", values.size(),
                  " values");
    dispatch_float("load_weights", store.dtype(), [&]<class T>() {
      std::vector<T> rounded;
      rounded.reserve(values.size());
      for (const double value : values) {
        if constexpr (std::is_same_v<T, double>)
          rounded.push_back(value);
        else
          rounded.push_back(T(static_cast<float>(value)));
      }
      transfer(ctx, view, ConstTensor(rounded.data(), store.dtype(), view.shape()));
    });
  }
}

MicroBatch GoldenCase::batch(const SafetensorsReader& file, int64_t row) const {
  MicroBatch batch;
  batch.tokens = ints(file, "input_ids", row);
  batch.targets = ints(file, "targets", row);
  batch.positions = ints(file, "positions", -1);
  batch.cu_seqlens = ints(file, "cu_seqlens", -1);
  for (size_t t = 0; t < batch.tokens.size(); ++t)
    batch.global_index.push_back(static_cast<int64_t>(t));
  for (size_t n = 1; n < batch.cu_seqlens.size(); ++n)
    batch.max_seqlen = std::max(batch.max_seqlen, batch.cu_seqlens[n] - batch.cu_seqlens[n - 1]);
  batch.valid_targets =
      std::ssize(batch.targets) - std::ranges::count(batch.targets, kIgnoredTarget);
  return batch;
}

}  // namespace trireme::test
