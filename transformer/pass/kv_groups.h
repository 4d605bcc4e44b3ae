// Groups of layers in a KV cache.
//
// A block of the cache (transformer/pass/kv_cache.h) holds keys and values of one sequence's tokens
// in the layers of one group: of layers without a sliding window, of layers with the same one, or
// of layers that attend inside chunks. A sequence needs its blocks in a group with a window or
// chunks only as long as a later token attends to them, about W tokens. Blocks have the same size
// in bytes in all groups, so that one pool holds them.
//
// Layers of one kind (the same window, chunks, or neither) are divided evenly over groups whose
// blocks have memory for n layers. n is the largest number, at most the layer count of the smallest
// kind, with which each kind leaves at most 1/16 of that memory unused. A model with 8 layers of
// which 2 have no window has four groups of 2 layers; a sequence of L tokens has L / P blocks of P
// tokens in one of them and about W / P in each of the others.
//
// `window` of a group: 0, a token attends to itself and all earlier tokens; W > 0, to itself and
// the W - 1 tokens before it; -C < 0, to itself and the earlier tokens of its chunk of C tokens (C
// is a multiple of the block size).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transformer/config/model_config.h"

namespace trireme {

// Returns the window of each group, zeros first, then ascending. {0}, one group of all layers, if
// no window or chunk is shorter than `length`, the longest sequence in tokens.
std::vector<int64_t> kv_windows(const ModelConfig& config, int64_t length);

// Group of a layer, and index of the layer in it among those of this rank.
struct KvPlace {
  int64_t group = 0;
  int64_t index = 0;
};

// Returns the places of a rank's layers, [first_layer, first_layer + layers). windows:
// kv_windows(), or {0}: one group of all layers, regardless of their windows.
std::vector<KvPlace> kv_places(const ModelConfig& config, std::span<const int64_t> windows,
                               int64_t first_layer, int64_t layers);

}  // namespace trireme
