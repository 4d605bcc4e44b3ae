// Keys of the parallel layout and of ZeRO.
#include "parallel/config_keys.h"
#include "parallel/context/options.h"
#include "training/config/run_schema.h"

namespace trireme {
namespace {

constexpr double kMaxRanks = 1 << 20;

Key& size(Schema& s, const char* name, const char* help) {
  return s.integer(name, "1", help).at_least(1).at_most(kMaxRanks).off_trajectory();
}

void add_zero_keys(Schema& s) {
  s.section(
      "zero_optimization",
      "ZeRO: the ranks with the same parameters (dp x cp) shard optimizer state, gradients and "
      "weights, in every layout (docs/design/zero.md).");
  s.integer(
       "zero_optimization.stage", "0",
       "ZeRO stage; 0: no sharding; 1: optimizer state sharded; 2: gradients too; 3: weights too")
      .at_least(0)
      .at_most(3)
      .off_trajectory()
      .alias({"zero_stage"});
  s.boolean("use_distributed_optimizer", false, "Megatron's name for zero_optimization.stage 1")
      .off_trajectory();
  s.choice("data_parallel_sharding_strategy", "no_shard",
           {"no_shard", "optim", "optim_grads", "optim_grads_params"},
           "Megatron's names for zero_optimization.stage 0, 1, 2 and 3")
      .off_trajectory();
  s.boolean("zero_optimization.stage3_prefetch", true,
            "stage 3: gather the weights of the next transformer block while the current one is "
            "computed; false: keeps one gathered block in memory instead of two")
      .off_trajectory();
  s.integer(
       "zero_optimization.zero_hpz_partition_size", "1",
       "stage 3: neighbouring data-parallel ranks, such as those of a node, that divide a second "
       "copy of the weights and gather it for backward; 1: none")
      .at_least(1)
      .at_most(kMaxRanks)
      .off_trajectory();
  const std::string offload = "zero_optimization.offload_optimizer.";
  s.choice("zero_optimization.offload_param.device", "none", {"none", "cpu"},
           "storage of sharded weights: always the memory of the compute device, so cpu has no "
           "effect on a GPU")
      .not_yet({"nvme"})
      .off_trajectory();
  s.choice(offload + "device", "none", {"none", "cpu", "nvme"},
           "storage of the optimizer state; none: memory of the compute device; cpu: host memory; "
           "nvme: a file")
      .off_trajectory();
  s.string(offload + "nvme_path", "null",
           "folder of the state file, on a disk of each rank's machine")
      .or_null()
      .off_trajectory();
  s.integer(offload + "buffer_count", "3", "nvme: windows of the state file in host memory")
      .at_least(2)
      .at_most(64)
      .auto_as_default()
      .off_trajectory();
  s.integer(offload + "buffer_size", "4194304", "nvme: elements of each state per window")
      .at_least(4096)
      .at_most(1e10)
      .auto_as_default()
      .off_trajectory();
}

void add_context_keys(Schema& s) {
  size(s, key::kContext, "context-parallel size: ranks that split every sequence")
      .alias({"context_parallel_size", "sequence_parallel_size", "context_parallel_degree", "cp",
              "parallelism.cp", "parallelism.context_parallel_degree"});
  s.choice(key::kContextType, "p2p", context_comm_types(),
           "communication of context-parallel attention; p2p: keys and values around a ring; a2a: "
           "heads by all-to-all (Ulysses); a2a+p2p: heads within groups of neighbours, keys and "
           "values between the groups")
      .off_trajectory()
      .alias({"cp_comm_type"});
  s.choice(key::kContextBalance, "zigzag", context_balances(),
           "assignment of sequence chunks to context-parallel ranks; zigzag: an early and a late "
           "chunk per rank, which balances causal attention; contiguous: neighbouring chunks")
      .off_trajectory();
}

void add_expert_keys(Schema& s) {
  size(s, key::kExpert, "expert-parallel size: ranks that divide the experts")
      .alias({"expert_model_parallel_size", key::kAutoExpertSize, "ep_size",
              "expert_parallel_degree", "parallelism.expert_parallel_degree"});
  size(s, key::kExpertTensor,
       "expert-tensor-parallel size: ranks that split the matrices of each expert")
      .alias({"expert_tensor_parallel_size", "expert_parallel.expert_tensor_parallel_size"});
  s.boolean(key::kAutoExpert, false,
            "DeepSpeed's and TorchTitan's switch; false: expert_parallel.autoep_size is ignored; "
            "true: the model must have experts")
      .off_trajectory();
  s.boolean_or_auto(
       key::kSharedOverlap,
       "compute shared experts during the dispatch and combine of tokens; auto: on GPUs")
      .off_trajectory()
      .alias({"moe_shared_expert_overlap"});
}

}  // namespace

void add_parallel_keys(Schema& s) {
  s.section("parallel",
            "Ranks form a pp x dp x cp x tp mesh, where dp = ranks / (pp x cp x tp). Losses, "
            "gradients and norms do not depend on the layout.");
  size(s, key::kTensor, "tensor-parallel size: ranks that split every matrix")
      .alias({"tensor_model_parallel_size", "tensor_parallel.autotp_size", "tensor_parallel_degree",
              "tp", "parallelism.tp", "parallelism.tensor_parallel_degree"});
  s.boolean(key::kSequence, false,
            "norms, dropout and the residual stream split by tokens over the tensor-parallel "
            "ranks: less memory, same traffic")
      .off_trajectory()
      .alias({"sequence_parallel"});
  s.boolean_or_auto(key::kTensorOverlap,
                    "with sequence_parallel: overlap all-gather and reduce-scatter with matrix "
                    "products, in one piece per rank; same traffic. auto: on GPUs")
      .off_trajectory()
      .alias({"tp_comm_overlap"});
  size(s, key::kPipeline, "pipeline-parallel size: stages of consecutive layers")
      .alias({"pipeline_model_parallel_size", "pipeline.stages", "pipeline_parallel_degree", "pp",
              "parallelism.pp", "parallelism.pipeline_parallel_degree"});
  size(s, key::kVirtualStages, "chunks of layers per pipeline rank (virtual stages)")
      .alias({"num_virtual_stages_per_pipeline_rank"});
  s.string(key::kSchedule, "\"1f1b\"",
           "pipeline schedule: gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_h2, or the path of a "
           "schedule file (`trireme schedule show` draws them)")
      .off_trajectory();
  s.any(key::kStageLayers, "\"auto\"", "list of layer counts",
        "layers per chunk in model order; auto: as equal as possible")
      .or_auto()
      .off_trajectory();
  add_context_keys(s);
  add_expert_keys(s);
  s.integer(key::kData, "\"auto\"",
            "data-parallel size: ranks that divide the batch; auto: ranks / (tp x pp x cp)")
      .or_auto()
      .at_least(1)
      .at_most(kMaxRanks)
      .off_trajectory()
      .alias({"parallelism.dp", key::kDataReplicate, "data_parallel_replicate_degree", "dp"});
  s.integer(key::kDataShard, "",
            "TorchTitan's name for zero_optimization.stage 3: data-parallel ranks that shard the "
            "weights; -1: all; 1: no sharding")
      .at_least(-1)
      .at_most(kMaxRanks)
      .off_trajectory()
      .alias({"data_parallel_shard_degree"});
  s.string(key::kOrder, "\"tp-cp-dp-pp\"",
           "mesh dimensions, fastest-varying in the rank number first: groups of the first one are "
           "neighbouring ranks")
      .off_trajectory();
  add_zero_keys(s);
}

}  // namespace trireme
