// Run directory: its contents, whether a run may start there, and where a resumed run continues.
//
//   resolved_config.json   the configuration with every default, "auto" replaced
//   metrics.jsonl          one record per step
//   train.log              output of the console
//   tensorboard/           event files, with logging.tensorboard.enabled
//   checkpoints/           unless checkpoint.save is set
//   run.lock               while a run writes here
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/io/directory_lock.h"
#include "training/config/run_config.h"
#include "training/data/data_identity.h"

namespace trireme {

// Plan for starting or resuming a run.
//
// A run may be continued with another train_steps or scheduler if the new configuration gives the
// completed steps the learning rates that they had: a constant rate, a decay of fixed length
// (scheduler.params.decay_steps), WSD before its decay. The result is then that of the new
// configuration. If the data order differs for that many steps, a note reports it.
//
// --resume "" starts a new run and refuses a directory that contains one. "auto" starts a run if
// the directory contains none, and otherwise continues its newest complete checkpoint. A path
// continues from that checkpoint. If there are checkpoints, or must have been, and none is
// complete, "auto" refuses: a run never starts over the remains of another one. When a run would
// start, checkpoint.load may name a checkpoint to continue from instead. It may also name a
// third-party model (a HuggingFace directory, an imported checkpoint): the run takes only its
// weights and starts at step 0 (Megatron's --finetune). A fine-tuning run does so with any
// checkpoint. Wherever the checkpoint comes from, records of another run in output_dir are refused
// and not overwritten.
struct ResumePlan {
  std::string checkpoint;  // directory to load; empty: start from the beginning
  std::string weights;     // find_model() of the initial weights; empty: new ones
  std::string adapter;     // PEFT directory of the initial adapters; empty: adapters without effect
  std::vector<std::string> notes;  // damaged checkpoints that were skipped, for the log
  bool is_own = false;             // --resume auto has found the checkpoint
  bool is_named = false;           // --resume names it
};

// InputError with the reason and the way out if the run may not start or continue here. Only reads;
// rank 0 calls it and sends the plan to the others. data: data_identity() of config.data.
ResumePlan plan_resume(const RunConfig& config, const std::string& resume,
                       const std::vector<TokenFileIdentity>& data);

// Ways out of an error, to append after "; or ". advice_for_weights(): a run from the weights of a
// checkpoint alone, which needs an output_dir without a run. advice_for_another_run(): a run other
// than the one that the plan continues.
std::string advice_for_weights(const RunConfig& config, const std::string& checkpoint);
std::string advice_for_another_run(const RunConfig& config, const ResumePlan& plan);

// Lock on the directories that a run writes to, for its lifetime: output_dir and checkpoint.save.
// Rank 0 takes it before it reads their contents. InputError if another run holds one of them.
class RunLock {
 public:
  explicit RunLock(const RunConfig& config);
  bool holds() const;  // false once output_dir or checkpoint.save was removed, moved or replaced
  std::string warning() const { return output_.warning(); }

 private:
  DirectoryLock output_;
  std::unique_ptr<DirectoryLock> save_;  // null: the same directory
};

// InputError if the directory contains records of another run than that of `config`.
void check_own_records(const RunConfig& config);
// Call after a save: writes the name of the checkpoint to output_dir/last_checkpoint. It shows a
// later --resume auto that there was a checkpoint if checkpoint.save contains none.
void write_saved_mark(const RunConfig& config, const std::string& directory);

// Creates the directory and writes resolved_config.json.
void write_run_directory(const RunConfig& config);

}  // namespace trireme
