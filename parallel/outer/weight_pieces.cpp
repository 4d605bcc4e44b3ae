#include "parallel/outer/weight_pieces.h"

#include "engine/ops/rows/transfer.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/communicator.h"
#include "parallel/outer/compressed_parts.h"

namespace trireme {
namespace {

FlatRange common(const FlatRange& a, const FlatRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Parts of a range of a region that rank `rank` of `ranks` owns, as ParameterStore::owned() has
// them.
std::vector<FlatRange> owned_ranges(const ParameterStore& store, Region region,
                                    const FlatRange& whole, int ranks, int rank) {
  std::vector<FlatRange> ranges;
  for (const Tile& tile : store.tiles()) {
    if (tile.region != region || common(tile.range, whole).size() == 0) continue;
    const Piece piece = piece_of(tile.range.size(), ranks, rank);
    ranges.push_back({tile.range.begin + piece.begin, tile.range.begin + piece.end});
  }
  return ranges;
}

int64_t common_elements(const std::vector<FlatRange>& ranges, const FlatRange& with) {
  int64_t elements = 0;
  for (const FlatRange& range : ranges) elements += common(range, with).size();
  return elements;
}

}  // namespace

std::vector<FlatRange> consecutive_pieces(const std::vector<std::vector<CompressedPart>>& cuts,
                                          const FlatRange& range) {
  std::vector<FlatRange> pieces(cuts.size());
  int64_t end = range.end;
  for (size_t rank = cuts.size(); rank-- > 0;) {
    const bool empty = cuts[rank].empty();
    const int64_t begin = rank == 0 ? range.begin : empty ? end : cuts[rank].front().offset;
    pieces[rank] = {begin, end};
    end = begin;
  }
  return pieces;
}

WeightPieces::WeightPieces(Communicator& ranks, const ParameterStore& store, Region region,
                           const FlatRange& range, const std::vector<FlatRange>& pieces, Ctx& ctx)
    : ranks_(ranks),
      pieces_(pieces),
      ctx_(ctx),
      range_(range),
      piece_(pieces[static_cast<size_t>(ranks.rank())]) {
  for (int rank = 0; rank < ranks.size(); ++rank)
    owned_.push_back(owned_ranges(store, region, range, ranks.size(), rank));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    owned_counts_.push_back(common_elements(owned_[static_cast<size_t>(ranks.rank())], pieces[r]));
    piece_counts_.push_back(common_elements(owned_[r], piece_));
  }
}

// The part of the range that this rank stores: contiguous, because blocks follow one another.
Tensor WeightPieces::stored_range(const StoredWeights& weights) const {
  Tensor stored = weights.array.slice(0, 0, 0);
  int64_t begin = -1, end = 0;
  weights.map->for_each(range_, [&](const FlatRange& part, int64_t at) {
    if (begin < 0) begin = at;
    end = at + part.size();
  });
  return begin < 0 ? stored : weights.array.slice(0, begin, end);
}

template <class Use>
void WeightPieces::for_each_common(const Use& use) const {
  int64_t at = 0;
  for (const std::vector<FlatRange>& ranges : owned_)
    for (const FlatRange& range : ranges) {
      const FlatRange part = common(range, piece_);
      if (part.size() == 0) continue;
      use(FlatRange{part.begin - piece_.begin, part.end - piece_.begin}, at);
      at += part.size();
    }
}

void WeightPieces::read(const StoredWeights& weights, const Tensor& piece,
                        const Tensor& scratch) const {
  const Tensor stored = stored_range(weights);
  if (!weights.sharded) {
    const int64_t at = piece_.begin - range_.begin;
    return transfer(ctx_, piece, stored.slice(0, at, at + piece_.size()));
  }
  ranks_.all_to_all_v(scratch, piece_counts_, stored, owned_counts_);
  for_each_common([&](const FlatRange& part, int64_t at) {
    transfer(ctx_, piece.slice(0, part.begin, part.end), scratch.slice(0, at, at + part.size()));
  });
}

void WeightPieces::write(const StoredWeights& weights, const ConstTensor& piece,
                         const Tensor& scratch) const {
  const Tensor stored = stored_range(weights);
  if (weights.sharded) {
    for_each_common([&](const FlatRange& part, int64_t at) {
      transfer(ctx_, scratch.slice(0, at, at + part.size()), piece.slice(0, part.begin, part.end));
    });
    return ranks_.all_to_all_v(stored, owned_counts_, scratch, piece_counts_);
  }
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const FlatRange& its = pieces_[static_cast<size_t>(rank)];
    const Tensor to = stored.slice(0, its.begin - range_.begin, its.end - range_.begin);
    if (rank == ranks_.rank()) transfer(ctx_, to, piece);
    if (ranks_.size() > 1 && its.size() > 0) ranks_.broadcast(to, rank);
  }
}

}  // namespace trireme
