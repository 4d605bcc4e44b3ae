// Rank's part of the served model, and the rank's worker loop.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "parallel/device.h"
#include "parallel/groups.h"
#include "serving/distributed/plan_codec.h"
#include "serving/model/served_model.h"

namespace trireme {

class Heartbeat;

class RankModel final : public ServedModel {
 public:
  // Loads this rank's part; all ranks of the world call it. InputError if options are inconsistent,
  // or if the memory is too small for the KV cache.
  explicit RankModel(const ServedModelOptions& options);
  ~RankModel() override;

  // Ranks started by a launcher: rank 0 leads, that is accepts the requests and sends plans; the
  // others call follow(), which runs the plans until rank 0 ends.
  bool leads() const { return world_->rank() == 0; }
  void follow();
  // Follows a front process, which is not a rank: reports that this rank is ready, then runs the
  // process's plans. The sampling rank sends back the result of each step.
  void follow(ControlChannel& leader, Heartbeat& heartbeat);

  DType dtype() override { return loaded_->parameters().dtype(); }
  std::string device() const override;
  std::unique_ptr<StepExecutor> make_executor(size_t replica) override;
  std::unique_ptr<Drafter> make_drafter() override;
  void move_here() override;
  // On rank 0, these four also run on all ranks that follow it.
  Checkpoint stage(const std::string& path) override;
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
  void connect_channels(const std::string& address);
  std::unique_ptr<StepExecutor> own_executor();
  PlanBounds bounds() const;

  std::unique_ptr<World> world_;
  RankDevice device_;  // outlives everything in its memory
  int threads_ = 0;
  int64_t weight_bytes_ = 0;  // of all ranks on this machine; with several machines, the mean
  ParallelSizes sizes_;
  std::unique_ptr<Groups> groups_;
  std::unique_ptr<Ctx> ctx_;
  std::unique_ptr<DraftModel> draft_;       // on rank 0; nullptr: no draft model
  std::unique_ptr<Followers> followers_;    // on rank 0, if there are other ranks
  std::unique_ptr<ControlChannel> leader_;  // on the other ranks
};

}  // namespace trireme
