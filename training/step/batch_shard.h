// Batch shard: the tokens of a micro-batch that one rank processes.
//
// Every rank of a tensor-, context- and pipeline-parallel group reads the whole micro-batch. With
// sequence parallelism the tokens are padded to a multiple of the tensor-parallel size. A padding
// token has target kIgnoredTarget and global index -1. The padding tokens form a sequence of their
// own, so that they change no result.
//
// With context parallelism the shard is this rank's chunks of every sequence, each sequence padded
// at its end to equal chunks (parallel/context/token_slices.h), with an attention plan
// (parallel/context/context_plan.h), which excludes padding, in place of cu_seqlens.
#pragma once

#include "parallel/layout.h"
#include "training/data/batch_source.h"

namespace trireme {

// Number of tokens in this rank's shard of `sequences` sequences, with padding.
int64_t local_tokens(int64_t sequences, int64_t sequence_length, const Layout& layout);
// True if the shard is the whole micro-batch, unchanged.
bool is_batch_shard_whole(int64_t sequences, int64_t sequence_length, const Layout& layout);
// Sets `local` to this rank's shard of `whole`. With context parallelism it has an attention plan
// for the layers of the model.
void fill_batch_shard(const MicroBatch& whole, int64_t sequence_length, const Layout& layout,
                      const ModelConfig& model, MicroBatch& local);

}  // namespace trireme
