// The model of a process that owns sockets, requests and the scheduler, and has others compute: it starts them, and
// outlives them (serving/distributed/rank_supervisor.h).
#pragma once

#include "commands/commands.h"
#include "commands/served_model.h"
#include "serving/distributed/rank_supervisor.h"

namespace trireme {

class FrontModel final : public ServedModel {
 public:
  // Starts options.ranks processes with this command line and waits until they have loaded. InputError for what does
  // not fit together.
  FrontModel(const ServedModelOptions& options, const CommandLine& line);

  DType dtype() override { return dtype_; }
  std::string device() const override { return device_; }
  std::unique_ptr<StepExecutor> make_executor() override;
  void move_here() override {}
  void tell(Engine* engine) override;
  bool recovers_from(const std::string& why) const override { return why == kRanksLost; }
  Place stage(const std::string& path) override;
  void stage_adapter(int32_t slot, const std::string& path) override;
  void use() override;
  void drop() override;
  void forget_adapter(int32_t slot) override { ranks_->forget_adapter(slot); }

 private:
  DType dtype_ = DType::kF32;
  std::string device_;
  std::unique_ptr<RankSupervisor> ranks_;
};

// A rank that such a process has started: loads its part, says so, and computes until the other one ends it.
void serve_as_rank(ServedModelOptions options, const std::string& leader);

}  // namespace trireme
