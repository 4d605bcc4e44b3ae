#include "parallel/store_block_gather.h"

#include <utility>

#include "engine/ops/rows/transfer.h"

namespace trireme {

StoreBlockGather::StoreBlockGather(const Groups& groups, const ParameterStore& store, Ctx& ctx,
                                   bool prefetch, TileCodes codes)
    : groups_(groups),
      store_(store),
      ctx_(ctx),
      prefetch_(prefetch),
      buffers_("gathered values", store.dtype(), store.blocks()),
      uses_(static_cast<size_t>(store.blocks())),
      codes_(std::move(codes)) {}

// Waits, because after a failure a gather may still be writing to the arena.
StoreBlockGather::~StoreBlockGather() {
  for (const Use& use : uses_)
    for (const Work& work : use.work) try {
        work.wait();
      } catch (const Error&) {  // NOLINT: the waiting caller has this error already
      }
}

void StoreBlockGather::start(int block) {
  uses_[static_cast<size_t>(block)].started = true;
  if (codes_.empty())
    start_values(block);
  else
    start_codes(block);
}

void StoreBlockGather::open_values(int block) {
  std::vector<FlatRange> ranges;
  ranges.reserve(kRegions);
  for (int region = 0; region < kRegions; ++region)
    ranges.push_back(store_.block_range(block, static_cast<Region>(region)));
  buffers_.open(ctx_.arena, block, ranges);
}

void StoreBlockGather::start_values(int block) {
  Use& use = uses_[static_cast<size_t>(block)];
  open_values(block);
  if (ctx_.planning()) return;
  for (const Tile& tile : store_.block_tiles(block)) {
    const Tensor whole = buffers_.view(block, tile.range);
    store_.owned().for_each(tile.range, [&](const FlatRange& part, int64_t offset) {
      const Tensor mine = store_.flat_values().slice(0, offset, offset + part.size());
      transfer(ctx_, buffers_.view(block, part), mine);
    });
    Communicator& group = groups_.of(tile.region);
    if (group.size() > 1) use.work.push_back(group.all_gather_v_async(whole));
  }
}

void StoreBlockGather::start_codes(int block) {
  Use& use = uses_[static_cast<size_t>(block)];
  for (size_t i = 0; i < codes_.size(); ++i) {
    const Tile& tile = store_.tiles()[i];
    if (tile.block != block) continue;
    const TileCode& code = *codes_[i];
    use.codes.push_back(
        ctx_.arena.allocate("gathered codes", DType::kU8, Shape{code.buffer_bytes()}));
    if (ctx_.planning()) continue;
    const Tensor& buffer = *use.codes.back();
    code.encode(ctx_, buffer);
    Communicator& group = groups_.of(tile.region);
    if (group.size() > 1)
      use.work.push_back(group.all_gather_async(code.messages(buffer), code.own_message(buffer)));
  }
}

void StoreBlockGather::decode(int block) {
  std::vector<Activation>& buffers = uses_[static_cast<size_t>(block)].codes;
  open_values(block);
  size_t next = 0;
  for (size_t i = 0; i < codes_.size(); ++i) {
    const Tile& tile = store_.tiles()[i];
    if (tile.block != block || ctx_.planning()) continue;
    codes_[i]->decode(ctx_, buffers_.view(block, tile.range), *buffers[next++]);
  }
  buffers.clear();
}

void StoreBlockGather::acquire(int block, int next) {
  Use& use = uses_[static_cast<size_t>(block)];
  ++use.users;
  if (!use.started) start(block);
  if (prefetch_ && next >= 0 && !uses_[static_cast<size_t>(next)].started) start(next);
  {
    const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
    for (const Work& work : use.work) work.wait();
  }
  use.work.clear();
  if (!codes_.empty() && !buffers_.holds(block)) decode(block);
}

void StoreBlockGather::release(int block) {
  Use& use = uses_[static_cast<size_t>(block)];
  TRIREME_CHECK(use.users > 0, "block ", block, " is released more often than acquired");
  if (--use.users > 0) return;
  use.started = false;
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
