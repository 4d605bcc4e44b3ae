// Division of a model's layers among the chunks of a pipeline.
//
// A model is cut into pp x v chunks of consecutive layers; pipeline rank r holds chunks r, r + pp,
// r + 2 pp, ... (v of them: Narayanan et al. 2021). The first chunk starts with the embedding, the
// last ends with the head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/layout.h"

namespace trireme {

struct ChunkSpan {
  int64_t first_layer = 0;
  int64_t last_layer = 0;  // exclusive
  bool embedding = false;
  bool head = false;
  int64_t layers() const { return last_layer - first_layer; }
};

// Returns all chunks of the model, in order. counts: layers of each chunk; empty: as equal as
// possible, with fewer layers in the last chunk, then in the first ones, because the head and the
// embedding cost time too. Error if stage_problem() finds one.
std::vector<ChunkSpan> split_layers(int64_t layers, int chunks, const std::vector<int64_t>& counts);
// Returns the problem of `counts` for these numbers of layers and chunks, or "" if there is none.
std::string stage_problem(int64_t layers, int64_t chunks, const std::vector<int64_t>& counts);

// Returns the chunks of the pipeline rank `pp`.
std::vector<ChunkSpan> chunks_of(const std::vector<ChunkSpan>& all, const GroupCoord& pp);

}  // namespace trireme
