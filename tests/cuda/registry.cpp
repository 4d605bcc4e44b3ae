#include "tests/cuda/registry.h"

#include <iterator>

namespace trireme::test {

std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  for (const auto family : {
           // one on a line: families are added side by side
           activation_cases,
           attention_cases,
           elementwise_cases,
           gemm_cases,
           norm_cases,
           row_cases,
       }) {
    std::vector<OpCase> cases = family();
    all.insert(all.end(), std::move_iterator(cases.begin()), std::move_iterator(cases.end()));
  }
  return all;
}

std::map<std::string, std::string> ops_without_case() {
  return {
      {"adamw_step", "no kernel yet"},
      {"combine_rows", "no kernel yet"},
      {"combine_rows_backward", "no kernel yet"},
      {"dot_rows", "no kernel yet"},
      {"drop_over_capacity", "no kernel yet"},
      {"fill_bytes", "a copy's fill, tried by every training run on a device"},
      {"fill_from_host", "host work by its meaning, tried by training runs"},
      {"first_non_finite", "no kernel yet"},
      {"gather_rows", "no kernel yet"},
      {"library_gemm", "called by gemm and the linear ops only, which have cases"},
      {"library_gemm_packed", "called by linear_forward_packed only"},
      {"library_pack", "called by pack_weight only"},
      {"mark_tokens", "no case yet"},
      {"merge_softmax_statistics", "no kernel yet"},
      {"noisy_backward", "no kernel yet"},
      {"noisy_load", "no kernel yet"},
      {"noisy_logits", "no kernel yet"},
      {"order_by_expert", "no kernel yet"},
      {"partial_cross_entropy", "no kernel yet"},
      {"read_on_host", "host work by its meaning, tried by training runs"},
      {"router_backward", "no kernel yet"},
      {"router_forward", "no kernel yet"},
      {"router_losses", "no kernel yet"},
      {"router_statistics", "no kernel yet"},
      {"scale_rows", "no kernel yet"},
      {"sgd_step", "no kernel yet"},
      {"softmax_cross_entropy", "no kernel yet"},
      {"softmax_statistics", "no kernel yet"},
      {"sum_of_squares", "no kernel yet"},
      {"sum_rows", "no case yet"},
      {"to_host", "a copy to the host, tried by training runs"},
      {"transfer", "a copy between host and device, tried by training runs"},
  };
}

}  // namespace trireme::test
