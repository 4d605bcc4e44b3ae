#include "parallel/store_block_gather.h"

#include <utility>

#include "engine/ops/rows/transfer.h"

namespace trireme {

StoreBlockGather::StoreBlockGather(const Groups& groups, const ParameterStore& store, Ctx& ctx,
                                   GatherOptions options)
    : groups_(groups),
      store_(store),
      ctx_(ctx),
      options_(std::move(options)),
      buffers_("gathered values", store.dtype(), store.blocks()),
      uses_(static_cast<size_t>(store.blocks())) {
  if (options_.copy_ranks > 1)
    copies_ = std::make_unique<StoreBlockCopies>(groups, store.tiles(), store.blocks(),
                                                 store.dtype(), options_.copy_ranks);
}

// Waits, because after a failure a gather may still be writing to the arena.
StoreBlockGather::~StoreBlockGather() {
  for (const Use& use : uses_)
    for (const Work& work : use.work) try {
        work.wait();
      } catch (const Error&) {  // NOLINT: the waiting caller has this error already
      }
}

void StoreBlockGather::allocate(Ctx& ctx) {
  if (copies_ != nullptr) copies_->allocate(ctx);
}

template <class F>
void StoreBlockGather::for_each_tile(int block, const F& use) const {
  const std::vector<Tile>& tiles = store_.tiles();
  for (size_t i = 0; i < tiles.size() && !ctx_.planning(); ++i)
    if (tiles[i].block == block) use(i, tiles[i]);
}

void StoreBlockGather::start(StoreBlockPass wanted) {
  Use& use = uses_[static_cast<size_t>(wanted.block)];
  use.started = true;
  if (copies_ != nullptr && ctx_.planning()) copies_->expect(wanted.block, wanted.pass);
  use.from_copy =
      copies_ != nullptr && wanted.pass == StorePass::kBackward && copies_->has(wanted.block);
  if (use.from_copy)
    start_from_copy(wanted.block);
  else if (options_.codes.empty())
    start_exact(wanted.block);
  else
    start_codes(wanted.block);
}

void StoreBlockGather::open_values(int block) {
  std::vector<FlatRange> ranges;
  ranges.reserve(kRegions);
  for (int region = 0; region < kRegions; ++region)
    ranges.push_back(store_.block_range(block, static_cast<Region>(region)));
  buffers_.open(ctx_.arena, block, ranges);
}

void StoreBlockGather::start_exact(int block) {
  Use& use = uses_[static_cast<size_t>(block)];
  open_values(block);
  for_each_tile(block, [&](size_t, const Tile& tile) {
    store_.owned().for_each(tile.range, [&](const FlatRange& part, int64_t offset) {
      const Tensor mine = store_.flat_values().slice(0, offset, offset + part.size());
      transfer(ctx_, buffers_.view(block, part), mine);
    });
    Communicator& group = groups_.of(tile.region);
    if (group.size() > 1) use.work.push_back(group.all_gather_v_async(values_of(tile)));
  });
}

void StoreBlockGather::start_from_copy(int block) {
  Use& use = uses_[static_cast<size_t>(block)];
  open_values(block);
  for_each_tile(block, [&](size_t i, const Tile& tile) {
    use.work.push_back(copies_->gather(ctx_, i, values_of(tile)));
  });
}

void StoreBlockGather::start_codes(int block) {
  Use& use = uses_[static_cast<size_t>(block)];
  for (size_t i = 0; i < options_.codes.size(); ++i)
    if (store_.tiles()[i].block == block)
      use.codes.push_back(ctx_.arena.allocate("gathered codes", DType::kU8,
                                              Shape{options_.codes[i]->buffer_bytes()}));
  auto buffer = use.codes.cbegin();
  for_each_tile(block, [&](size_t i, const Tile& tile) {
    const TileCode& code = *options_.codes[i];
    code.encode(ctx_, *buffer);
    Communicator& group = groups_.of(tile.region);
    // In place, each message a piece: unlike all_gather_async(), through the window of a node.
    if (group.size() > 1) use.work.push_back(group.all_gather_v_async(code.messages(*buffer)));
    ++buffer;
  });
}

void StoreBlockGather::finish(int block) {
  Use& use = uses_[static_cast<size_t>(block)];
  use.finished = true;
  {
    const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
    for (const Work& work : use.work) work.wait();
  }
  use.work.clear();
  if (use.from_copy) return;
  if (!options_.codes.empty()) {
    open_values(block);
    auto buffer = use.codes.cbegin();
    for_each_tile(block, [&](size_t i, const Tile& tile) {
      options_.codes[i]->decode(ctx_, values_of(tile), *buffer++);
    });
    use.codes.clear();
  }
  if (copies_ != nullptr && copies_->has(block))
    for_each_tile(block,
                  [&](size_t i, const Tile& tile) { copies_->keep(ctx_, i, values_of(tile)); });
}

void StoreBlockGather::acquire(StoreBlockPass block, StoreBlockPass next) {
  Use& use = uses_[static_cast<size_t>(block.block)];
  ++use.users;
  if (!use.started) start(block);
  if (options_.prefetch && next.block >= 0 && !uses_[static_cast<size_t>(next.block)].started)
    start(next);
  if (!use.finished) finish(block.block);
}

void StoreBlockGather::release(int block) {
  Use& use = uses_[static_cast<size_t>(block)];
  TRIREME_CHECK(use.users > 0, "block ", block, " is released more often than acquired");
  if (--use.users > 0) return;
  use.started = use.finished = false;
  buffers_.close(block);
}

void gather_updated_values(const Groups& groups, const ParameterStore& store, Profile* profile) {
  const TimeScope scope(profile, TimeCategory::kCommunication);
  std::vector<Work> all;
  for (const Tile& tile : store.tiles()) {
    Communicator& group = groups.of(tile.region);
    if (group.size() == 1 || !is_trained(tile.region)) continue;
    const Tensor whole = store.flat_values().slice(0, tile.range.begin, tile.range.end);
    all.push_back(group.all_gather_v_async(whole));
  }
  for (const Work& work : all) work.wait();
}

}  // namespace trireme
