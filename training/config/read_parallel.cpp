#include "training/config/read_parallel.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "parallel/config_keys.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/schedule_file.h"
#include "transformer/model/model_layout.h"
#include "transformer/model/stages.h"

namespace trireme {
namespace {

// Reads the list of layer counts; empty for "auto".
std::vector<int64_t> read_counts(const ConfigValues& values, ConfigReport& report) {
  std::vector<int64_t> counts;
  if (values.is_auto(key::kStageLayers)) return counts;
  const Json& list = values.raw(key::kStageLayers);
  const bool numbers =
      list.is_array() && !list.empty() && std::ranges::all_of(list, [](const Json& n) {
        return n.is_number_integer() && n.get<int64_t>() >= 0 && n.get<int64_t>() < (1 << 20);
      });
  if (!numbers) {
    report.error(values.spelled(key::kStageLayers),
                 "expected a list of layer counts, such as [3, 4, 4, 3]");
    return counts;
  }
  for (const Json& n : list) counts.push_back(n.get<int64_t>());
  return counts;
}

// Checks the schedule for the run's sizes. Precondition: there are no more chunks than layers.
void check_schedule_sizes(const ConfigValues& values, const RunConfig& config,
                          ConfigReport& report) {
  constexpr int64_t kMaxOperations = 1 << 26;  // a schedule is a list of its operations
  const int64_t chunks = int64_t{config.parallel.pp} * config.pipeline.virtual_stages;
  if (chunks > kMaxOperations / config.gradient_accumulation_steps) {
    report.error(values.spelled(key::kPipeline),
                 concat(chunks, " pipeline chunks x ", config.gradient_accumulation_steps,
                        " micro-batches are more than ", kMaxOperations, " passes in one step"));
    return;
  }
  try {
    load_schedule(config.pipeline.schedule, config.parallel.pp,
                  static_cast<int>(config.pipeline.virtual_stages),
                  static_cast<int>(config.gradient_accumulation_steps));
  } catch (const InputError& e) {
    report.error(values.spelled(key::kSchedule), e.what());
  }
}

// Checks the schedule without the run's sizes, if those have errors, so that all errors of a
// configuration are reported at once.
void check_schedule_name(const ConfigValues& values, const RunConfig& config,
                         ConfigReport& report) {
  const std::string& schedule = config.pipeline.schedule;
  const bool file = schedule.find_first_of("/.") != std::string::npos;
  try {
    if (file)
      read_schedule_file(schedule);
    else
      load_schedule(schedule, 1, 1, 1);
  } catch (const InputError& e) {
    report.error(values.spelled(key::kSchedule), e.what());
  }
}

// Reads the context-parallel communication; sets how many ranks exchange heads (Ulysses).
void read_context(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  ParallelSizes& sizes = config.parallel;
  config.cp_comm_type = parse_context_comm_type(values.word(key::kContextType));
  sizes.cp_balance = parse_context_balance(values.word(key::kContextBalance));
  const int64_t heads = config.model.num_heads;
  if (heads == 0 || sizes.tp < 1 || sizes.cp < 1 || heads % sizes.tp != 0)
    return;  // reported elsewhere
  const UlyssesRanks ulysses =
      resolve_ulysses(config.model, config.cp_comm_type, sizes.cp, sizes.tp);
  if (ulysses.ranks == 0)
    report.error(values.spelled(key::kContextType),
                 concat(ulysses.problem, ": use \"p2p\", or another ", key::kContext));
  else
    sizes.cp_ulysses = ulysses.ranks;
}

// Advice for a resolved configuration, which fixes the number of ranks twice: by dp and by the
// batch sizes.
std::string way_out(const ConfigValues& values, const LayoutProblem& problem) {
  if (problem.key != key::kTensor || values.is_auto(key::kData)) return "";
  return concat(", or let the number of ranks follow: --set ", key::kData,
                "=auto --set gradient_accumulation_steps=auto");
}

bool by_replicate_degree(const std::string& spelled) {
  return spelled.ends_with("data_parallel_replicate_degree");
}

// Reads the number of data-parallel ranks, which TorchTitan sets by two degrees. 0: not set; the
// other sizes determine it.
int read_data_ranks(const ConfigValues& values, ConfigReport& report) {
  const auto ranks = values.is_auto(key::kData) ? 0 : static_cast<int>(values.integer(key::kData));
  const auto shard = static_cast<int>(values.integer(key::kDataShard));
  if (!values.given(key::kDataShard) || shard == 1) return ranks;
  const bool replicas = ranks > 0 && by_replicate_degree(values.spelled(key::kData));
  if (shard == 0) {
    report.error(values.spelled(key::kDataShard), "expected -1 or at least 1, got 0");
  } else if (replicas && ranks > 1) {
    report.error(values.spelled(key::kDataShard),
                 concat(shard, " with ", values.spelled(key::kData), " ", ranks,
                        " shards over a part of the data-parallel ranks, which is not supported; "
                        "supported: -1 and 1 (shard over all of them), or 1 (no sharding)"));
  } else if (shard > 1 && !replicas && ranks > 0 && ranks != shard) {
    report.error(values.spelled(key::kDataShard),
                 concat(shard, " differs from ", values.spelled(key::kData), " ", ranks));
  } else if (shard > 1) {
    return shard;
  }
  return replicas ? 0 : ranks;
}

// True if DeepSpeed's and TorchTitan's switch is off, so that their expert size has no effect.
bool experts_switched_off(const ConfigValues& values) {
  return values.given(key::kAutoExpert) && !values.flag(key::kAutoExpert) &&
         values.spelled(key::kExpert) == key::kAutoExpertSize;
}

}  // namespace

void read_parallel(const ConfigValues& values, int world_size, RunConfig& config,
                   ConfigReport& report) {
  ParallelSizes& sizes = config.parallel;
  const auto size = [&](const char* key) { return static_cast<int>(values.integer(key)); };
  sizes.tp = size(key::kTensor);
  sizes.pp = size(key::kPipeline);
  sizes.cp = size(key::kContext);
  sizes.ep = experts_switched_off(values) ? 1 : size(key::kExpert);
  sizes.etp = size(key::kExpertTensor);
  sizes.order = values.word(key::kOrder);
  sizes.sequence_parallel = values.flag(key::kSequence);
  if (sizes.sequence_parallel && sizes.tp == 1)
    report.note(values.spelled(key::kSequence),
                concat("has no effect: it needs ", key::kTensor, " above 1"));
  const auto overlap = [&](const char* key) {
    if (values.is_auto(key)) return Overlap::kAuto;
    return values.flag(key) ? Overlap::kOn : Overlap::kOff;
  };
  sizes.tp_comm_overlap = overlap(key::kTensorOverlap);
  sizes.moe_shared_overlap = overlap(key::kSharedOverlap);
  read_context(values, config, report);
  // At most 2^60, since the schema limits each to 2^20. An invalid size is reported and read as 1.
  const int64_t model = int64_t{sizes.tp} * sizes.pp * sizes.cp;
  const int data_ranks = read_data_ranks(values, report);
  if (data_ranks > 0) {
    sizes.dp = data_ranks;
  } else if (world_size % model != 0) {
    report.error(values.spelled(key::kTensor),
                 concat("tp ", sizes.tp, " x pp ", sizes.pp, " x cp ", sizes.cp, " = ", model,
                        " does not divide the ", world_size, " ranks of ",
                        config.outer.enabled() ? "a site" : "the run"));
    return;
  } else {
    sizes.dp = static_cast<int>(world_size / model);
  }
  for (const LayoutProblem& problem : layout_problems(sizes, world_size))
    report.error(values.spelled(problem.key), concat(problem.text, way_out(values, problem)));
  config.pipeline.virtual_stages = size(key::kVirtualStages);
  config.pipeline.schedule = values.word(key::kSchedule);
  config.pipeline.layers = read_counts(values, report);
}

namespace {

// Reads the ranks that divide a second copy of the weights, which must divide the ranks that have
// the same weights.
void read_copies(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  constexpr const char* kCopies = "zero_optimization.zero_hpz_partition_size";
  const auto copies = static_cast<int>(values.integer(kCopies));
  config.zero.copy_ranks = copies;
  if (copies == 1) return;
  const auto refuse = [&](const std::string& reason) {
    report.error(values.spelled(kCopies), reason);
  };
  const ParallelSizes& sizes = config.parallel;
  const int ranks = sizes.dp * sizes.cp;
  if (config.zero.stage != 3)
    refuse(concat("needs zero_optimization.stage 3, got ", config.zero.stage));
  else if (ranks % copies != 0)
    refuse(concat(copies, " must divide the ", ranks, " ranks with the same weights"));
  else if (sizes.ep * sizes.etp > 1)
    refuse(concat(copies, " is not supported with divided experts, whose copies would be on ",
                  "several nodes; set ", key::kExpert, " and ", key::kExpertTensor,
                  " to 1, or zero_hpz_partition_size to 1"));
}

}  // namespace

void read_zero(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  constexpr const char* kStage = "zero_optimization.stage";
  constexpr const char* kStrategy = "data_parallel_sharding_strategy";
  constexpr const char* kDistributed = "use_distributed_optimizer";
  const std::string offload = "zero_optimization.offload_optimizer.";
  const std::vector<std::string> strategies{"no_shard", "optim", "optim_grads",
                                            "optim_grads_params"};
  const auto strategy =
      static_cast<int>(std::ranges::find(strategies, values.word(kStrategy)) - strategies.begin());
  ZeroConfig& zero = config.zero;
  zero.stage = values.given(kStage) ? static_cast<int>(values.integer(kStage)) : strategy;
  if (values.given(kStrategy) && zero.stage != strategy)
    report.error(values.spelled(kStrategy),
                 concat(values.word(kStrategy), " means ", kStage, " ", strategy, ", but ",
                        values.spelled(kStage), " is ", zero.stage));
  if (values.flag(kDistributed) && zero.stage == 0) {
    if (values.given(kStage) || values.given(kStrategy))
      report.error(
          values.spelled(kDistributed),
          concat("shards the optimizer state, but ",
                 values.spelled(values.given(kStage) ? kStage : kStrategy), " disables sharding"));
    zero.stage = 1;
  }
  const bool sharded = values.given(key::kDataShard) && values.integer(key::kDataShard) != 1;
  if (sharded && values.given(kStage) && zero.stage != 3)
    report.error(values.spelled(key::kDataShard),
                 concat("shards the weights, but ", values.spelled(kStage), " is ", zero.stage));
  if (sharded) zero.stage = 3;
  if (values.word("zero_optimization.offload_param.device") == "cpu")
    report.note(values.spelled("zero_optimization.offload_param.device"),
                "has no effect: weights stay in the memory of the compute device; on a GPU, more "
                "ranks or another layout need less memory per rank");
  zero.prefetch = values.flag("zero_optimization.stage3_prefetch");
  read_copies(values, config, report);
  OffloadConfig& out = zero.offload_optimizer;
  const std::string device = values.word(offload + "device");
  out.device = device == "cpu"    ? OffloadDevice::kCpu
               : device == "nvme" ? OffloadDevice::kFile
                                  : OffloadDevice::kNone;
  out.path = values.word(offload + "nvme_path");
  out.buffer_count = values.integer(offload + "buffer_count");
  out.buffer_elements = values.integer(offload + "buffer_size");
  if (out.device == OffloadDevice::kFile && out.path.empty())
    report.error(values.spelled(offload + "device"),
                 concat("nvme needs ", offload, "nvme_path, a folder on a disk"));
}

void check_layout(const ConfigValues& values, const RunConfig& config, ConfigReport& report) {
  for (const LayoutProblem& problem : model_layout_problems(config.model, config.parallel))
    report.error(values.spelled(problem.key), problem.text);
  if (values.flag(key::kAutoExpert) && config.model.num_layers > 0 && config.model.moe.experts == 0)
    report.error(values.spelled(key::kAutoExpert), "true, but the model has no experts");
  const int64_t chunks = int64_t{config.parallel.pp} * config.pipeline.virtual_stages;
  if (config.model.num_layers == 0 || config.gradient_accumulation_steps == 0)
    return check_schedule_name(values, config, report);
  const std::string problem =
      stage_problem(config.model.num_layers, chunks, config.pipeline.layers);
  if (problem.empty()) check_schedule_sizes(values, config, report);
  if (!problem.empty()) check_schedule_name(values, config, report);
  if (!problem.empty())
    report.error(
        values.spelled(config.pipeline.layers.empty() ? key::kPipeline : key::kStageLayers),
        problem);
}

}  // namespace trireme
