#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "engine/core/memory.h"
#include "engine/core/random.h"

namespace trireme::test_memory {
namespace {

TEST(Buffer, IsZeroAlignedAndCounted) {
  const int64_t count = allocation_count(), bytes = allocated_bytes();
  {
    for (int64_t size : {int64_t{1}, int64_t{4096}, int64_t{5} << 20}) {
      const Buffer b("test", size);
      EXPECT_EQ(b.bytes(), size);
      EXPECT_GE(allocated_bytes(), bytes + size);
      const auto address = reinterpret_cast<uintptr_t>(b.data());
      EXPECT_EQ(address % (size >= (2 << 20) ? uintptr_t{2} << 20 : 4096u), 0u);
      b.touch(2);
      for (int64_t i = 0; i < size; i += 511) ASSERT_EQ(b.data()[i], std::byte{0});
      EXPECT_EQ(b.data()[size - 1], std::byte{0});
    }
  }
  EXPECT_EQ(allocation_count(), count + 3);
  EXPECT_EQ(allocated_bytes(), bytes);
}

TEST(Buffer, MovesItsBlock) {
  const int64_t bytes = allocated_bytes();
  {
    Buffer a("a", 100);
    std::byte* data = a.data();
    Buffer b(std::move(a));
    EXPECT_EQ(b.data(), data);
    Buffer c("c", 200);
    c = std::move(b);
    EXPECT_EQ(c.data(), data);
    EXPECT_EQ(c.name(), "a");
  }
  EXPECT_EQ(allocated_bytes(), bytes) << "freed once";
  EXPECT_EQ(Buffer("empty", 0).data(), nullptr);
}

TEST(Buffer, SaysWhatCouldNotBeHad) {
  EXPECT_THROW(Buffer("negative", -1), Error);
  try {
    const Buffer b("master weights", int64_t{1} << 60);
    FAIL() << "got an exabyte";
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("master weights"), std::string::npos) << what;
    EXPECT_NE(what.find(std::to_string(int64_t{1} << 60)), std::string::npos) << what;
  }
}

TEST(Buffer, TensorsStayInside) {
  const Buffer b("test", 64);
  EXPECT_EQ(b.tensor(DType::kF32, {16}).raw(), b.data());
  EXPECT_EQ(b.tensor(DType::kF32, {4}, 48).raw(), b.data() + 48);
  EXPECT_THROW(b.tensor(DType::kF32, {17}), Error);
  EXPECT_THROW(b.tensor(DType::kF32, {4}, 52), Error);
  EXPECT_THROW(b.tensor(DType::kF32, {4}, -4), Error);
  EXPECT_THROW(b.tensor(DType::kF32, {int64_t{1} << 62}), Error);
}

// A step with random sizes and lifetimes: at every point an activation is created or some are
// freed.
struct RandomStep {
  explicit RandomStep(uint64_t seed) : key{seed, 1} {}
  uint32_t draw(uint32_t limit) { return philox_word(key, next++) % limit; }
  RandomKey key;
  uint64_t next = 0;

  // Runs the step; calls `seen` with each new activation and those alive.
  template <class Seen>
  void run(Arena& arena, Seen&& seen) {
    next = 0;
    std::vector<Activation> alive;
    for (int event = 0; event < 120; ++event) {
      if (!alive.empty() && draw(5) < 2) {
        alive.erase(alive.begin() + draw(static_cast<uint32_t>(alive.size())));
      } else {
        const int64_t n = draw(10) == 0 ? 0 : 1 + draw(draw(2) == 0 ? 40 : 4000);
        alive.push_back(arena.allocate("activation", DType::kF32, {n}));
        seen(alive);
      }
    }
  }
};

// Brute force: every cache line of the arena that a live activation touches belongs to it alone.
void expect_disjoint(const std::vector<Activation>& alive, const std::byte* base,
                     int64_t capacity) {
  std::vector<char> owned(static_cast<size_t>(ceil_div(capacity, 64)), 0);
  for (const Activation& a : alive) {
    const int64_t begin = static_cast<const std::byte*>(a->raw()) - base;
    ASSERT_EQ(begin % 64, 0);
    ASSERT_GE(begin, 0);
    ASSERT_LE(begin + a->bytes(), capacity);
    for (int64_t line = begin / 64; line < ceil_div(begin + a->bytes(), 64); ++line) {
      ASSERT_EQ(owned[static_cast<size_t>(line)], 0) << "line " << line << " has two owners";
      owned[static_cast<size_t>(line)] = 1;
    }
  }
}

TEST(Arena, ReplayedActivationsNeverShareAByte) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RandomStep step(seed);
    Arena arena("test");
    arena.begin_planning();
    step.run(arena, [](const auto&) {});
    const ArenaPlan plan = arena.end_planning();
    arena.reserve(plan.capacity);
    const int64_t allocations = allocation_count();
    for (int round = 0; round < 2; ++round) {
      arena.begin_step(plan);
      // Address of the block: that of the activation at offset 0.
      std::optional<const std::byte*> base;
      size_t k = 0;
      step.run(arena, [&](const std::vector<Activation>& alive) {
        const auto* at = static_cast<const std::byte*>(alive.back()->raw());
        if (!base) base = at - plan.blocks[k].offset;
        ASSERT_EQ(at - *base, plan.blocks[k].offset);
        expect_disjoint(alive, *base, plan.capacity);
        ++k;
      });
      arena.end_step();
      EXPECT_EQ(k, plan.blocks.size());
      EXPECT_EQ(arena.in_use(), 0);
    }
    EXPECT_EQ(allocation_count(), allocations) << "a planned step took memory from the system";
  }
}

TEST(Arena, PackingIsNoWorseThanEverythingAtOnceAndNoBetterThanWhatIsAlive) {
  for (uint64_t seed = 100; seed < 120; ++seed) {
    RandomStep step(seed);
    Arena arena("test");
    arena.begin_planning();
    int64_t max_alive = 0;
    step.run(arena, [&](const auto&) { max_alive = std::max(max_alive, arena.in_use()); });
    const ArenaPlan plan = arena.end_planning();
    int64_t total = 0;
    for (const ArenaPlan::ArenaBlock& b : plan.blocks) total += b.bytes;
    EXPECT_GE(plan.capacity, max_alive);
    EXPECT_LE(plan.capacity, total);
    EXPECT_LE(plan.capacity, 2 * max_alive) << "fragmented";
  }
}

// A step of three equal parts and a different one; the allocations of the second and third part are
// skipped.
TEST(Arena, SkipsWhatRecordedWorkAllocated) {
  Arena arena("test");
  const auto part = [&](int64_t n) {
    const Activation first = arena.allocate("first", DType::kF32, Shape{n});
    const Activation second = arena.allocate("second", DType::kF32, Shape{2 * n});
  };
  const auto step = [&](const auto& middle) {
    part(64);
    middle();
    part(640);
  };
  arena.begin_planning();
  step([&] {
    part(64);
    part(64);
  });
  const ArenaPlan plan = arena.end_planning();
  arena.reserve(plan.capacity);
  arena.begin_step(plan);
  EXPECT_EQ(arena.allocations(), 0);
  step([&] {
    EXPECT_EQ(arena.allocations(), 2);
    arena.skip(0, 2);
    arena.skip(0, 2);
    EXPECT_EQ(arena.allocations(), 6);
  });
  arena.end_step();

  const auto refused = [&](const auto& work) {
    arena.begin_step(plan);
    EXPECT_THROW(work(), Error);
    arena.abandon_step();
  };
  refused([&] { arena.skip(6, 2); });  // other sizes
  refused([&] {
    part(64);
    arena.skip(0, 8);  // beyond the plan
  });
  refused([&] {
    part(64);
    arena.skip(0, 1);  // the skipped allocations are still alive
  });
  refused([&] {
    const Activation alive = arena.allocate("first", DType::kF32, Shape{64});
    arena.skip(0, 2);
  });
}

// Planned arena of the step: a (64 floats), b (32) while a is alive, then c (64) after a.
class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() : arena_("test") {
    arena_.begin_planning();
    Activation a = take("a", 64);
    Activation b = take("b", 32);
    a.reset();
    Activation c = take("c", 64);
    c.reset();
    b.reset();
    plan_ = arena_.end_planning();
    arena_.reserve(plan_.capacity);
    arena_.begin_step(plan_);
  }
  Activation take(const char* name, int64_t n) { return arena_.allocate(name, DType::kF32, {n}); }
  Arena arena_;
  ArenaPlan plan_;
};

TEST_F(ReplayTest, AcceptsTheSameStep) {
  Activation a = take("a", 64);
  Activation b = take("b", 32);
  EXPECT_EQ(arena_.in_use(), 64 * 4 + 32 * 4);
  const void* first = a->raw();
  a.reset();
  Activation c = take("c", 64);
  EXPECT_EQ(c->raw(), first) << "c takes a's place";
  c.reset();
  b.reset();
  arena_.end_step();
}

TEST_F(ReplayTest, RefusesAnotherSize) { EXPECT_THROW(take("a", 65), Error); }

TEST_F(ReplayTest, RefusesAnAllocationTooMany) {
  Activation a = take("a", 64);
  Activation b = take("b", 32);
  a.reset();
  take("c", 64).reset();
  b.reset();
  EXPECT_THROW(take("d", 1), Error);
}

TEST_F(ReplayTest, RefusesAnAllocationTooFew) {
  take("a", 64).reset();
  EXPECT_THROW(arena_.end_step(), Error);
}

TEST_F(ReplayTest, RefusesAReleaseThatCameTooLate) {
  const Activation a = take("a", 64);
  const Activation b = take("b", 32);
  // c was planned in a's memory, but a is alive: the two would share memory.
  EXPECT_THROW(take("c", 64), Error);
}

TEST_F(ReplayTest, RefusesAReleaseOfAnother) {
  const Activation a = take("a", 64);
  take("b", 32).reset();
  EXPECT_THROW(take("c", 64), Error);
}

TEST_F(ReplayTest, RefusesToEndWithLiveActivations) {
  Activation a = take("a", 64);
  const Activation b = take("b", 32);
  a.reset();
  const Activation c = take("c", 64);
  EXPECT_THROW(arena_.end_step(), Error);
}

TEST_F(ReplayTest, AnAbandonedStepLeavesNothingBehind) {
  Activation a = take("a", 64);
  const Activation b = take("b", 32);
  arena_.abandon_step();
  EXPECT_EQ(arena_.in_use(), 0);
  arena_.begin_step(plan_);
  Activation a2 = take("a", 64);
  a.reset();  // handle of the abandoned step: must not affect this one
  EXPECT_EQ(arena_.in_use(), 64 * 4);
  Activation b2 = take("b", 32);
  a2.reset();
  Activation c2 = take("c", 64);
  c2.reset();
  b2.reset();
  arena_.end_step();
}

// A step whose region makes `products` allocations of up to `bytes`, one after the other.
void step_with_region(Arena& arena, int products, int64_t bytes) {
  const Activation before = arena.allocate("before", DType::kU8, {64});
  {
    const Arena::Region region(arena, "region");
    const Activation held = arena.allocate("held", DType::kU8, {128});
    for (int k = 0; k < products; ++k) {
      const Arena::Region inner(arena, "inner");
      const Activation scratch = arena.allocate("scratch", DType::kU8, {bytes - k});
      if (!arena.planning()) std::memset(scratch->raw(), k, static_cast<size_t>(bytes - k));
    }
    if (!arena.planning()) std::memset(held->raw(), 1, 128);
  }
  const Activation after = arena.allocate("after", DType::kU8, {64});
}

TEST(ArenaRegion, AllocationsInsideAreFreeInNumber) {
  Arena arena("test");
  arena.begin_planning();
  step_with_region(arena, 1, 256);
  const ArenaPlan plan = arena.end_planning();
  ASSERT_EQ(std::ssize(plan.blocks), 3);
  EXPECT_EQ(plan.blocks[1].bytes, 128 + 256);
  EXPECT_EQ(plan.capacity, 64 + 128 + 256);
  arena.reserve(plan.capacity);
  const int64_t count = allocation_count();
  for (int products : {0, 1, 5}) {
    arena.begin_step(plan);
    step_with_region(arena, products, 256);
    EXPECT_EQ(arena.in_use(), 0);
    arena.end_step();
  }
  EXPECT_EQ(allocation_count(), count);
  arena.begin_step(plan);
  EXPECT_THROW(step_with_region(arena, 1, 257), Error) << "more than was planned";
  arena.abandon_step();
  step_with_region(arena, 3, 1000);  // direct
  EXPECT_EQ(arena.in_use(), 0);
}

TEST(ArenaRegion, MemoryComesBackInAnyOrder) {
  Arena arena("test");
  const auto step = [&] {
    const Arena::Region region(arena, "region");
    Activation a = arena.allocate("a", DType::kU8, {64});
    Activation b = arena.allocate("b", DType::kU8, {64});
    if (!arena.planning()) {
      EXPECT_EQ(static_cast<std::byte*>(b->raw()) - static_cast<std::byte*>(a->raw()), 64);
    }
    a.reset();  // kept until b is freed
    Activation c = arena.allocate("c", DType::kU8, {64});
    b.reset();
    c.reset();
    const Activation d = arena.allocate("d", DType::kU8, {192});
  };
  arena.begin_planning();
  step();
  const ArenaPlan plan = arena.end_planning();
  EXPECT_EQ(plan.capacity, 192);
  arena.reserve(plan.capacity);
  arena.begin_step(plan);
  step();
  arena.end_step();
}

TEST(ArenaRegion, NothingMayOutliveItsRegion) {
  Arena arena("test");
  arena.begin_planning();
  Activation kept;
  {
    const Arena::Region region(arena, "region");
    kept = arena.allocate("kept", DType::kU8, {64});
  }
  kept.reset();
  EXPECT_THROW(arena.end_planning(), Error);
}

// Offsets by definition: largest first, each at the lowest address that is free during its
// lifetime.
int64_t packed_by_definition(ArenaPlan plan) {
  std::vector<size_t> order(plan.blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return plan.blocks[a].bytes > plan.blocks[b].bytes; });
  std::vector<const ArenaPlan::ArenaBlock*> placed;
  int64_t capacity = 0;
  for (const size_t index : order) {
    ArenaPlan::ArenaBlock& block = plan.blocks[index];
    std::ranges::stable_sort(placed, {}, &ArenaPlan::ArenaBlock::offset);
    block.offset = 0;
    for (const ArenaPlan::ArenaBlock* other : placed) {
      if (block.born >= other->died || other->born >= block.died) continue;
      if (block.offset + block.bytes <= other->offset) break;
      block.offset = std::max(block.offset, other->offset + other->bytes);
    }
    capacity = std::max(capacity, block.offset + block.bytes);
    placed.push_back(&block);
  }
  return capacity;
}

// `passes` equal micro-batches of random lifetimes, after one block that lives through all of them.
ArenaPlan plan_of_passes(int64_t passes, int64_t blocks, uint64_t seed) {
  ArenaPlan plan;
  const int64_t events = 2 * blocks;
  plan.blocks.push_back({"whole step", 640, 0, 0, passes * events + 1});
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (int64_t b = 0; b < blocks; ++b) {
      const auto draw = [&](uint64_t n, int64_t below) {
        const uint64_t word = philox_word({seed, n}, static_cast<uint64_t>(b));
        return static_cast<int64_t>(word % static_cast<uint64_t>(below));
      };
      const int64_t born = 1 + draw(0, events - 1), died = born + 1 + draw(1, events - born);
      const int64_t begin = pass * events;
      plan.blocks.push_back({"block", 64 * (1 + draw(2, 50)), 0, begin + born, begin + died});
    }
  }
  return plan;
}

TEST(PackIntervals, PlacesWhereTheDefinitionDoes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ArenaPlan plan = plan_of_passes(3, 25, seed);
    const int64_t expected = packed_by_definition(plan);
    pack_intervals(plan);
    EXPECT_EQ(plan.capacity, expected) << seed;
    for (const ArenaPlan::ArenaBlock& a : plan.blocks)
      for (const ArenaPlan::ArenaBlock& b : plan.blocks) {
        const bool together = a.born < b.died && b.born < a.died;
        const bool share = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        ASSERT_FALSE(&a != &b && together && share) << seed;
      }
  }
}

// Comparing every pair of blocks would take minutes here.
TEST(PackIntervals, ManyMicroBatchesCostWhatTheyAre) {
  ArenaPlan one = plan_of_passes(1, 60, 1), many = plan_of_passes(3000, 60, 1);
  pack_intervals(one);
  pack_intervals(many);
  EXPECT_EQ(many.capacity, one.capacity);
}

TEST(Arena, RefusesWhatDoesNotFitItsBlock) {
  Arena arena("test");
  ArenaPlan plan;
  plan.capacity = 64;
  EXPECT_THROW(arena.begin_step(plan), Error);
  arena.reserve(64);
  arena.begin_step(plan);
  EXPECT_THROW(arena.begin_step(plan), Error) << "a step within a step";
  EXPECT_THROW(arena.begin_planning(), Error);
  arena.end_step();
  EXPECT_THROW(arena.end_step(), Error);
}

TEST(Arena, PlanningGivesNoMemory) {
  Arena arena("test");
  arena.begin_planning();
  const int64_t bytes = allocated_bytes();
  {
    const Activation a = arena.allocate("a", DType::kF32, {int64_t{1} << 50});
    EXPECT_TRUE(arena.planning());
    EXPECT_EQ(allocated_bytes(), bytes);
    EXPECT_EQ(a->slice(0, 5, 9).numel(), 4);
    EXPECT_THROW((void)arena.allocate("huge", DType::kF64, {int64_t{1} << 61}), Error);
  }
  const ArenaPlan plan = arena.end_planning();
  EXPECT_EQ(plan.capacity, int64_t{1} << 52);
  EXPECT_NE(plan.table().find(std::to_string(int64_t{1} << 52)), std::string::npos);
}

TEST(Arena, DirectActivationsAreFreedWhenReset) {
  Arena arena("test");
  const int64_t bytes = allocated_bytes();
  {
    Activation a = arena.allocate("a", DType::kF32, {100});
    std::memset(a->raw(), 1, 400);
    Activation b = std::move(a);
    EXPECT_FALSE(a.present());  // NOLINT: that a moved-from handle is empty is what is tested
    EXPECT_TRUE(b.present());
    Activation c = arena.allocate("c", DType::kF32, {100});
    c = std::move(b);
    EXPECT_EQ(arena.in_use(), 448) << "assignment releases what was held";
  }
  EXPECT_EQ(arena.in_use(), 0);
  EXPECT_EQ(allocated_bytes(), bytes);
}

}  // namespace
}  // namespace trireme::test_memory
