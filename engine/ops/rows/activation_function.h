// Pointwise function of an MLP (HuggingFace's hidden_act). To add one: a constant and a row of
// names here, and a functor and a case of with_function() in activation.cpu.cpp and activation.cu.
#pragma once

#include <cstdint>

namespace trireme {

enum class ActivationFunction : uint8_t {
  kGelu,  // tanh form (Hendrycks & Gimpel 2016): x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kSilu,  // x / (1 + exp(-x))
};

// Op names of a function, for profiles and errors. kActivationOps has one row for each constant, in
// their order.
struct ActivationOps {
  const char *forward, *backward, *gated_forward, *gated_backward;
};
inline constexpr ActivationOps kActivationOps[] = {
    {"gelu_forward", "gelu_backward", "gelu_gated_forward", "gelu_gated_backward"},
    {"silu_forward", "silu_backward", "silu_gated_forward", "silu_gated_backward"},
};

[[gnu::always_inline]] constexpr const ActivationOps& op_names(ActivationFunction f) {
  return kActivationOps[static_cast<int>(f)];
}

}  // namespace trireme
