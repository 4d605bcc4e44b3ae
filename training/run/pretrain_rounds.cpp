// Rounds of a training run between sites (parallel/outer/outer_sync.h).
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "training/config/outer.h"
#include "training/run/pretrain_run.h"
#include "training/sites/rendezvous.h"

namespace trireme {

std::unique_ptr<UpdateExchange> PretrainRun::open_exchange() {
  if (!config_.outer.is_remote())
    return std::make_unique<PeerExchange>(sites_, state_.store, *state_.outer, ctx_);
  HubAddress address;
  agreed(group_, [&] {
    if (group_.rank() == 0) address = hub_address(config_.outer);
  });
  const auto stops = [this] { return stops_ || signals_.pending() == StopRequest::kSaveAndStop; };
  auto exchange = std::make_unique<HubExchange>(group_, state_.data_site, *state_.outer,
                                                state_.store, state_.whole.get(), address,
                                                run_config_to_json(config_).dump(), ctx_, stops);
  hub_ = exchange.get();
  return exchange;
}

// Joins the sites; continues at their step.
void PretrainRun::begin_rounds() {
  const UpdateExchange::Start start = outer_->begin(state_.weights(), outer_plan_, position_.step);
  const int64_t step = start.step;
  if (step < position_.step)
    log_warning("the sites of the run are at step ", step, ": what this site has trained since, ",
                "up to step ", position_.step, ", is dropped");
  if (step > position_.step) log_info("the sites of the run are at step ", step);
  if (!start.replaced) return;
  move_to(step);
  position_.consecutive_skips = 0;
  save_waits_ = step > 0;  // until then this site has no checkpoint of the run that it has joined
  agreed(group_, [&] {
    if (group_.rank() != 0) return;
    for (const std::string& name : set_aside_later(config_.checkpoint.save, step))
      log_warning("renamed a checkpoint of dropped steps: ", config_.checkpoint.save, "/", name);
  });
}

// Ends and begins the rounds that are due after the newest step.
void PretrainRun::run_outer_rounds() {
  if (outer_->is_due(position_.step, config_.train_steps)) finish_steps(1);
  const OuterRound round = outer_->after_step(position_.step, config_.train_steps);
  if (round.fragments == 0) return;
  if (group_.rank() == 0) warn_of_round(round);
  open_steps_.back().round = {.ms = round.seconds * 1e3,
                              .sent_bytes = round.sent_bytes,
                              .update_norm = round.update_norm,
                              .drift = round.drift};
  if (round.newest_step <= position_.step) return;
  move_to(round.newest_step);
  open_steps_.back().position = position_;  // its record is of the step that the weights belong to
}

void PretrainRun::warn_of_round(const OuterRound& round) const {
  for (const int site : round.left_out)
    log_warning("step ", position_.step, ": the update of site ", site,
                " is not finite and left out; the site continues from the shared weights");
  for (const int site : round.absent)
    log_warning("step ", position_.step, ": site ", site, " is absent from the round");
  if (round.replaced)
    log_warning("step ", position_.step, ": this site was late for the round and continues from ",
                "the weights of the others, at step ", std::max(position_.step, round.newest_step));
}

// Continues after step number `step` of the run.
void PretrainRun::move_to(int64_t step) {
  position_.step = step;
  position_.consumed_samples = checked_mul(step, config_.train_batch_size);
  last_saved_ = -1;  // a checkpoint of this step, if there is one, is of other weights
}

// Result of a step with the mean of the losses of all sites of this job, and the most skipped steps
// in a row of one. Collective over these sites.
StepResult PretrainRun::over_sites(StepResult result) {
  if (hub_ != nullptr) hub_->add_loss(result.loss);
  if (sites_.position().size == 1) return result;
  const bool counts = std::isfinite(result.loss);  // a site that skips does not hide the others
  const auto tokens = static_cast<double>(counts ? std::max<int64_t>(1, result.valid_tokens) : 0);
  double sums[] = {counts ? result.loss * tokens : 0.0, tokens};
  sites_.peers().all_reduce(Tensor(sums, DType::kF64, Shape{2}));
  if (sums[1] > 0) result.loss = sums[0] / sums[1];
  result.consecutive_skips =
      sites_.peers().all_reduce_scalar(result.consecutive_skips, ReduceOp::kMax);
  return result;
}

// Ends rounds that closed without this site before a checkpoint, whose step is that of its weights.
void PretrainRun::end_replaced_rounds() {
  const OuterRound round = outer_->end_replaced();
  if (!round.replaced) return;
  if (group_.rank() == 0) warn_of_round(round);
  if (round.newest_step > position_.step) move_to(round.newest_step);
}

// Saves a checkpoint without the open rounds. That of the end lacks the last round, so it is saved
// as of the step before, which the run repeats.
ExitCode PretrainRun::stop_without_rounds(const WaitEnded& wait) {
  outer_->drop_open_rounds();
  ended_wait_ = true;
  finish_steps(0);
  if (position_.step == config_.train_steps) move_to(position_.step - 1);
  save_if_finite(StopRequest::kSaveAndStop);
  if (wait.code() != ExitCode::kStoppedSaved) throw wait;
  log_info("stopped by request at step ", position_.step, ", without the results of open rounds; ",
           "continue with --resume auto");
  hub_->leave(false);
  return wait.code();
}

}  // namespace trireme
