// Groups of layers in a KV cache.
//
// A block of the cache (transformer/pass/kv_cache.h) holds keys and values of one sequence's tokens
// in the layers of one group: of layers without a sliding window, of layers with the same one, or
// of layers that attend inside chunks. A sequence needs its blocks in a group with a window or
// chunks only as long as a later token attends to them, about W tokens. Blocks have the same bytes
// in all groups, so that one pool holds them.
//
// Layers with the same window, or without one, are divided evenly over groups of at most n, the
// largest n for which at most a sixteenth of the places for any of these kinds stays empty. So a
// model with 8 layers of which 2 have no window has four groups of 2 layers, and a sequence of L
// tokens has L / P blocks of P tokens in one of them and about W / P in each of the others.
//
// The number called `window` is the reach of a group: 0, a token attends to all tokens before it;
// W > 0, to the W - 1 tokens before it; -C < 0, to those from the last multiple of C on (chunks;
// blocks divide C).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transformer/config/model_config.h"

namespace trireme {

// Windows of the groups; those with 0 come first. {0}, one group of all layers, if no sequence of
// at most `length` tokens is longer than a window or chunk.
std::vector<int64_t> kv_windows(const ModelConfig& config, int64_t length);

struct KvPlace {
  int64_t group = 0;
  int64_t index = 0;  // of the layer in the group, among those of this rank
};

// Places of the layers [first_layer, first_layer + layers), those of a rank. windows: kv_windows(),
// or {0}, one group of all layers, whatever their windows.
std::vector<KvPlace> kv_places(const ModelConfig& config, std::span<const int64_t> windows,
                               int64_t first_layer, int64_t layers);

}  // namespace trireme
