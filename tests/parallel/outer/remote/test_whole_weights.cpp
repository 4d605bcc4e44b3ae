// Memory of the whole weights of a site, and their exchange with the pieces of its ranks.
#include "parallel/outer/remote/whole_weights.h"
#include "tests/parallel/outer/remote/site_run.h"

namespace trireme::test::test_whole_weights {
namespace {

constexpr int64_t kPage = 4096, kRows = 256, kColumns = 512;

// Matrices beside which the rounding to pages is small.
ParameterList large_layers() {
  ParameterList list;
  for (int layer = 0; layer < kSiteLayers; ++layer)
    list.add({.name = concat("model.layers.", layer, ".mlp.up_proj.weight"),
              .shape = {kRows, kColumns},
              .block = layer});
  return list;
}

std::unique_ptr<WholeModel> large_model(const OuterConfig& config, OuterState::Holder holder) {
  return std::make_unique<WholeModel>(config, large_layers(), DType::kF64, kSiteLayers, kSiteSeed,
                                      holder);
}

// Expects that buffers of `bytes` bytes have been allocated, each of them in whole pages.
void expect_allocated(int64_t bytes, int64_t held, int64_t count) {
  EXPECT_GT(bytes, 8 * kRows * kColumns);
  EXPECT_GE(allocated_bytes() - held, bytes);
  EXPECT_LT(allocated_bytes() - held, bytes + kPage * (allocation_count() - count));
}

TEST(WholeModel, AllocatesTheBytesThatItReports) {
  for (const auto holder : {OuterState::kSender, OuterState::kHub})
    for (const char* method : {"quantize", "top_k", "powersgd"}) {
      OuterConfig config = remote_config(2, 2);
      config.compression.options = {.method = method, .bits = 8, .block = 16};
      const int64_t held = allocated_bytes(), count = allocation_count();
      const auto model = large_model(config, holder);
      const int64_t bytes = model->bytes();
      EXPECT_EQ(allocated_bytes(), held) << "it is a plan";
      model->allocate();
      EXPECT_EQ(model->bytes(), bytes);
      expect_allocated(bytes, held, count);
    }
}

// Expects that each element of the updates is its index.
void expect_counted(const WholeModel& model) {
  model.for_each(0, [](const OuterState::Unit& unit) {
    const std::vector<double> values = to_doubles(unit.update);
    for (int64_t i = 0; i < kRows * kColumns; ++i)
      EXPECT_EQ(values[static_cast<size_t>(i)], static_cast<double>(unit.range.begin + i));
  });
}

TEST(WholeWeights, AllocatesTheBytesThatItReports) {
  const OuterConfig config = remote_config(2);
  run_threads(2, [&](Communicator& world) {
    const Groups groups(world, {.dp = 2});
    Ctx ctx(1, "test");
    ParameterStore store(large_layers(), DType::kF64);
    store.allocate(ctx, true);
    OuterState pieces(config, store, groups.layout, {}, kSiteLayers, false, kSiteSeed,
                      OuterState::kRemoteSite);
    pieces.allocate(ctx);
    for (const auto& unit : pieces.units())
      for (int64_t i = 0; i < unit->piece.size(); ++i)
        unit->shared.as<double>()[i] = static_cast<double>(unit->piece.begin + i);
    std::unique_ptr<WholeModel> whole;
    if (world.rank() == 0) {
      whole = large_model(config, OuterState::kSender);
      whole->allocate();
    }
    world.barrier();
    const int64_t held = allocated_bytes(), count = allocation_count();
    WholeWeights weights(world, pieces, store, whole.get(), ctx);
    world.barrier();
    EXPECT_EQ(allocated_bytes(), held) << "it is a plan";
    const int64_t bytes = world.all_reduce_scalar(pieces.message_bytes, ReduceOp::kSum);
    weights.allocate();
    world.barrier();
    if (world.rank() == 0) expect_allocated(bytes, held, count);
    world.barrier();
    weights.gather(0, &OuterState::Unit::update, &OuterState::Unit::shared);
    if (whole != nullptr) expect_counted(*whole);
  });
}

}  // namespace
}  // namespace trireme::test::test_whole_weights
