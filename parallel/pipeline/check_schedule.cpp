#include "parallel/pipeline/check_schedule.h"

#include "engine/core/error.h"
#include "parallel/pipeline/simulate.h"

namespace trireme {
namespace {

// Counts the instructions of one rank per (chunk, micro-batch), in execution order.
class RankCheck {
 public:
  RankCheck(const Schedule& schedule, const std::string& what, int rank)
      : schedule_(schedule),
        what_(what),
        rank_(rank),
        done_(static_cast<size_t>(schedule.chunks) * static_cast<size_t>(schedule.micro_batches)) {}

  void check() {
    const auto& order = schedule_.ranks[static_cast<size_t>(rank_)];
    for (size_t i = 0; i < order.size(); ++i) add(i, order[i]);
    for (int c = 0; c < schedule_.chunks; ++c)
      for (int m = 0; m < schedule_.micro_batches; ++m) finish(c, m);
  }

 private:
  enum : uint8_t { kForward = 1, kInput = 2, kWeight = 4, kAll = 7 };

  uint8_t& done(int chunk, int micro_batch) {
    return done_[static_cast<size_t>(chunk) * static_cast<size_t>(schedule_.micro_batches) +
                 static_cast<size_t>(micro_batch)];
  }

  void add(size_t index, const Instruction& in) {
    const auto fail = [&](const auto&... why) {
      fail_input(what_, ": rank ", rank_, ", instruction ", index, " (", in, "): ", why...);
    };
    if (in.chunk < 0 || in.chunk >= schedule_.chunks)
      fail("expected a chunk from 0 to ", schedule_.chunks - 1);
    if (in.micro_batch < 0 || in.micro_batch >= schedule_.micro_batches)
      fail("expected a micro-batch from 0 to ", schedule_.micro_batches - 1);
    uint8_t& seen = done(in.chunk, in.micro_batch);
    uint8_t needed = kForward, adds = kInput | kWeight;
    if (in.kind == InstructionKind::kForward) {
      needed = 0;
      adds = kForward;
    } else if (in.kind == InstructionKind::kBackwardInput) {
      adds = kInput;
    } else if (in.kind == InstructionKind::kBackwardWeight) {
      needed = kForward | kInput;
      adds = kWeight;
    }
    if (in.kind != InstructionKind::kForward && !schedule_.trains())
      fail("a forward-only schedule has no backward");
    if ((seen & adds) != 0) fail("it is a duplicate");
    if ((seen & needed) != needed)
      fail((needed & kInput) != 0 && (seen & kForward) != 0 ? "its backward_input comes later"
                                                            : "its forward comes later");
    seen |= adds;
  }

  void finish(int chunk, int micro_batch) {
    const uint8_t seen = done(chunk, micro_batch);
    const auto fail = [&](InstructionKind kind) {
      fail_input(what_, ": rank ", rank_, " never runs ", Instruction{kind, chunk, micro_batch});
    };
    if ((seen & kForward) == 0) fail(InstructionKind::kForward);
    if (!schedule_.trains() || seen == kAll) return;
    fail((seen & kInput) == 0 ? InstructionKind::kBackward : InstructionKind::kBackwardWeight);
  }

  const Schedule& schedule_;
  const std::string& what_;
  int rank_;
  std::vector<uint8_t> done_;
};

}  // namespace

void check_schedule(const Schedule& schedule, const std::string& what) {
  if (std::ssize(schedule.ranks) != schedule.stages)
    fail_input(what, ": instruction lists of ", schedule.ranks.size(), " ranks for ",
               schedule.stages, " stages");
  for (int r = 0; r < schedule.stages; ++r) RankCheck(schedule, what, r).check();
  simulate(schedule, {}, what);
}

}  // namespace trireme
