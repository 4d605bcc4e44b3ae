// Learning-rate schedules: the rate of every step, as a closed form.
#pragma once

#include "optim/config.h"

namespace trireme {

// Learning rate of update `step` (from 0) of `total_steps`. peak: the rate at the end of the
// warm-up (optimizer.params.lr). The warm-up is linear over warmup_steps; the first update uses
// peak / warmup_steps. After it, with min = min_lr and x from 0 to 1 the completed fraction of the
// decay:
//   constant      peak
//   linear        peak + (min - peak) x               x runs from the end of warm-up to decay_steps
//   cosine        min + (peak - min) (1 + cos(pi x)) / 2     (Loshchilov & Hutter 2017)
//   inverse_sqrt  peak sqrt(w / max(w, step + 1)), w = max(warmup_steps, 1), not below min
//   WSD           peak until the last decay_steps of the run, then down to min: linear, cosine,
//                 exponential (peak (min/peak)^x; peak 0.5^(10 x) if min is 0) or
//                 minus_sqrt (min + (peak - min) (1 - sqrt x))
// With log_warmup the warm-up is peak log(step + 1) / log(max(warmup_steps, 2)). decay_steps = 0
// means total_steps (WSD: a tenth of total_steps).
//
// With config.deepspeed: the rate of DeepSpeed's class (deepspeed/runtime/lr_schedules.py) after
// step + 1 calls of its step(), with w = max(warmup_steps, 2) and T = decay_steps:
//   warm-up       peak step / w, or with log_warmup peak log(step + 1) / log(w), for step < w
//   constant      peak
//   linear        x = (step - w) / max(T - w, 1)
//   cosine        x = (step - w + 1) / max(T - w, 1)
// x is limited to 1, whereas DeepSpeed's cosine rises again after T. DeepSpeed's engine runs its
// first update before the first call, at rate 0: its update k + 1 has the rate of our update k.
double learning_rate(const SchedulerConfig& config, double peak, int64_t step, int64_t total_steps);

}  // namespace trireme
