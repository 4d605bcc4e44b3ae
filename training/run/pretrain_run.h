// Training run of one rank. pretrain.cpp has the phases of a run in order, pretrain_report.cpp the
// memory report and the metrics of a step.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/observe/step_metrics.h"
#include "parallel/device.h"
#include "parallel/outer/outer_sync.h"
#include "parallel/outer/peer_exchange.h"
#include "parallel/outer/remote/hub_exchange.h"
#include "parallel/outer/sites.h"
#include "training/checkpoint/train_checkpoint.h"
#include "training/eval/evaluate.h"
#include "training/report/run_records.h"
#include "training/report/traffic_metrics.h"
#include "training/run/pretrain.h"
#include "training/run/run_directory.h"
#include "training/step/train_step.h"
#include "transformer/checkpoint/lineage.h"

namespace trireme {

class PretrainRun {
 public:
  PretrainRun(const RunConfig& config, World& world, const PretrainOptions& options,
              SignalRequests& signals);
  ExitCode run();

 private:
  // Step that has started and whose result has not been read yet, with data for its record.
  struct OpenStep {
    TrainPosition position;  // after the step
    Profile profile;
    int64_t allocations = 0;
    StepMetrics sent;                   // only the members of TrafficMetrics
    std::optional<RoundMetrics> round;  // that ended after the step
  };
  void open_examples();
  void compute_reference_log_probabilities();
  // By document of the set; 0 for documents of other items.
  std::vector<double> log_likelihoods(const ExampleSet& set, const std::vector<int64_t>& items);
  std::vector<double> log_likelihoods(const ExampleSet& set);
  double preference_loss();
  void open_data();
  void make_plans();
  int64_t planned_bytes() const;
  std::string memory_report() const;
  void check_device_memory() const;
  ResumePlan plan_start();   // on rank 0
  void restore_directory();  // on rank 0
  void start_or_resume();
  void start_step();
  std::unique_ptr<UpdateExchange> open_exchange();
  void begin_rounds();
  void run_outer_rounds();
  void warn_of_round(const OuterRound& round) const;
  void warn_of_copies() const;
  void move_to(int64_t step);
  // One step, its rounds, and what is due after it. Returns whether the run stops by request.
  bool train_step();
  void end_replaced_rounds();
  ExitCode stop_without_rounds(const WaitEnded& wait);
  StepResult over_sites(StepResult result);
  template <class Use>
  void with_shared_weights(const Use& use);
  int64_t arena_bytes() const;
  void finish_steps(int64_t open);
  bool keeps_algorithms() const {
    return device_.gpu != nullptr && !config_.cuda_gemm_algorithms.empty();
  }
  bool due(int64_t interval, int64_t step) const { return interval > 0 && step % interval == 0; }
  // name: of the set, for metrics.partial_sets.
  double loss_on(BatchSource& data, const std::string& name, StepMetrics& metrics);
  void validate(StepMetrics& metrics);
  void evaluate_if_due(StepMetrics& metrics);
  // Saves, unless the last step was skipped: bad weights may be the cause, so the save waits for
  // the next step that is not skipped. Saves in any case if the run ends here.
  void save_if_finite(StopRequest request);
  void save();
  void mark_saved(const std::string& checkpoint) const;
  void write_adapter(const std::string& checkpoint) const;
  StopRequest agreed_request();
  double peak_of_rank() const;
  void finish_step();
  void check_divergence(int64_t step, const StepResult& result, int64_t skips);
  bool is_loss_scale_search(const StepResult& result) const;
  [[noreturn]] void fail_diverged(int64_t step, int64_t skips, const std::string& what) const;
  StepMetrics describe_step(const OpenStep& open, const StepResult& result, double seconds) const;

  const RunConfig& config_;
  World& world_;
  Communicator& group_;  // all ranks
  RankDevice device_;
  Sites sites_;
  Groups groups_;  // of this rank's site
  PretrainOptions options_;
  SignalRequests& signals_;
  Ctx ctx_;
  Profile profile_;
  TrainState state_;
  TrainStep step_;
  HubExchange* hub_ = nullptr;        // of outer_, in a job that is one of several sites
  std::unique_ptr<OuterSync> outer_;  // nullptr: one site
  Evaluator evaluator_;
  std::unique_ptr<BatchSource> train_data_, test_data_;
  std::vector<ValidationSource> validation_data_;
  std::string no_validation_;  // why validation_data_ is empty
  std::shared_ptr<const FinetuneData> examples_;
  CheckpointLineage lineage_;                  // on rank 0
  std::vector<TokenFileIdentity> data_files_;  // on rank 0
  ExampleSource* train_examples_ = nullptr;    // preferences only
  ExampleSource* validation_pairs_ = nullptr;  // preferences only
  std::string examples_summary_;               // fine-tuning only
  int64_t sequences_per_epoch_ = 0;            // fine-tuning only
  std::vector<MicroBatch> batches_;
  ArenaPlan train_plan_, eval_plan_, outer_plan_;
  TrainPosition position_;  // includes the open steps
  // Started and not finished; oldest first.
  std::deque<OpenStep> open_steps_;
  std::chrono::steady_clock::time_point counted_until_;  // end of the last finished step
  int64_t last_saved_ = -1;
  std::string last_checkpoint_;  // newest one whose last step was not skipped; empty: none
  std::string first_bad_;        // name of the first non-finite gradient of the last skipped step
  bool stops_ = false;           // after this step, by request
  bool ended_wait_ = false;      // the shared weights lack rounds, so they are not evaluated
  bool save_waits_ = false;      // a save is due at the next step that is not skipped
  double peak_tflops_ = 0;       // peak of this rank's device
  int64_t parameters_ = 0;       // of the whole model
  int64_t adapter_parameters_ = 0;  // not included in parameters_
  TrafficMetrics traffic_metrics_;
  std::unique_ptr<RunLock> lock_;  // on rank 0, from before the first write; outlives records_
  std::unique_ptr<RunRecords> records_;
};

}  // namespace trireme
