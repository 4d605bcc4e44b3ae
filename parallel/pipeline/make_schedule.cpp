#include "parallel/pipeline/make_schedule.h"

#include <array>

#include "engine/core/error.h"
#include "parallel/config_keys.h"
#include "parallel/pipeline/orders.h"
#include "parallel/pipeline/schedule_file.h"

namespace trireme {
namespace {

constexpr std::array kTrainingKinds = {ScheduleKind::kGPipe, ScheduleKind::k1F1B,
                                       ScheduleKind::kInterleaved, ScheduleKind::kZbH1,
                                       ScheduleKind::kZbH2};

void check_sizes(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  const std::string name = schedule_name(kind);
  const auto positive = [](const char* key, int value) {
    if (value < 1) fail_input(key, " is ", value, "; it must be at least 1");
  };
  positive(key::kPipeline, stages);
  positive(key::kVirtualStages, chunks);
  positive(key::kMicroBatches, micro_batches);
  if (int64_t{stages} * chunks > kMaxChunkVisits / micro_batches) {
    fail_input(key::kPipeline, " (", stages, ") x ", key::kVirtualStages, " (", chunks, ") x ",
               key::kMicroBatches, " (", micro_batches, ") is more than ", kMaxChunkVisits,
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
               "); change one of the two, or use \"1f1b\"",
               chunks > 1 ? concat(" and ", key::kVirtualStages, " 1") : "");
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

}  // namespace

Schedule make_schedule(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  check_sizes(kind, stages, chunks, micro_batches);
  Schedule schedule{kind, schedule_name(kind), stages, chunks, micro_batches, {}};
  for (int r = 0; r < stages; ++r)
    schedule.ranks.push_back(order_of(kind, stages, chunks, micro_batches, r));
  return schedule;
}

Schedule load_schedule(const std::string& schedule, int stages, int chunks, int micro_batches) {
  for (const ScheduleKind kind : kTrainingKinds)
    if (schedule == schedule_name(kind)) return make_schedule(kind, stages, chunks, micro_batches);
  if (schedule.find_first_of("/.") == std::string::npos) {
    fail_input(
        key::kSchedule, " \"", schedule,
        "\" is not supported; supported: gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_h2, and the "
        "path of a schedule file");
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

}  // namespace trireme
