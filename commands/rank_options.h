// Options shared by commands that run on one or several ranks: ranks, layout, device and types.
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

// Adds --ranks N for a command that starts its ranks through mpirun. Parsing the option calls
// claim_ranks() (parallel/launch.h), as in the second overload.
void add_ranks_option(CLI::App& command, int& ranks);
// Adds --ranks N for a command that starts its ranks in another way.
void add_ranks_option(CLI::App& command, int& ranks, int max_ranks, const std::string& help);
void add_adapter_option(CLI::App& command, std::string& adapter);  // --adapter DIR
void add_device_option(CLI::App& command, std::string& device);    // --device auto|cpu|cuda
// The next two: absent if the option is not given. --dtype also accepts vLLM's names, and auto for
// absent: the checkpoint's type.
void add_dtype_option(CLI::App& command, std::optional<DType>& dtype);  // --dtype fp32|bf16|fp16
void add_quantization_option(CLI::App& command,
                             std::optional<BlockFormat>& format);  // --quantization q8_0|q4_0
// Adds --kv-cache-dtype. type: absent for auto, which is the dtype of the weights.
void add_kv_cache_option(CLI::App& command, std::optional<KvType>& type);
// Name of the weights' format ("q8_0"), or of the dtype `otherwise` if they are not quantized.
std::string quantization_name(std::optional<BlockFormat> format, DType otherwise);
// Average bytes of one weight in this format, block scales included, or in the dtype `otherwise` if
// it is not quantized.
double quantized_weight_bytes(std::optional<BlockFormat> format, DType otherwise);
// Adds the options of the parallel layout. kModelOnly: --tensor-parallel, --pipeline-parallel,
// --expert-parallel and --expert-tensor-parallel, which split the model; the first three also under
// vLLM's names (--tensor-parallel-size), the first two also without -parallel (--tensor). kAll:
// also --context-parallel and --sequence-parallel, which split sequences, --cp-comm-type and
// --cp-balance.
enum class LayoutUse { kModelOnly, kAll };
void add_layout_options(CLI::App& command, LayoutOptions& layout, LayoutUse use);
// Options of the connection for the section "comm" of a configuration.
WorldOptions world_options(const CommConfig& config);

}  // namespace trireme
