// The model of a process that owns sockets, requests and the scheduler, and has others compute: it
// starts them, and outlives them (serving/distributed/rank_supervisor.h). Replicas of the model are
// groups of ranks that know nothing of each other.
#pragma once

#include "parallel/device.h"
#include "serving/distributed/rank_supervisor.h"
#include "serving/model/served_model.h"

namespace trireme {

class FrontModel final : public ServedModel {
 public:
  // Starts options.ranks processes with this command line, as many for each of options.replicas,
  // and waits until they have loaded. InputError for what does not fit together.
  FrontModel(const ServedModelOptions& options, const std::vector<std::string>& command);
  ~FrontModel() override;

  DType dtype() override { return dtype_; }
  std::string device() const override { return device_; }
  size_t replicas() const override { return groups_.size(); }
  std::unique_ptr<StepExecutor> make_executor(size_t replica) override;
  std::unique_ptr<Drafter> make_drafter() override;
  void move_here() override;
  void tell(Replicas* engines) override;
  bool recovers_from(FailureCause cause) const override {
    return cause == FailureCause::kLostRanks;
  }
  Place stage(const std::string& path) override;
  void stage_adapter(int32_t slot, const std::string& path) override;
  bool commit() override;
  void use(size_t replica) override { groups_[replica]->use(); }
  void drop() override;
  void forget_adapter(int32_t slot) override;

 private:
  void start(const ServedModelOptions& options, const std::vector<std::string>& command);
  void wait_until_ready();
  void end_groups();
  void take(const RankReady& ready);
  void load_draft(const ServedModelOptions& options);
  void divide_memory_of_draft(const ServedModelOptions& options);
  void stage_on_all(StageRequest request);

  DType dtype_ = DType::kF32;
  std::string device_;
  // Where there is a draft model, it has a device in this process.
  std::unique_ptr<World> alone_;
  RankDevice draft_device_;
  std::unique_ptr<DraftModel> draft_;
  StageRequest staged_;  // last
  std::vector<std::unique_ptr<RankSupervisor>> groups_;
};

// A rank that such a process has started: loads its part, says so, and computes until the other one
// ends it.
void serve_as_rank(ServedModelOptions options, const std::string& leader);

}  // namespace trireme
