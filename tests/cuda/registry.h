// All cases of all families, and the ops without cases.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/cuda/op_case.h"

namespace trireme::test {

std::vector<OpCase> all_cases();

// Ops declared in engine/ops/ without a case, each with its reason.
std::map<std::string, std::string> ops_without_case();

// One function per family, in cases_<family>.cpp.
std::vector<OpCase> activation_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> attention_sinks_cases();
std::vector<OpCase> quantized_weight_cases();
std::vector<OpCase> compression_cases();
std::vector<OpCase> cross_entropy_cases();
std::vector<OpCase> divided_norm_cases();
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> expert_cases();
std::vector<OpCase> float8_cases();
std::vector<OpCase> float8_gemm_cases();
std::vector<OpCase> gemm_cases();
std::vector<OpCase> head_norm_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> optimizer_cases();
std::vector<OpCase> paged_attention_cases();
std::vector<OpCase> quantize_cases();
std::vector<OpCase> router_cases();
std::vector<OpCase> row_cases();
std::vector<OpCase> sample_cases();
std::vector<OpCase> transfer_cases();
std::vector<OpCase> dora_magnitude_cases();

}  // namespace trireme::test
