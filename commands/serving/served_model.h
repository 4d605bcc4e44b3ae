// The model of `trireme serve`: what requests need to know of it, and who computes its steps. A process that computes
// itself, alone or as one of several ranks, has a RankModel.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/device.h"
#include "parallel/groups.h"
#include "serving/distributed/plan_codec.h"
#include "serving/distributed/rank_weights.h"
#include "serving/engine/model_executor.h"
#include "training/loaded_model.h"
#include "training/model_layout.h"

namespace trireme {

class DraftModel;
class Drafter;
class Heartbeat;
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
  int ranks = 0;                  // that this process starts and outlives; 0: none, or as launched
  int replicas = 1;               // of the model, which have as many of these each
  std::string launcher = "auto";  // of these (rank_launcher())
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
  // Once, for the engine of a replica. One process takes the machine's first GPU, which is the current one of every
  // thread.
  virtual std::unique_ptr<StepExecutor> make_executor(size_t replica) = 0;
  // The same for each; nullptr where no draft model was asked for.
  virtual std::unique_ptr<Drafter> make_drafter();
  // From now on what runs parallel loops is the calling thread's.
  virtual void move_here() = 0;
  // Engines hear from now on when their executors are lost, and when they can compute again; nullptr: none does.
  virtual void tell(Replicas*) {}
  // Whether the engine is told again that it can compute after it has failed with these words.
  virtual bool recovers_from(const std::string&) const { return false; }
  Place served() const override { return {loaded_->checkpoint(), loaded_->step()}; }

 protected:
  // Opens it in every rank of the world, reads its configuration and tokenizer, checks the lengths asked for.
  void open(const ServedModelOptions& options, World& world);

  StepLimits limits_;
  std::string spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<LoadedModel> next_;  // staged; after use() it has the weights of before
  std::unique_ptr<LoadedModel::StagedAdapter> adapter_;  // likewise
};

class RankModel final : public ServedModel {
 public:
  // Loads this rank's part. InputError for what does not fit together.
  explicit RankModel(const ServedModelOptions& options);
  ~RankModel() override;

  // Of the ranks of a launcher number 0 leads: it has the requests. The others follow until it ends.
  bool leads() const { return world_->rank() == 0; }
  void follow();
  // The same where a process that is no rank leads all of them: says that this one is ready. One of them, which
  // chooses the tokens, tells what has come of each step.
  void follow(SideChannel& leader, Heartbeat& heartbeat);

  DType dtype() override { return loaded_->parameters().dtype(); }
  std::string device() const override;
  std::unique_ptr<StepExecutor> make_executor(size_t replica) override;
  std::unique_ptr<Drafter> make_drafter() override;
  void move_here() override;
  // Of rank 0: on all ranks that follow it too.
  Place stage(const std::string& path) override;
  void stage_adapter(int32_t slot, const std::string& path) override;
  void use(size_t replica) override;
  void drop() override;

 private:
  void stage_everywhere(const StageRequest& request, const std::function<void()>& own);
  void load(const ServedModelOptions& options);
  void divide_memory(const ServedModelOptions& options);
  std::optional<int64_t> left_of_gpu(double share) const;
  int64_t largest_step_bytes() const;
  void check_cache(const ServedModelOptions& options, int64_t bytes, int64_t of_block,
                   int64_t blocks);
  void meet(const std::string& address);
  std::unique_ptr<StepExecutor> own_executor();
  PlanBounds bounds() const;

  std::unique_ptr<World> world_;
  RankDevice device_;  // outlives what lies on it
  int threads_ = 0;
  int64_t weight_bytes_ = 0;  // of all ranks of this machine
  ParallelSizes sizes_;
  std::unique_ptr<Groups> groups_;
  std::unique_ptr<Ctx> ctx_;
  std::unique_ptr<DraftModel> draft_;     // of rank 0; absent: none was asked for
  std::unique_ptr<Followers> followers_;  // of rank 0 where there are others
  std::unique_ptr<SideChannel> leader_;   // of one of these
};

}  // namespace trireme
