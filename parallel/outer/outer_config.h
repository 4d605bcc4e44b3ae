// Configuration of training on sites that average their weights from time to time
// (docs/design/outer.md). Part of RunConfig (training/config/run_config.h).
#pragma once

#include <cstdint>
#include <string>

#include "parallel/outer/compression_config.h"

namespace trireme {

struct OuterConfig {
  int sites = 1;  // parts of the run that train apart; 1: all other members have no effect
  // Sites that are jobs of their own: index of this one, -1 if all are ranks of one job; address of
  // the hub that adds their updates; file with the secret that they share; longest wait of a round
  // for a site, and for a peer that is unreachable.
  int site = -1;
  std::string rendezvous, secret_file;
  double timeout_s = 60;
  std::string algorithm = "diloco";  // row of parallel/outer/outer_algorithms.h
  int64_t period = 100;              // steps between two rounds
  double lr = 0.7, momentum = 0.9;
  bool nesterov = true;
  int64_t warmup_steps = 0;  // first steps of the run: after each, the weights become their mean
  // Groups of layers whose rounds begin at different steps of the period (streaming DiLoCo).
  int fragments = 1;
  int64_t overlap_steps = 0;      // a round ends so many steps after it begins
  double mixing = 0;              // weight of a site's own weights in those it continues from
  CompressionConfig compression;  // of the updates that sites exchange

  bool enabled() const { return sites > 1; }
  bool is_remote() const { return site >= 0; }
  int sites_in_job() const { return is_remote() ? 1 : sites; }
  // Steps after which all fragments have a round that ends at once: those of the warm-up, and the
  // last one.
  bool is_joint(int64_t step, int64_t steps) const {
    return enabled() && (step <= warmup_steps || step == steps);
  }
  // Whether a round of the fragment begins after step number `step`, from 1, of a run of `steps`.
  bool is_round(int64_t step, int64_t steps, int fragment = 0) const {
    return is_joint(step, steps) || (enabled() && step % period == fragment * period / fragments);
  }
};

}  // namespace trireme
