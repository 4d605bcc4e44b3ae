#include "transformer/model/stages.h"

#include <numeric>

#include "engine/core/error.h"

namespace trireme {

std::string stage_problem(int64_t layers, int64_t chunks, const std::vector<int64_t>& counts) {
  if (counts.empty())
    return chunks <= layers || chunks == 1
               ? ""
               : concat(layers, " layers cannot fill ", chunks, " pipeline chunks");
  if (std::ssize(counts) != chunks)
    return concat("lists ", counts.size(), " chunks but the pipeline has ", chunks);
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > layers) return concat("holds ", count, ", expected 0 to ", layers);
    sum += count;
  }
  return sum == layers ? "" : concat("adds up to ", sum, " layers but the model has ", layers);
}

std::vector<ChunkSpan> split_layers(int64_t layers, int chunks,
                                    const std::vector<int64_t>& counts) {
  const std::string problem = stage_problem(layers, chunks, counts);
  TRIREME_CHECK(problem.empty(), "pipeline layout: ", problem);
  std::vector<int64_t> sizes = counts;
  if (sizes.empty()) {
    sizes.assign(static_cast<size_t>(chunks), layers / chunks);
    // Each chunk of the remainder, from the last but one downwards, gets a layer more: the last has
    // the head, the first the embedding.
    const int64_t rest = layers % chunks;
    for (int64_t i = 0; i < rest; ++i) ++sizes[static_cast<size_t>(chunks - 2 - i)];
  }
  std::vector<ChunkSpan> spans;
  int64_t first = 0;
  for (size_t c = 0; c < sizes.size(); ++c) {
    spans.push_back({first, first + sizes[c], c == 0, c + 1 == sizes.size()});
    first += sizes[c];
  }
  return spans;
}

std::vector<ChunkSpan> chunks_of(const std::vector<ChunkSpan>& all, const GroupCoord& pp) {
  std::vector<ChunkSpan> mine;
  for (size_t c = static_cast<size_t>(pp.index); c < all.size(); c += static_cast<size_t>(pp.size))
    mine.push_back(all[c]);
  return mine;
}

}  // namespace trireme
