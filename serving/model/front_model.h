// Model of a front process. A front process owns sockets, requests and the scheduler, and starts
// and supervises the ranks that compute (serving/distributed/rank_supervisor.h). Each replica of
// the model is an independent group of ranks.
#pragma once

#include "parallel/device.h"
#include "serving/distributed/rank_supervisor.h"
#include "serving/model/served_model.h"

namespace trireme {

class FrontModel final : public ServedModel {
 public:
  // Starts options.ranks processes with this command line, divided equally among the
  // options.replicas replicas, and waits until they have loaded. The API keys are removed from the
  // command line. InputError if options are inconsistent; errors of the ranks as in
  // RankSupervisor::wait_until_ready().
  FrontModel(const ServedModelOptions& options, const std::vector<std::string>& command);
  ~FrontModel() override;

  DType dtype() override { return dtype_; }
  std::string device() const override { return device_; }
  size_t replicas() const override { return groups_.size(); }
  std::unique_ptr<StepExecutor> make_executor(size_t replica) override;
  std::unique_ptr<Drafter> make_drafter() override;
  void move_here() override;
  void attach_engines(Replicas* engines) override;
  bool recovers_from(FailureCause cause) const override {
    return cause == FailureCause::kLostRanks;
  }
  Checkpoint stage(const std::string& path) override;
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
  // World and device of the draft model, if there is one.
  std::unique_ptr<World> alone_;
  RankDevice draft_device_;
  std::unique_ptr<DraftModel> draft_;
  StageRequest staged_;  // the last one
  std::vector<std::unique_ptr<RankSupervisor>> groups_;
};

// Main function of a rank started by a FrontModel: loads its part of the model, reports that it is
// ready, and runs steps until the front process ends it. An Error is reported to the front process
// and thrown. leader: ControlAddress::line().
void serve_as_rank(ServedModelOptions options, const std::string& leader);

}  // namespace trireme
