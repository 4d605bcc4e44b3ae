// The run directory: what lies in it, whether a run may start there, and how a resumed one finds
// its place.
//
//   resolved_config.json   the configuration with every default and "auto" replaced
//   metrics.jsonl          one record a step
//   train.log              what the console showed
//   tensorboard/           event files, with logging.tensorboard.enabled
//   checkpoints/           unless checkpoint.save says otherwise
//   run.lock               while a run writes here
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/io/directory_lock.h"
#include "training/config/run_config.h"
#include "training/data/data_identity.h"

namespace trireme {

// A run may be continued under another train_steps or scheduler if the steps that are done have the
// learning rates that the new configuration gives them: a constant rate, a decay of fixed length
// (scheduler.params.decay_steps), WSD before its decay. So the result is the new configuration's,
// and when the order of the data is another one for so many steps, a note says so.
//
// --resume: "" starts a new run and refuses a directory that holds one; "auto" starts where the
// directory holds none and else continues its newest whole checkpoint; a path continues from that
// checkpoint. Where there are checkpoints, or there must have been, and none is whole, "auto"
// refuses: a run is never started over what another one left. Where a run would start,
// checkpoint.load names a checkpoint to continue from instead; or a model of others (a HuggingFace
// directory, an imported checkpoint), of which the run takes the weights and nothing else, and
// starts at step 0 (Megatron's --finetune); a fine-tuning run does so with any. Wherever the
// checkpoint comes from, records in output_dir that are another run's are refused and not
// overwritten.
struct ResumePlan {
  std::string checkpoint;          // directory to load; empty: start from the beginning
  std::string weights;             // find_model() of those to start from; empty: fresh ones
  std::string adapter;             // PEFT's directory that adapters begin as; empty: as nothing
  std::vector<std::string> notes;  // damaged checkpoints passed over, for the log
  bool is_own = false;             // --resume auto has found the checkpoint
  bool is_named = false;           // --resume names it
};

// InputError with the reason and the way out when the run may not start or continue here. Reads
// only; rank 0 calls it and tells the others. data: data_identity() of config.data.
ResumePlan plan_resume(const RunConfig& config, const std::string& resume,
                       const std::vector<TokenFileIdentity>& data);

// Ways out of an error, to put after "; or ": a run from the weights of a checkpoint alone, which
// needs an output_dir without a run; and a run that is not the one which the plan continues.
std::string advice_for_weights(const RunConfig& config, const std::string& checkpoint);
std::string advice_for_another_run(const RunConfig& config, const ResumePlan& plan);

// What a run writes in, locked for its life: output_dir and checkpoint.save. Rank 0 takes it before
// it reads what is there. InputError where another run has one of them.
class RunLock {
 public:
  explicit RunLock(const RunConfig& config);
  bool holds() const;  // false once output_dir or checkpoint.save was removed, moved or replaced
  std::string warning() const { return output_.warning(); }

 private:
  DirectoryLock output_;
  std::unique_ptr<DirectoryLock> save_;  // null: the same directory
};

// InputError where the directory holds the records of another run than that of `config`.
void check_own_records(const RunConfig& config);
// After a save: the name of the checkpoint, in output_dir/last_checkpoint. A later --resume auto
// that finds no checkpoint in checkpoint.save knows by it that there was one.
void write_saved_mark(const RunConfig& config, const std::string& directory);

// Creates the directory and writes resolved_config.json.
void write_run_directory(const RunConfig& config);

}  // namespace trireme
