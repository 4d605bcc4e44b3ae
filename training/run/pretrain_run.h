// Training run of one rank. pretrain.cpp has the phases of a run in order, pretrain_report.cpp its
// reports.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/observe/step_metrics.h"
#include "parallel/device.h"
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
  // Step that was started and whose result has not been read, with data for its record.
  struct OpenStep {
    TrainPosition position;  // after the step
    Profile profile;
    int64_t allocations = 0;
    StepMetrics sent;  // only TrafficMetrics
  };
  void open_examples();
  void compute_reference_log_probabilities();
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
  void finish_steps(int64_t open);
  bool keeps_algorithms() const {
    return device_.gpu != nullptr && !config_.cuda_gemm_algorithms.empty();
  }
  bool due(int64_t interval, int64_t step) const { return interval > 0 && step % interval == 0; }
  // name: of the set in `metrics`.
  double loss_on(BatchSource& data, const std::string& name, StepMetrics& metrics);
  void validate(StepMetrics& metrics);
  // Postpones a save while steps are skipped, since the weights may be the cause, unless the run
  // ends there.
  void save_if_finite(StopRequest request);
  void save();
  void mark_saved(const std::string& checkpoint) const;
  void write_adapter(const std::string& checkpoint) const;
  StopRequest agreed_request();
  double peak_of_rank() const;
  void finish_step();
  void check_divergence(int64_t step, const StepResult& result);
  bool is_loss_scale_search(const StepResult& result) const;
  [[noreturn]] void fail_diverged(int64_t step, int64_t skips, const std::string& what) const;
  StepMetrics describe_step(const OpenStep& open, const StepResult& result, double seconds) const;

  const RunConfig& config_;
  World& world_;
  Communicator& group_;  // all ranks
  RankDevice device_;
  Groups groups_;
  PretrainOptions options_;
  SignalRequests& signals_;
  Ctx ctx_;
  Profile profile_;
  TrainState state_;
  TrainStep step_;
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
  ArenaPlan train_plan_, eval_plan_;
  TrainPosition position_;  // includes the open steps
  // Started and not finished; oldest first.
  std::deque<OpenStep> open_steps_;
  std::chrono::steady_clock::time_point counted_until_;  // earlier time belongs to finished steps
  int64_t last_saved_ = -1;
  std::string last_checkpoint_;     // not of a skipped step; empty: none yet
  std::string first_bad_;           // first non-finite gradient
  bool save_waits_ = false;         // until a step is not skipped
  double peak_tflops_ = 0;          // of this rank
  int64_t parameters_ = 0;          // of the whole model
  int64_t adapter_parameters_ = 0;  // in addition to parameters_
  TrafficMetrics traffic_metrics_;
  std::unique_ptr<RunLock> lock_;  // on rank 0, once the run may write; outlives the records
  std::unique_ptr<RunRecords> records_;
};

}  // namespace trireme
