// Tokens of a micro-batch that one rank processes.
//
// Every rank of a tensor, context and pipeline group reads the whole batch. With sequence
// parallelism the tokens are padded to a multiple of the tensor-parallel size: a padding token has
// target kIgnoredTarget, row -1, and belongs to a separate sequence, so that it influences nothing.
// A context-parallel rank takes its chunks of every sequence, also padded, and an attention plan
// (parallel/context/token_slices.h).
#pragma once

#include "parallel/layout.h"
#include "training/data/batch_source.h"

namespace trireme {

// Tokens of this rank for `sequences` sequences of S tokens.
int64_t local_tokens(int64_t sequences, int64_t sequence_length, const Layout& layout);
// True if the whole batch can be used unchanged.
bool is_batch_shard_whole(int64_t sequences, int64_t sequence_length, const Layout& layout);
// windows: whether a layer of the model attends over a window (ModelConfig::has_windows()).
void fill_batch_shard(const MicroBatch& whole, int64_t sequence_length, const Layout& layout,
                      bool windows, MicroBatch& local);

}  // namespace trireme
