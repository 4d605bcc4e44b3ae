// A rank's part of the served model, and the steps that it runs.
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
  // Loads this rank's part. InputError for what does not fit together.
  explicit RankModel(const ServedModelOptions& options);
  ~RankModel() override;

  // Of the ranks of a launcher number 0 leads: it has the requests. The others follow until it
  // ends.
  bool leads() const { return world_->rank() == 0; }
  void follow();
  // The same where a process that is no rank leads all of them: says that this one is ready. One of
  // them, which chooses the tokens, tells what has come of each step.
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
