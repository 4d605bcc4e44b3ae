// The model behind the server: limits, tokenizer and weights, and the executors of its steps. A
// process that runs steps itself, alone or as one of several ranks, has a RankModel; one that
// supervises ranks a FrontModel.
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
  std::string model, adapter, tokenizer, device = "auto";
  std::vector<std::string> modules;  // directories of adapters that requests choose among
  AdapterRoom room;                  // for others that come later
  std::optional<DType> dtype;
  std::optional<BlockFormat> quantization;
  std::optional<KvType> kv_type;   // StepLimits::kv_type
  int threads = 0;                 // of each rank; 0: its share of the cores
  int64_t max_model_len = 0;       // 0: the model's, or as much as the cache holds
  int64_t max_num_seqs = 0;        // 0: 256
  int64_t max_batched_tokens = 0;  // 0: 512, of a GPU 2048
  // Of each rank; 0: 4 GiB, of a GPU what gpu_share leaves. No more than all sequences need.
  int64_t cache_bytes = 0;
  int64_t blocks = 0;  // of the cache, whatever the former says; 0: what they hold
  // Of a GPU's memory, in (0, 1], that is in use once the cache is there; absent: kGpuShare.
  std::optional<double> gpu_share;
  bool deterministic = false;     // StepLimits::deterministic
  bool allow_non_finite = false;  // weights
  int ranks = 0;                  // that this process starts and outlives; 0: none, or as launched
  int replicas = 1;               // of the model, which have as many of these each
  std::string launcher = "auto";  // of these (rank_launcher())
  WorldOptions world;             // how ranks connect
  RankFacts facts;                // what those must have in common
  LayoutOptions layout;
  std::string draft;            // model that guesses tokens; empty: there is none
  int64_t draft_sequences = 0;  // that it guesses for at a time
  bool led = false;  // a rank that another process has started so: the plans come from there
  std::string rank_address;  // where ranks on other machines reach this one; empty: its name
};

// vLLM's --gpu-memory-utilization where nobody says it.
constexpr double kGpuShare = 0.9;

// For keys and values in this process: what is asked for, or what there is of a GPU, or 4 GiB.
int64_t cache_bytes(const ServedModelOptions& options, std::optional<int64_t> of_gpu);

class ServedModel : public ModelWeights {
 public:
  const StepLimits& limits() const { return limits_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& tokenizer_spec() const { return spec_; }
  const LoadedModel& loaded() const { return *loaded_; }
  virtual DType dtype() = 0;
  virtual std::string device() const = 0;
  virtual size_t replicas() const { return 1; }
  // Once, for the engine of a replica. One process takes the machine's first GPU, which is the
  // current one of every thread.
  virtual std::unique_ptr<StepExecutor> make_executor(size_t replica) = 0;
  // The same for each; nullptr where no draft model was asked for.
  virtual std::unique_ptr<Drafter> make_drafter();
  // From now on what runs parallel loops is the calling thread's.
  virtual void move_here() = 0;
  // Engines hear from now on when their executors are lost, and when they can compute again;
  // nullptr: none does.
  virtual void tell(Replicas*) {}
  // Whether an engine that has failed by this is resumed.
  virtual bool recovers_from(FailureCause) const { return false; }
  Place served() const override { return {loaded_->checkpoint(), loaded_->step()}; }

 protected:
  // Opens it in every rank of the world, reads its configuration and tokenizer, checks the lengths
  // asked for.
  void open(const ServedModelOptions& options, World& world);

  StepLimits limits_;
  std::string spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<LoadedModel> next_;  // staged; after use() it has the weights of before
  std::unique_ptr<LoadedModel::StagedAdapter> adapter_;  // likewise
};

}  // namespace trireme
