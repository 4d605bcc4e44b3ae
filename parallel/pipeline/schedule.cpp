#include "parallel/pipeline/schedule.h"

#include <array>

#include "engine/core/error.h"
#include "parallel/config_keys.h"
#include "parallel/pipeline/orders.h"
#include "parallel/pipeline/simulate.h"

namespace trireme {
namespace {

constexpr std::array<const char*, 7> kNames = {"forward_only", "gpipe", "1f1b",  "interleaved_1f1b",
                                               "zb_h1",        "zb_h2", "custom"};

void check_sizes(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  const std::string name = schedule_name(kind);
  const auto positive = [](const char* key, int value) {
    if (value < 1) fail_input(key, " is ", value, "; it must be at least 1");
  };
  positive(key::kPipeline, stages);
  positive(key::kVirtualStages, chunks);
  positive(key::kMicroBatches, micro_batches);
  if (int64_t{stages} * chunks > kMostChunkVisits / micro_batches) {
    fail_input(key::kPipeline, " (", stages, ") x ", key::kVirtualStages, " (", chunks, ") x ",
               key::kMicroBatches, " (", micro_batches, ") is more than ", kMostChunkVisits,
               ", the largest schedule; use larger micro-batches");
  }
  const bool many_chunks = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kForwardOnly;
  if (chunks > 1 && !many_chunks) {
    fail_input(key::kSchedule, " \"", name, "\" has one chunk of layers per rank, but ",
               key::kVirtualStages, " is ", chunks, "; use \"interleaved_1f1b\", or ",
               key::kVirtualStages, " 1");
  }
  if (kind == ScheduleKind::kInterleaved && micro_batches % stages != 0) {
    fail_input(key::kSchedule, " \"", name, "\" needs ", key::kMicroBatches, " (", micro_batches,
               ") to be a multiple of ", key::kPipeline, " (", stages,
               "); change one of the two, or use \"1f1b\"");
  }
}

Order order_of(ScheduleKind kind, int stages, int chunks, int micro_batches, int rank) {
  switch (kind) {
    case ScheduleKind::kForwardOnly: return forward_only_order(stages, chunks, micro_batches);
    case ScheduleKind::kGPipe: return gpipe_order(micro_batches);
    case ScheduleKind::k1F1B: return one_f_one_b_order(stages, micro_batches, rank);
    case ScheduleKind::kInterleaved: return interleaved_order(stages, chunks, micro_batches, rank);
    case ScheduleKind::kZbH1: return zero_bubble_order(stages, micro_batches, rank, 1);
    case ScheduleKind::kZbH2: return zero_bubble_order(stages, micro_batches, rank, 2);
    case ScheduleKind::kCustom: break;
  }
  TRIREME_UNREACHABLE("no order of schedule kind ", static_cast<int>(kind));
}

// Counts what one rank does to one (chunk, micro-batch), in the order in which it does it.
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
      fail("chunks are 0 to ", schedule_.chunks - 1);
    if (in.micro_batch < 0 || in.micro_batch >= schedule_.micro_batches)
      fail("micro-batches are 0 to ", schedule_.micro_batches - 1);
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
    if ((seen & adds) != 0) fail("it was done before");
    if ((seen & needed) != needed)
      fail((needed & kInput) != 0 && (seen & kForward) != 0 ? "its backward_input comes later"
                                                            : "its forward comes later");
    seen |= adds;
  }

  void finish(int chunk, int micro_batch) {
    const uint8_t seen = done(chunk, micro_batch);
    const auto fail = [&](InstructionKind kind) {
      fail_input(what_, ": rank ", rank_, " never does ", Instruction{kind, chunk, micro_batch});
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

const char* instruction_name(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kForward: return "forward";
    case InstructionKind::kBackward: return "backward";
    case InstructionKind::kBackwardInput: return "backward_input";
    case InstructionKind::kBackwardWeight: return "backward_weight";
  }
  TRIREME_UNREACHABLE("instruction kind ", static_cast<int>(kind));
}

std::string text(const Instruction& in) {
  return concat(instruction_name(in.kind), " of chunk ", in.chunk, ", micro-batch ",
                in.micro_batch);
}

const char* schedule_name(ScheduleKind kind) { return kNames.at(static_cast<size_t>(kind)); }

Schedule make_schedule(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  check_sizes(kind, stages, chunks, micro_batches);
  Schedule schedule{kind, schedule_name(kind), stages, chunks, micro_batches, {}};
  for (int r = 0; r < stages; ++r)
    schedule.ranks.push_back(order_of(kind, stages, chunks, micro_batches, r));
  return schedule;
}

Schedule load_schedule(const std::string& schedule, int stages, int chunks, int micro_batches) {
  for (size_t k = 1; k + 1 < kNames.size(); ++k)
    if (schedule == kNames[k])
      return make_schedule(static_cast<ScheduleKind>(k), stages, chunks, micro_batches);
  if (schedule.find_first_of("/.") == std::string::npos) {
    fail_input(key::kSchedule, " \"", schedule,
               "\" is not one of gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_h2, nor the path of a "
               "schedule file");
  }
  Schedule custom = read_schedule_file(schedule);
  const auto compare = [&](const char* key, const char* member, int wanted, int found) {
    if (wanted != found) {
      fail_input(schedule, ": \"", member, "\" is ", found, ", but ", key, " is ", wanted,
                 "; change one of the two");
    }
  };
  compare(key::kPipeline, "stages", stages, custom.stages);
  compare(key::kVirtualStages, "chunks", chunks, custom.chunks);
  compare(key::kMicroBatches, "micro_batches", micro_batches, custom.micro_batches);
  return custom;
}

void check_schedule(const Schedule& schedule, const std::string& what) {
  if (std::ssize(schedule.ranks) != schedule.stages)
    fail_input(what, ": orders of ", schedule.ranks.size(), " ranks for ", schedule.stages,
               " stages");
  for (int r = 0; r < schedule.stages; ++r) RankCheck(schedule, what, r).check();
  simulate(schedule, {}, what);
}

}  // namespace trireme
