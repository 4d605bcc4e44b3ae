#include "tests/cuda/registry.h"

#include <iterator>

namespace trireme::test {

std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  for (const auto family : {
           // One per line, so that new families merge without conflicts.
           activation_cases,
           attention_cases,
           attention_sinks_cases,
           quantized_weight_cases,
           compression_cases,
           cross_entropy_cases,
           divided_norm_cases,
           elementwise_cases,
           expert_cases,
           float8_cases,
           float8_gemm_cases,
           gemm_cases,
           head_norm_cases,
           norm_cases,
           optimizer_cases,
           paged_attention_cases,
           quantize_cases,
           router_cases,
           row_cases,
           sample_cases,
           transfer_cases,
           dora_magnitude_cases,
       }) {
    std::vector<OpCase> cases = family();
    all.insert(all.end(), std::move_iterator(cases.begin()), std::move_iterator(cases.end()));
  }
  return all;
}

std::map<std::string, std::string> ops_without_case() {
  return {
      {"device_seconds", "a measurement"},
      {"fill_from_host", "host work by its meaning, tried by training runs"},
      {"fill_noise", "host work by its meaning, of measurements"},
      {"gemm_in_float32", "of the CPU, called by gemm only"},
      {"library_gemm", "called by gemm and the linear ops only, which have cases"},
      {"library_gemm_packed", "called by linear_forward_packed only"},
      {"library_pack", "called by pack_weight only"},
      {"measure_device_peak", "a measurement"},
      {"read_on_host", "host work by its meaning, tried by training runs"},
      {"through_float32", "of the CPU, called by gemm and linear_forward_packed only"},
      {"to_host", "a copy to the host, tried by training runs"},
      {"widened", "of the CPU, called by gemm and the linear ops only"},
  };
}

}  // namespace trireme::test
