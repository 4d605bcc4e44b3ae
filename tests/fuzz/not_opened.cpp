// What the sources that check a configuration name but a fuzzed one must not reach: files of its
// choice, and layers and kernels, whose libraries need not be built for it.
#include "engine/core/error.h"
#include "engine/ops/optimizer_step.h"
#include "engine/ops/reduce.h"
#include "engine/ops/rotary.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/peft/peft_adapter.h"
#include "transformer/model/model.h"

namespace trireme {

std::unique_ptr<ModelSource> open_described_model(const std::string&, const std::string& path) {
  fail_input(path, ": models are not opened here");
}
void ModelSource::read(const ModelConfig&, const ModelParameter&, const TensorBox&, int64_t,
                       const Tensor&) const {
  TRIREME_UNREACHABLE("parameters of a fuzzed model");
}
std::string ModelSource::settings() const {
  TRIREME_UNREACHABLE("settings of a fuzzed model are its own");
}
std::string ModelSource::types_read() const {
  TRIREME_UNREACHABLE("tensors of a fuzzed model are not checked");
}
bool is_gguf(const std::string&) { return false; }
bool is_peft_adapter(const std::string&) { return false; }
std::string hub_advice(const std::string&) { return ""; }
GgufModel::GgufModel(const std::string& path) : ModelSource(path) {
  fail_input(path, ": GGUF files are not opened here");
}
std::string GgufModel::tokenizer() const { TRIREME_UNREACHABLE("a GGUF file is not opened"); }
ParameterPlace GgufModel::place(const ModelConfig&, const std::string&) const {
  TRIREME_UNREACHABLE("a GGUF file is not opened");
}
bool GgufModel::is_ignored(const ModelConfig&, const std::string&) const { return false; }
std::string GgufModel::types_read() const { TRIREME_UNREACHABLE("a GGUF file is not opened"); }

bool has_targets(const ModelConfig&, const LoraConfig&) { return true; }
double LoraConfig::scale() const { return alpha / static_cast<double>(rank); }

std::vector<double> plain_rotary_frequencies(double, int64_t) {
  TRIREME_UNREACHABLE("a table while a configuration is checked");
}
void adamw_step(Ctx&, const Tensor&, const Tensor&, const ConstTensor&, const Tensor&,
                const Tensor&, const ConstTensor&, const AdamWArgs&) {
  TRIREME_UNREACHABLE("a step while a configuration is checked");
}
void sgd_step(Ctx&, const Tensor&, const Tensor&, const ConstTensor&, const Tensor&,
              const ConstTensor&, const SgdArgs&) {
  TRIREME_UNREACHABLE("a step while a configuration is checked");
}
void lion_step(Ctx&, const Tensor&, const Tensor&, const ConstTensor&, const Tensor&,
               const ConstTensor&, const LionArgs&) {
  TRIREME_UNREACHABLE("a step while a configuration is checked");
}
const char* reduce_op_name(ReduceOp) { return "reduction"; }
void reduce_ranges(DType, ReduceOp, void*, std::span<const void* const>, int64_t) {
  TRIREME_UNREACHABLE("a reduction while a configuration is checked");
}
void accumulate_as_float(DType, float*, const void*, int64_t) {
  TRIREME_UNREACHABLE("a sum while a configuration is checked");
}
void round_from_float(DType, void*, const float*, int64_t) {
  TRIREME_UNREACHABLE("a rounding while a configuration is checked");
}

}  // namespace trireme
