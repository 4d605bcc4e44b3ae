#include "parallel/store_block_copies.h"

#include <map>
#include <tuple>

#include "engine/ops/rows/transfer.h"
#include "parallel/comm/collectives/collectives.h"

namespace trireme {
namespace {

std::unique_ptr<Communicator> neighbours(Communicator& all, int ranks) {
  TRIREME_CHECK(all.size() % ranks == 0, "copies over ", ranks, " of ", all.size(), " ranks");
  return all.split(all.rank() / ranks, all.rank(), concat("copies in ", all.name()));
}

// True if groups of `ranks` neighbours of a region are on one node each.
bool copies_fit_nodes(const ParallelSizes& sizes, const std::vector<int>& nodes, Region region,
                      int ranks) {
  std::map<std::tuple<int, int, int>, int> node_of;  // by stage, tp index and number of the group
  for (int rank = 0; rank < std::ssize(nodes); ++rank) {
    const Layout layout = layout_of(sizes, rank);
    const int part = is_dense(region) ? layout.tp.index : 0;
    const int node = nodes[static_cast<size_t>(rank)];
    const std::tuple group{layout.pp.index, part, layout.of(region).index / ranks};
    if (node_of.try_emplace(group, node).first->second != node) return false;
  }
  return true;
}

}  // namespace

int max_copy_ranks(const ParallelSizes& sizes, const std::vector<int>& nodes, bool experts) {
  const int all = sizes.dp * sizes.cp;
  for (int ranks = all; ranks > 1; --ranks)
    if (all % ranks == 0 && copies_fit_nodes(sizes, nodes, Region::kDense, ranks) &&
        (!experts || copies_fit_nodes(sizes, nodes, Region::kExpert, ranks)))
      return ranks;
  return 1;
}

StoreBlockCopies::StoreBlockCopies(const Groups& groups, const std::vector<Tile>& tiles, int blocks,
                                   DType dtype, int ranks)
    : tiles_(tiles),
      dtype_(dtype),
      dense_(neighbours(groups.of(Region::kDense), ranks)),
      expected_(static_cast<size_t>(blocks)),
      pieces_(tiles.size()) {
  bool experts = false;
  for (const Tile& tile : tiles_) experts = experts || !is_dense(tile.region);
  if (experts) expert_ = neighbours(groups.of(Region::kExpert), ranks);
}

void StoreBlockCopies::expect(int block, StorePass pass) {
  Passes& passes = expected_[static_cast<size_t>(block)];
  (pass == StorePass::kForward ? passes.forward : passes.backward) = true;
}

Communicator& StoreBlockCopies::group_of(const Tile& tile) const {
  return is_dense(tile.region) ? *dense_ : *expert_;
}

FlatRange StoreBlockCopies::piece_of_tile(const Tile& tile) const {
  const Communicator& group = group_of(tile);
  const Piece piece = piece_of(tile.range.size(), group.size(), group.rank());
  return {piece.begin, piece.end};
}

int64_t StoreBlockCopies::bytes() const {
  int64_t elements = 0;
  for (const Tile& tile : tiles_)
    if (has(tile.block)) elements += piece_of_tile(tile).size();
  return elements * dtype_size(dtype_);
}

void StoreBlockCopies::allocate(Ctx& ctx) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Tile& tile = tiles_[i];
    if (!has(tile.block)) continue;
    const int64_t bytes = piece_of_tile(tile).size() * dtype_size(dtype_);
    pieces_[i] = Buffer("second copy of parameters", bytes, ctx.memory());
  }
}

Tensor StoreBlockCopies::kept(size_t tile) const {
  TRIREME_CHECK(has(tiles_[tile].block), "tile ", tile, " has no second copy");
  return pieces_[tile].tensor(dtype_, Shape{piece_of_tile(tiles_[tile]).size()});
}

void StoreBlockCopies::keep(Ctx& ctx, size_t tile, const Tensor& values) const {
  const FlatRange piece = piece_of_tile(tiles_[tile]);
  transfer(ctx, kept(tile), values.slice(0, piece.begin, piece.end));
}

Work StoreBlockCopies::gather(Ctx& ctx, size_t tile, const Tensor& values) const {
  const FlatRange piece = piece_of_tile(tiles_[tile]);
  transfer(ctx, values.slice(0, piece.begin, piece.end), kept(tile));
  Communicator& group = group_of(tiles_[tile]);
  return group.size() > 1 ? group.all_gather_v_async(values) : Work();
}

}  // namespace trireme
