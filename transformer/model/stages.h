// How the layers of a model are divided among the chunks of a pipeline.
//
// A model is cut into pp x v chunks of neighbouring layers; rank r of the pipeline holds chunks r,
// r + pp, r + 2 pp, ... (v of them: Narayanan et al. 2021). The first chunk begins with the
// embedding, the last ends with the head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/layout.h"

namespace trireme {

struct ChunkSpan {
  int64_t first_layer = 0;
  int64_t last_layer = 0;  // one past
  bool embedding = false;
  bool head = false;
  int64_t layers() const { return last_layer - first_layer; }
};

// All chunks of the model, in order. counts: layers of each chunk, or empty: as equal as possible,
// with the longer chunks in the middle, because embedding and head cost time too.
std::vector<ChunkSpan> split_layers(int64_t layers, int chunks, const std::vector<int64_t>& counts);
// "" or what is wrong with `counts` for that many layers and chunks.
std::string stage_problem(int64_t layers, int64_t chunks, const std::vector<int64_t>& counts);

// This rank's chunks.
std::vector<ChunkSpan> chunks_of(const std::vector<ChunkSpan>& all, const Place& pp);

}  // namespace trireme
