// Frequencies of the rotary embedding, and their scaling for sequences longer than those of the
// original training. The definitions are HuggingFace's (`rope_type`), in float64.
//
// D is the rotated width, b the base (rope_theta), f_i = b^(-2i/D), 0 <= i < D/2, s the factor, P
// the model's positions (max_position_embeddings) and P0 its original ones:
//
//   default  f_i                                                              (Su et al. 2021)
//   linear   f_i / s                            position interpolation       (Chen et al. 2023)
//   dynamic  f_i of the base b (s N / P - (s - 1))^(D / (D - 2)), N = max(P, length)
//            "NTK-aware" scaling of the base; for N = P the base is b itself
//   llama3   by the wavelength l = 2 pi / f_i (Grattafiori et al. 2024):  f_i where l < P0 / high;
//            f_i / s where l > P0 / low; between them (1 - m) f_i / s + m f_i with
//            m = (P0 / l - low) / (high - low)
//   yarn     (1 - e_i) f_i / s + e_i f_i                                     (Peng et al. 2023)
//            e_i = 1 - clamp((i - lo) / (hi - lo), 0, 1); lo and hi are the (fractional) i at which
//            P0 positions are beta_fast and beta_slow turns: i(r) = D ln(P0 / (2 pi r)) / (2 ln b),
//            rounded down and up if `truncate`, within [0, D - 1]. Cosines and sines are multiplied
//            by the attention factor, by default m(s, mscale) / m(s, mscale_all_dim) if both are
//            given, else m(s, 1), with m(s, k) = 0.1 k ln(s) + 1 for s > 1, else 1.
//   longrope f_i / l_i for a length above P0, else f_i / c_i             (Ding et al. 2024)
//            with two given lists l and c. Cosines and sines are multiplied by the attention
//            factor, by default sqrt(1 + ln(s) / ln(P0)) for s > 1, else 1.
//
// `length` of "dynamic" and "longrope": HuggingFace uses the longest sequence of each forward.
// There a sequence's result depends on the other sequences of its batch, and cached keys were
// rotated by other frequencies than later queries. Here `length` is the length that positions are
// reserved for (Model::reserve_positions()): the configured sequence length in training and
// evaluation, independent of packing, the prompt plus new tokens in `generate`, and in serving
// --max-model-len or else the model's length, also if the KV cache then limits sequences to fewer
// tokens: replicas and ranks that were restarted have the same frequencies. That equals
// HuggingFace's forward pass, without a cache, of a batch whose longest sequence has this length.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

enum class RopeType { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1.0;             // s
  int64_t original_positions = 0;  // P0; llama3, yarn, longrope, Gemma's linear
  double low_frequency_factor = 1, high_frequency_factor = 4;  // low, high; llama3
  double attention_factor = 0;                                 // yarn, longrope; 0: not given
  double beta_fast = 32, beta_slow = 1;                        // yarn, as the next two lines
  bool truncate = true;
  double mscale = 0, mscale_all_dim = 0;                      // 0: not given
  std::vector<double> short_factors = {}, long_factors = {};  // (D / 2) c, l; longrope
  bool operator==(const RopeScaling&) const = default;
};

struct RotaryFrequencies {
  std::vector<double> inverse;  // (D / 2): angle per position, in radians
  double attention_factor = 1;  // factor of cosines and sines
};

// width: D, even, above 2 with dynamic scaling. positions: P. length >= 0.
RotaryFrequencies rotary_frequencies(double base, int64_t width, const RopeScaling& scaling,
                                     int64_t positions, int64_t length);

// m(s, k) above.
double yarn_scale(double factor, double coefficient);

// Longest sequence that a model with P positions is meant for. linear and dynamic: s P, because
// their configurations keep the original P and P0 is 0. linear with P0 (Gemma 3): P, because its
// configurations have the larger P. yarn: max(P, s P0). Others: P.
int64_t longest_sequence(const RopeScaling& scaling, int64_t positions);

}  // namespace trireme
