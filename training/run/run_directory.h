// Run directory (output_dir): its contents, and the plan for starting or resuming a run in it.
//
//   resolved_config.json   the configuration with every default, "auto" replaced
//   metrics.jsonl          one record per step
//   train.log              console output
//   tensorboard/           event files, with logging.tensorboard.enabled
//   checkpoints/           unless checkpoint.save is another folder
//   adapter/               with finetune.lora.rank: adapters of the newest checkpoint, for PEFT
//   last_checkpoint        name of the newest checkpoint
//   run.lock               lock of the run that writes here
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/io/directory_lock.h"
#include "training/config/run_config.h"
#include "training/data/data_identity.h"

namespace trireme {

// Plan for starting or resuming a run. It depends on --resume:
//   ""      Starts a new run. Refused if output_dir contains a run.
//   "auto"  Continues from the newest complete checkpoint, or starts a new run if checkpoint.save
//           contains none. A checkpoint whose last step was skipped is used only if no other one is
//           complete. Refused if there are checkpoints and none is complete, or if there are none
//           although records show that one was saved (checkpoint.save may not be mounted): a new
//           run never overwrites the remains of another one.
//   a path  Continues from this checkpoint.
//
// A new run uses checkpoint.load. If that is a checkpoint of a run, the run continues from it. If
// it is a third-party model (a HuggingFace directory, an imported checkpoint), the run loads only
// its weights and starts at step 0 (Megatron's --finetune). A fine-tuning run does the latter with
// any checkpoint.
//
// A resumed run must have the checkpoint's configuration. train_steps and the scheduler may differ
// if the completed steps keep their learning rates: a constant rate, a decay of fixed length
// (scheduler.params.decay_steps), WSD before its decay. The run then gives the same result as a run
// that had the new configuration from the start; a note reports if the data order differs.
//
// Records of another run in output_dir are never overwritten, whichever checkpoint is loaded.
struct ResumePlan {
  std::string checkpoint;  // directory to load; empty: start at step 0
  std::string weights;     // model (find_model()): initial weights or base model; empty: none
  std::string adapter;     // PEFT directory of the initial adapters; empty: they change nothing
  std::vector<std::string> notes;  // warnings for the log, such as skipped damaged checkpoints
  bool is_own = false;             // --resume auto found the checkpoint
  bool is_named = false;           // --resume is the path of the checkpoint
};

// Makes the plan. InputError, with the reason and advice, if the run may not start or continue
// here. Writes nothing. Rank 0 calls it and sends the plan to the other ranks. data:
// data_identity() of config.data.
ResumePlan plan_resume(const RunConfig& config, const std::string& resume,
                       const std::vector<TokenFileIdentity>& data);

// Advice for errors, an imperative clause to append after "or ". advice_for_weights(): how to start
// a new run from a checkpoint's weights alone, in an output_dir without a run.
// advice_for_another_run(): how to start a new run instead of the one that the plan continues.
std::string advice_for_weights(const RunConfig& config, const std::string& checkpoint);
std::string advice_for_another_run(const RunConfig& config, const ResumePlan& plan);

// Lock on the directories that a run writes to, output_dir and checkpoint.save. Rank 0 acquires it
// before it reads their contents, and holds it until the run ends. InputError if another run holds
// one of the locks.
class RunLock {
 public:
  explicit RunLock(const RunConfig& config);
  bool holds() const;  // false if output_dir or checkpoint.save was removed, moved or replaced
  std::string warning() const { return output_.warning(); }

 private:
  DirectoryLock output_;
  std::unique_ptr<DirectoryLock> save_;  // null: the same directory
};

// InputError if output_dir contains records of another run than that of `config`.
void check_own_records(const RunConfig& config);
// Writes the name of a saved checkpoint to output_dir/last_checkpoint. If checkpoint.save is empty
// later (not mounted), --resume auto then refuses instead of starting a new run.
void write_saved_mark(const RunConfig& config, const std::string& directory);

// Creates output_dir and writes resolved_config.json.
void write_run_directory(const RunConfig& config);

}  // namespace trireme
