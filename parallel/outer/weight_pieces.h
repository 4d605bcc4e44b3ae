// Pieces of a store block's weights in a region: each rank of a site that holds it works on one
// piece, whatever the rank stores. The pieces are consecutive and together the whole block; they do
// not cut blocks of a compressor, unlike the shards of ZeRO.
#pragma once

#include <vector>

#include "engine/ops/context.h"
#include "parallel/parameter_store.h"

namespace trireme {

class Communicator;

// Weights as a rank stores them: the parameters, or the master weights of 16-bit parameters.
struct StoredWeights {
  Tensor array;                   // (n) float32 or float64
  const ShardMap* map = nullptr;  // from the store's flat range to the array
  bool sharded = false;           // the array holds ParameterStore::owned(), else all elements
};

// Pieces of a whole range from parts that cut_parts() has cut, by rank.
struct CompressedPart;
std::vector<FlatRange> consecutive_pieces(const std::vector<std::vector<CompressedPart>>& cuts,
                                          const FlatRange& range);

class WeightPieces {
 public:
  // ranks: those that hold the region. pieces: by rank. All arguments must outlive this object.
  WeightPieces(Communicator& ranks, const ParameterStore& store, Region region,
               const FlatRange& range, const std::vector<FlatRange>& pieces, Ctx& ctx);

  // piece (n) = this rank's piece of the weights, and the reverse, which also gives the pieces of
  // the others to the ranks that store them. scratch (n): used if the weights are sharded, else
  // may be absent. Collective.
  void read(const StoredWeights& weights, const Tensor& piece, const Tensor& scratch) const;
  void write(const StoredWeights& weights, const ConstTensor& piece, const Tensor& scratch) const;

 private:
  Tensor stored_range(const StoredWeights& weights) const;
  // Parts of this rank's piece that other ranks store, in the order of these ranks.
  template <class Use>
  void for_each_common(const Use& use) const;
  Communicator& ranks_;
  const std::vector<FlatRange>& pieces_;
  Ctx& ctx_;
  FlatRange range_, piece_;
  std::vector<std::vector<FlatRange>> owned_;         // by rank
  std::vector<int64_t> owned_counts_, piece_counts_;  // elements exchanged with each rank
};

}  // namespace trireme
