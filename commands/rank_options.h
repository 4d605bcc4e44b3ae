// Options shared by commands that may run on several ranks.
#pragma once

#include <optional>
#include <string>

#include "engine/ops/attention/kv_codes.h"
#include "engine/ops/quantized/quantized_weight.h"
#include "parallel/comm/comm_config.h"
#include "parallel/launch.h"
#include "transformer/model/model_layout.h"

namespace CLI {
class App;
}

namespace trireme {

void add_ranks_option(CLI::App& command, int& ranks);  // --ranks N, through mpirun
// --ranks N for a command that starts ranks in another way. Both functions call claim_ranks().
void add_ranks_option(CLI::App& command, int& ranks, int max_ranks, const std::string& help);
void add_adapter_option(CLI::App& command, std::string& adapter);       // --adapter DIR
void add_device_option(CLI::App& command, std::string& device);         // --device auto|cpu|cuda
void add_dtype_option(CLI::App& command, std::optional<DType>& dtype);  // --dtype fp32|bf16|fp16
void add_quantization_option(CLI::App& command,
                             std::optional<BlockFormat>& format);  // --quantization q8_0|q4_0
// --kv-cache-dtype: absent for auto, the model's dtype.
void add_kv_cache_option(CLI::App& command, std::optional<KvType>& type);
std::string quantization_name(std::optional<BlockFormat> format, DType otherwise);
double quantized_weight_bytes(std::optional<BlockFormat> format, DType otherwise);  // of one weight
// --tensor-parallel, --pipeline-parallel, --expert-parallel and --expert-tensor-parallel, which
// split the model, each also under vLLM's name (--tensor-parallel-size) and without -parallel; with
// kAll also --context-parallel and --sequence-parallel, which split sequences.
enum class LayoutUse { kModelOnly, kAll };
void add_layout_options(CLI::App& command, LayoutOptions& layout, LayoutUse use);
WorldOptions world_options(const CommConfig& config);

}  // namespace trireme
