// Configuration keys of the parallel layout and the pipeline, shared by the schema, the reader and
// the error messages about values that do not fit together.
#pragma once

namespace trireme::key {

inline constexpr const char* kTensor = "parallel.tensor_model_parallel_size";
inline constexpr const char* kSequence = "parallel.sequence_parallel";
inline constexpr const char* kTensorOverlap = "parallel.tp_comm_overlap";
inline constexpr const char* kContext = "parallel.context_parallel_size";
inline constexpr const char* kContextType = "parallel.cp_comm_type";
inline constexpr const char* kContextBalance = "parallel.cp_balance";
inline constexpr const char* kData = "parallel.data_parallel_size";
inline constexpr const char* kExpert = "parallel.expert_model_parallel_size";
inline constexpr const char* kSharedOverlap = "parallel.moe_shared_expert_overlap";
inline constexpr const char* kExpertTensor = "parallel.expert_tensor_parallel_size";
// TorchTitan: number of data-parallel ranks over which weights are sharded.
inline constexpr const char* kDataShard = "parallelism.data_parallel_shard_degree";
inline constexpr const char* kDataReplicate = "parallelism.data_parallel_replicate_degree";
// DeepSpeed: switch of expert parallelism, and its size.
inline constexpr const char* kAutoExpert = "expert_parallel.enabled";
inline constexpr const char* kAutoExpertSize = "expert_parallel.autoep_size";
inline constexpr const char* kOrder = "parallel.order";
inline constexpr const char* kPipeline = "parallel.pipeline_model_parallel_size";
inline constexpr const char* kVirtualStages = "parallel.virtual_pipeline_stages";
inline constexpr const char* kSchedule = "parallel.pipeline_schedule";
inline constexpr const char* kStageLayers = "parallel.pipeline_layout";
inline constexpr const char* kMicroBatches = "gradient_accumulation_steps";

}  // namespace trireme::key
