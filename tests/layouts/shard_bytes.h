// Bytes that each rank of a layout must store, from the configuration alone, without the list of
// parameters.
//
// Contents of a rank, for t, e, u ranks of tp, ep, etp, with slices as equal as possible, H query
// and G key/value heads of D elements, C the hidden width, F inner widths, V the vocabulary, P
// positions:
//   embedding   V/t C                            [+ P C positions, GPT-2]
//   a layer     (H/t + 2 max(G/t, 1)) D C        q, k, v, one matrix
//               C H/t D                          o
//               2 F/t C, C F/t                   gate and up (one matrix; GPT-2: fc), down
//               C each                           two norms, on every rank (LayerNorm: with biases)
//               biases                           of q, k, v, gate, up like their rows; o, down: C
//               in a sparse layer, instead of gate, up, down
//               E C                              router, on every rank
//               E/e (2 F/u C, C F/u)             its experts
//               as an MLP, C                     shared experts, their factor
//   head        V/t C, C                         unless tied on the same rank; last norm
// Layers are those of its pipeline stages. Every matrix is padded to 64 elements. Where ZeRO
// divides an array, rank i of N stores [n i / N, n (i + 1) / N), rounded down, of the n elements of
// each layer's dense parameters, its experts, and a table that two pipeline stages share.
#pragma once

#include "tests/layouts/layout_run.h"

namespace trireme::test {

LayoutResult::Stored shard_bytes(const RunConfig& config, int rank);

// "" or the first rank with other sizes.
std::string stored_difference(const LayoutResult& got, const RunConfig& config);

// "" or the first group of more than one rank, by the sizes of the layout, without any traffic.
std::string silent_group(const LayoutResult& got, const RunConfig& config);

}  // namespace trireme::test
