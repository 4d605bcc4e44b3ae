// Model of a server: its limits, tokenizer, weights, and the executors of its steps. A process that
// runs steps itself, alone or as one of several ranks, has a RankModel. A process that supervises
// ranks has a FrontModel.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/world.h"
#include "parallel/same_on_ranks.h"
#include "serving/distributed/rank_weights.h"
#include "serving/engine/failure.h"
#include "serving/engine/model_executor.h"
#include "serving/scheduler/drafter.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/model/model_layout.h"

namespace trireme {

class DraftModel;
class Replicas;

struct ServedModelOptions {
  // model: checkpoint, run directory or third-party files. adapter: PEFT directory; empty: none.
  // tokenizer: path, or "byte"; empty: the model's own. device: see open_rank_device().
  std::string model, adapter, tokenizer, device = "auto";
  std::vector<std::string> modules;  // directories of the adapters that requests can select
  AdapterSlots adapter_slots;        // for adapters loaded at run time
  // dtype: of the computation; nullopt: ModelBundle::dtype. quantization: of the weights of linear
  // layers; nullopt: none.
  std::optional<DType> dtype;
  std::optional<BlockFormat> quantization;
  std::optional<KvType> kv_type;  // StepLimits::kv_type
  int threads = 0;                // per rank; 0: its share of the cores
  int64_t max_model_len = 0;      // 0: the model's maximum, reduced to what the cache holds
  int64_t max_num_seqs = 0;       // 0: 256, or max_batched_tokens if that is less
  // Maximum tokens of a step, at least max_num_seqs. 0: 512, or 2048 on a GPU, but not less than
  // max_num_seqs.
  int64_t max_batched_tokens = 0;
  // Bytes of the KV cache per rank; 0: 4 GiB, on a GPU the part of gpu_share that the weights and
  // other use leave. Reduced to the need of max_num_seqs sequences of maximum length.
  int64_t cache_bytes = 0;
  int64_t blocks = 0;  // of the KV cache, overrides cache_bytes; 0: as many as fit in it
  // Fraction of a GPU's memory, in (0, 1], that is in use once the KV cache is allocated, by this
  // and other processes; nullopt: kGpuShare.
  std::optional<double> gpu_share;
  bool deterministic = false;     // StepLimits::deterministic
  bool allow_non_finite = false;  // accepts weights that are not finite
  // Ranks that this process starts and supervises (FrontModel). 0: it is a rank itself (RankModel),
  // alone or one of those that a launcher has started.
  int ranks = 0;
  int replicas = 1;               // of the model; the ranks are divided equally among them
  std::string launcher = "auto";  // of the ranks (rank_launcher())
  WorldOptions world;             // how ranks connect
  RankFacts facts;                // values that must be equal on all ranks
  LayoutOptions layout;
  std::string draft;            // draft model; empty: none
  int64_t draft_sequences = 0;  // maximum sequences drafted at a time
  bool led = false;             // a front process has started this rank and sends the plans
  std::string rank_address;     // address of this rank for other machines; empty: its host name
};

// Default of --gpu-memory-utilization, as in vLLM.
constexpr double kGpuShare = 0.9;

// Bytes of this process's KV cache: options.cache_bytes, else `of_gpu`, else 4 GiB.
int64_t cache_bytes(const ServedModelOptions& options, std::optional<int64_t> of_gpu);

class ServedModel : public ModelWeights {
 public:
  const StepLimits& limits() const { return limits_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& tokenizer_spec() const { return spec_; }  // path, or "byte"
  const LoadedModel& loaded() const { return *loaded_; }
  virtual DType dtype() = 0;
  virtual std::string device() const = 0;
  virtual size_t replicas() const { return 1; }
  // Makes the executor of a replica's engine; once per replica. A single process uses the machine's
  // first GPU, which is the current device of every thread.
  virtual std::unique_ptr<StepExecutor> make_executor(size_t replica) = 0;
  // Makes the drafter of an engine, once per replica; nullptr: no draft model.
  virtual std::unique_ptr<Drafter> make_drafter();
  // Makes the calling thread the one that runs parallel loops.
  virtual void move_here() = 0;
  // Sets the engines that are notified when their executors are lost and when they can run again;
  // nullptr: none.
  virtual void attach_engines(Replicas*) {}
  // True if an engine that has failed for this cause is resumed.
  virtual bool recovers_from(FailureCause) const { return false; }
  Checkpoint served() const override { return {loaded_->checkpoint(), loaded_->step()}; }

 protected:
  // Opens the model on every rank of the world, reads its configuration and tokenizer, and checks
  // the requested lengths.
  void open(const ServedModelOptions& options, World& world);

  StepLimits limits_;
  std::string spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<LoadedModel> next_;  // staged weights; after use() the previous ones
  std::unique_ptr<LoadedModel::StagedAdapter> adapter_;  // likewise
};

}  // namespace trireme
