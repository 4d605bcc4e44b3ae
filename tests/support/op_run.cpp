#include "tests/support/op_run.h"

#include <cstring>

namespace trireme::test {

std::vector<Isa> supported_isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kPortable})
    if (has_isa(isa)) out.push_back(isa);
  return out;
}

void for_each_kernel(const std::function<std::vector<TestTensor>(Ctx&)>& run) {
  const Isa before = active_isa();
  for (Isa isa : supported_isas()) {
    set_active_isa(isa);
    std::vector<TestTensor> single;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(concat(isa_name(isa), ", threads ", threads));
      Ctx ctx(threads, "test");
      std::vector<TestTensor> outputs = run(ctx);
      EXPECT_FALSE(outputs.empty()) << "nothing to compare";
      EXPECT_EQ(ctx.arena.in_use(), 0) << "scratch was not given back";
      for (const TestTensor& t : outputs) EXPECT_TRUE(t.guards_intact());
      for (size_t i = 0; i < single.size(); ++i) EXPECT_SAME_BITS(*outputs[i], *single[i]);
      if (threads == 1) single = std::move(outputs);
    }
  }
  set_active_isa(before);
}

ArenaPlan expect_plannable(const std::function<void(Ctx&)>& op,
                           const std::vector<const TestTensor*>& outputs) {
  const auto bytes_of = [](const TestTensor& t) {
    const auto* begin = static_cast<const std::byte*>(t->raw());
    return std::vector<std::byte>(begin, begin + t->bytes());
  };
  std::vector<std::vector<std::byte>> before;
  for (const TestTensor* t : outputs) before.push_back(bytes_of(*t));
  Ctx ctx(2, "planning");
  ctx.arena.begin_planning();
  op(ctx);
  ArenaPlan plan = ctx.arena.end_planning();
  for (size_t i = 0; i < outputs.size(); ++i)
    EXPECT_EQ(bytes_of(*outputs[i]), before[i]) << "a planning run wrote to output " << i;
  return plan;
}

}  // namespace trireme::test
