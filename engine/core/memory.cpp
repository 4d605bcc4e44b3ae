#include "engine/core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>

#include "engine/core/device_memory.h"
#include "engine/core/out_of_memory.h"

namespace trireme {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kPage = 4096;
// Host: a cache line and an AVX-512 register. GPU: required by its libraries, and good for copies.
constexpr int64_t kHostAlignment = 64, kDeviceAlignment = 256;
// Planning returns addresses that no system maps, so that a read faults instead of yielding a wrong
// number.
constexpr uintptr_t kFakeBase = uintptr_t{1} << 56;

// Start of the index range for a region's allocations.
constexpr int64_t kRegionIndex = int64_t{1} << 60;

std::atomic<int64_t> g_allocation_count{0};
std::atomic<int64_t> g_allocated_bytes{0};

}  // namespace

int64_t allocation_count() { return g_allocation_count.load(std::memory_order_relaxed); }
int64_t allocated_bytes() { return g_allocated_bytes.load(std::memory_order_relaxed); }

int64_t resident_anonymous_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  return -1;
}

namespace {

[[noreturn]] void fail_allocation(const std::string& name, int64_t bytes, const char* reason) {
  throw OutOfMemory(concat("cannot allocate ", bytes, " bytes for ", name, " (", reason,
                           "); this process holds ", allocated_bytes(),
                           " bytes; use a smaller batch, sequence or model, or more ranks"));
}

}  // namespace

Buffer::Buffer(std::string name, int64_t bytes, Memory memory)
    : name_(std::move(name)), memory_(memory), bytes_(bytes) {
  TRIREME_CHECK(bytes >= 0, "buffer ", name_, " of ", bytes, " bytes");
  if (bytes == 0) return;
  if (memory == Memory::kHost)
    map_host();
  else
    take_from_runtime();
  g_allocation_count.fetch_add(1, std::memory_order_relaxed);
  g_allocated_bytes.fetch_add(mapped_, std::memory_order_relaxed);
}

void Buffer::map_host() {
  const bool huge = bytes_ >= kHugePage;
  mapped_ = round_up(checked_add(bytes_, huge ? kHugePage : 0), kPage);
  void* address = mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) fail_allocation(name_, bytes_, std::strerror(errno));
  data_ = static_cast<std::byte*>(address);
  if (!huge) return;
  // Keep only the 2 MiB aligned part so that the kernel can use whole huge pages.
  const auto start = reinterpret_cast<uintptr_t>(address);
  const auto aligned = (start + kHugePage - 1) & ~static_cast<uintptr_t>(kHugePage - 1);
  const auto head = static_cast<int64_t>(aligned - start);
  const int64_t body = round_up(bytes_, kPage);
  if (head > 0) munmap(address, static_cast<size_t>(head));
  const int64_t tail = mapped_ - head - body;
  data_ += head;
  if (tail > 0) munmap(data_ + body, static_cast<size_t>(tail));
  mapped_ = body;
  madvise(data_, static_cast<size_t>(mapped_), MADV_HUGEPAGE);  // advisory: failure is harmless
}

void Buffer::take_from_runtime() {
  const bool device = memory_ == Memory::kDevice;
  data_ = static_cast<std::byte*>(device ? cuda::allocate_device(bytes_)
                                         : cuda::allocate_pinned(bytes_));
  if (data_ == nullptr)
    fail_allocation(name_, bytes_, device ? "out of GPU memory" : "out of pinned memory");
  mapped_ = bytes_;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  switch (memory_) {
    case Memory::kHost: munmap(data_, static_cast<size_t>(mapped_)); break;
    case Memory::kPinned: cuda::free_pinned(data_); break;
    case Memory::kDevice: cuda::free_device(data_); break;
  }
  g_allocated_bytes.fetch_sub(mapped_, std::memory_order_relaxed);
}

Buffer::Buffer(Buffer&& other) noexcept
    : name_(std::move(other.name_)),
      memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Tensor Buffer::tensor(DType dtype, const Shape& shape, int64_t byte_offset) const {
  const int64_t size = checked_mul(shape.numel(), dtype_size(dtype));
  TRIREME_CHECK(byte_offset >= 0 && checked_add(byte_offset, size) <= bytes_, "tensor ", shape,
                " at byte ", byte_offset, " leaves buffer ", name_, " of ", bytes_, " bytes");
  return Tensor(data_ + byte_offset, dtype, shape, device());
}

void Buffer::touch(int threads) const {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t page = 0; page < ceil_div(bytes_, kPage); ++page) {
    volatile std::byte* p = data_ + page * kPage;
    *p = *p;
  }
}

std::string ArenaPlan::table(int rows) const {
  std::vector<const ArenaBlock*> order;
  order.reserve(blocks.size());
  for (const ArenaBlock& b : blocks) order.push_back(&b);
  std::ranges::sort(order,
                    [](const ArenaBlock* a, const ArenaBlock* b) { return a->bytes > b->bytes; });
  std::string out = concat("planned activations and scratch: ", capacity, " bytes in ",
                           blocks.size(), " allocations; the largest:\n");
  for (int i = 0; i < rows && i < static_cast<int>(order.size()); ++i) {
    const ArenaBlock& b = *order[static_cast<size_t>(i)];
    out += concat("  ", b.bytes, " bytes  ", b.name, "\n");
  }
  return out;
}

namespace {

// Placed blocks of a plan by lifetime, so that a new one is compared only with those alive at the
// same time: a step of many micro-batches repeats the same few thousand blocks. Time is counted in
// births: block k of by_birth_ is born at k.
class PlacedArenaBlocks {
 public:
  explicit PlacedArenaBlocks(const std::vector<ArenaPlan::ArenaBlock>& blocks)
      : blocks_(blocks), by_birth_(blocks.size()), placed_(blocks.size(), false) {
    std::iota(by_birth_.begin(), by_birth_.end(), size_t{0});
    std::ranges::stable_sort(by_birth_, {}, [&](size_t i) { return blocks[i].born; });
    newest_.resize(2 * blocks.size(), kNone);
  }

  void add(size_t index) {
    placed_[index] = true;
    // The nodes of a segment tree over time that together cover the block's lifetime.
    size_t begin = births_before(blocks_[index].born) + blocks_.size();
    size_t end = births_before(blocks_[index].died) + blocks_.size();
    for (; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 == 1) push(begin++, index);
      if (end % 2 == 1) push(--end, index);
    }
  }

  // Every placed block whose lifetime overlaps that of `block`, once: it is alive when `block` is
  // born, or is born while `block` is alive.
  void alive_with(const ArenaPlan::ArenaBlock& block,
                  std::vector<const ArenaPlan::ArenaBlock*>& out) const {
    out.clear();
    const size_t birth = births_before(block.born);
    for (size_t node = birth + blocks_.size(); node > 0; node /= 2)
      for (size_t e = newest_[node]; e != kNone; e = entries_[e].older)
        out.push_back(&blocks_[entries_[e].block]);
    for (size_t k = birth; k < by_birth_.size(); ++k) {
      const ArenaPlan::ArenaBlock& other = blocks_[by_birth_[k]];
      if (other.born >= block.died) break;
      if (other.born > block.born && placed_[by_birth_[k]]) out.push_back(&other);
    }
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Entry {
    size_t block, older;  // older: the node's previous entry
  };

  size_t births_before(int64_t event) const {
    const auto at =
        std::ranges::lower_bound(by_birth_, event, {}, [&](size_t i) { return blocks_[i].born; });
    return static_cast<size_t>(at - by_birth_.begin());
  }

  void push(size_t node, size_t block) {
    entries_.push_back({block, newest_[node]});
    newest_[node] = entries_.size() - 1;
  }

  const std::vector<ArenaPlan::ArenaBlock>& blocks_;
  std::vector<size_t> by_birth_;
  std::vector<bool> placed_;
  std::vector<size_t> newest_;  // entry of each node; node n has the children 2n and 2n + 1
  std::vector<Entry> entries_;
};

}  // namespace

void pack_intervals(ArenaPlan& plan) {
  std::vector<size_t> order(plan.blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return plan.blocks[a].bytes > plan.blocks[b].bytes; });
  PlacedArenaBlocks placed(plan.blocks);
  std::vector<const ArenaPlan::ArenaBlock*> others;
  plan.capacity = 0;
  for (size_t index : order) {
    ArenaPlan::ArenaBlock& block = plan.blocks[index];
    int64_t offset = 0;
    placed.alive_with(block, others);
    std::ranges::sort(others, {}, &ArenaPlan::ArenaBlock::offset);
    for (const ArenaPlan::ArenaBlock* other : others) {
      if (offset + block.bytes <= other->offset) break;  // fits in the gap before `other`
      offset = std::max(offset, other->offset + other->bytes);
    }
    block.offset = offset;
    plan.capacity = std::max(plan.capacity, offset + block.bytes);
    placed.add(index);
  }
}

Activation::Activation(Activation&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)), index_(other.index_), view_(other.view_) {
  other.view_ = Tensor();
}

Activation& Activation::operator=(Activation&& other) noexcept {
  if (this != &other) {
    reset();
    arena_ = std::exchange(other.arena_, nullptr);
    index_ = other.index_;
    view_ = other.view_;
    other.view_ = Tensor();
  }
  return *this;
}

void Activation::reset() {
  if (arena_ != nullptr) std::exchange(arena_, nullptr)->release(index_);
  view_ = Tensor();
}

Arena::~Arena() = default;

void Arena::begin_planning() {
  TRIREME_CHECK(mode_ == Mode::kDirect && live_ == 0, "arena ", name_, " is in use");
  mode_ = Mode::kPlanning;
  recording_ = {};
  events_ = in_use_ = 0;
  first_ = next_;
}

ArenaPlan Arena::end_planning() {
  TRIREME_CHECK(mode_ == Mode::kPlanning, "arena ", name_, " is not planning");
  TRIREME_CHECK(live_ == 0, "arena ", name_, ": ", live_, " activations outlive the planned step");
  check_regions();
  mode_ = Mode::kDirect;
  pack_intervals(recording_);
  return std::move(recording_);
}

void Arena::reserve(int64_t bytes) {
  TRIREME_CHECK(live_ == 0, "arena ", name_, " is in use");
  if (bytes > block_.bytes()) block_ = Buffer(name_, bytes, memory_);
}

void Arena::begin_step(const ArenaPlan& plan) {
  TRIREME_CHECK(mode_ == Mode::kDirect && live_ == 0, "arena ", name_, " is in use");
  TRIREME_CHECK(plan.capacity <= block_.bytes(), "arena ", name_, " holds ", block_.bytes(),
                " bytes but the plan needs ", plan.capacity);
  mode_ = Mode::kPlanned;
  plan_ = &plan;
  events_ = in_use_ = 0;
  last_died_ = -1;
  first_ = next_;
}

void Arena::end_step() {
  TRIREME_CHECK(mode_ == Mode::kPlanned && live_ == 0, "arena ", name_, ": ", live_,
                " activations outlive the step");
  check_regions();
  TRIREME_CHECK(next_ - first_ == std::ssize(plan_->blocks), "arena ", name_, ": the step made ",
                next_ - first_, " allocations, the plan has ", plan_->blocks.size());
  mode_ = Mode::kDirect;
  plan_ = nullptr;
}

void Arena::abandon_step() {
  mode_ = Mode::kDirect;
  plan_ = nullptr;
  live_ = in_use_ = 0;
  first_ = next_;
  direct_.clear();
  region_open_ = region_leaked_ = false;
  region_.clear();
}

void Arena::skip(int64_t like, int64_t count) {
  TRIREME_CHECK(mode_ == Mode::kPlanned && live_ == 0, "arena ", name_, ": ", live_,
                " activations are alive where work runs again");
  const int64_t at = allocations();
  TRIREME_CHECK(at + count <= std::ssize(plan_->blocks), "arena ", name_, ": ", count,
                " allocations to skip from ", at, " on are beyond the plan");
  for (int64_t i = 0; i < count; ++i) {
    const ArenaPlan::ArenaBlock& block = plan_->blocks[static_cast<size_t>(at + i)];
    const ArenaPlan::ArenaBlock& made = plan_->blocks[static_cast<size_t>(like + i)];
    TRIREME_CHECK(block.bytes == made.bytes && block.died < events_ + 2 * count, "arena ", name_,
                  ": allocation ", at + i, " (", block.name, ") is not that of recorded work, ",
                  made.name);
    last_died_ = std::max(last_died_, block.died);
  }
  next_ += count;
  events_ += 2 * count;
}

void Arena::check_regions() const {
  TRIREME_CHECK(!region_open_ && !region_leaked_, "arena ", name_,
                ": a region is open, or closed before its activations were released");
}

Arena::Region::Region(Arena& arena, const char* name) {
  if (arena.mode_ == Mode::kDirect || arena.region_open_) return;
  if (arena.mode_ == Mode::kPlanning) {
    // The size is unknown until the region closes.
    block_ = arena.allocate(name, DType::kU8, Shape{1});
    arena.region_bytes_ = 0;
    arena.region_data_ = reinterpret_cast<std::byte*>(kFakeBase);
  } else {
    const int64_t k = arena.next_ - arena.first_;
    TRIREME_CHECK(k < std::ssize(arena.plan_->blocks), "arena ", arena.name_, ": region ", name,
                  " is beyond the plan");
    arena.region_bytes_ = arena.plan_->blocks[static_cast<size_t>(k)].bytes;
    block_ = arena.allocate(name, DType::kU8, Shape{arena.region_bytes_});
    arena.region_data_ = static_cast<std::byte*>(block_->raw());
  }
  arena_ = &arena;
  arena.region_open_ = true;
}

Arena::Region::~Region() {
  if (arena_ == nullptr || !arena_->region_open_) return;  // abandoned
  Arena& arena = *arena_;
  if (arena.mode_ == Mode::kPlanning) {
    ArenaPlan::ArenaBlock& block =
        arena.recording_.blocks[static_cast<size_t>(block_.index_ - arena.first_)];
    arena.in_use_ += std::max(block.bytes, arena.region_bytes_) - block.bytes;
    block.bytes = std::max(block.bytes, arena.region_bytes_);
  }
  arena.region_leaked_ = arena.region_leaked_ || !arena.region_.empty();
  arena.region_.clear();
  arena.region_open_ = false;
}

Activation Arena::allocate_in_region(const char* name, int64_t bytes, DType dtype,
                                     const Shape& shape) {
  const int64_t begin = region_.empty() ? 0 : region_.back().end;
  const int64_t end = checked_add(begin, bytes);
  if (mode_ == Mode::kPlanning) region_bytes_ = std::max(region_bytes_, end);
  TRIREME_CHECK(end <= region_bytes_, "arena ", name_, ": ", name, " of ", bytes,
                " bytes does not fit into the open region of ", region_bytes_);
  region_.push_back({region_next_++, end, true});
  void* const address = mode_ == Mode::kPlanning ? region_data_ : region_data_ + begin;
  return Activation(this, kRegionIndex + region_.back().index,
                    Tensor(address, dtype, shape, device()));
}

// A handle that is not found belonged to an abandoned step.
void Arena::release_in_region(int64_t index) {
  const auto at = std::ranges::lower_bound(region_, index, {}, &RegionBlock::index);
  if (at == region_.end() || at->index != index) return;
  at->live = false;
  while (!region_.empty() && !region_.back().live) region_.pop_back();
}

Activation Arena::allocate(const char* name, DType dtype, const Shape& shape) {
  const int64_t exact = std::max<int64_t>(1, checked_mul(shape.numel(), dtype_size(dtype)));
  const int64_t alignment = memory_ == Memory::kDevice ? kDeviceAlignment : kHostAlignment;
  const int64_t bytes = checked_add(exact, alignment - 1) / alignment * alignment;
  if (region_open_) return allocate_in_region(name, bytes, dtype, shape);
  const int64_t index = next_++;
  void* address = nullptr;
  switch (mode_) {
    case Mode::kDirect:
      address = direct_.emplace(index, Buffer(name, bytes, memory_)).first->second.data();
      break;
    case Mode::kPlanning:
      recording_.blocks.push_back({name, bytes, 0, events_++, -1});
      address = reinterpret_cast<void*>(kFakeBase);
      break;
    case Mode::kPlanned: {
      const int64_t k = index - first_;
      TRIREME_CHECK(k < std::ssize(plan_->blocks), "arena ", name_, ": allocation ", name,
                    " is beyond the plan");
      const ArenaPlan::ArenaBlock& block = plan_->blocks[static_cast<size_t>(k)];
      TRIREME_CHECK(bytes == block.bytes, "arena ", name_, ": allocation ", k, " is ", name, " of ",
                    bytes, " bytes, planned ", block.name, " of ", block.bytes);
      // As many releases as planned, none of them planned for later: the blocks alive are the same
      // as when the offset was chosen, so it overlaps none of them.
      TRIREME_CHECK(events_ == block.born && last_died_ < block.born, "arena ", name_,
                    ": before allocation ", k, " (", name,
                    ") other activations were released than ", "planned");
      ++events_;
      address = block_.data() + block.offset;
      break;
    }
  }
  ++live_;
  in_use_ += bytes;
  return Activation(this, index, Tensor(address, dtype, shape, device()));
}

void Arena::release(int64_t index) {
  if (index >= kRegionIndex) return release_in_region(index - kRegionIndex);
  if (index < first_) return;  // its step was abandoned
  --live_;
  switch (mode_) {
    case Mode::kDirect: {
      const auto at = direct_.find(index);
      in_use_ -= at->second.bytes();
      direct_.erase(at);
      break;
    }
    case Mode::kPlanning: {
      ArenaPlan::ArenaBlock& block = recording_.blocks[static_cast<size_t>(index - first_)];
      block.died = events_++;
      in_use_ -= block.bytes;
      break;
    }
    case Mode::kPlanned: {
      const ArenaPlan::ArenaBlock& block = plan_->blocks[static_cast<size_t>(index - first_)];
      last_died_ = std::max(last_died_, block.died);
      ++events_;
      in_use_ -= block.bytes;
      break;
    }
  }
}

}  // namespace trireme
