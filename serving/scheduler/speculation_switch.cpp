#include "serving/scheduler/speculation_switch.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace trireme {
namespace {

constexpr double kKept = 31.0 / 32;  // weight that older steps keep with each new step

}  // namespace

void SpeculationSwitch::Rate::add(const DecodeTiming& step) {
  tokens = tokens * kKept + static_cast<double>(step.tokens);
  seconds = seconds * kKept + step.seconds;
  ++steps;
}

size_t SpeculationSwitch::index(int64_t sequences) {
  return static_cast<size_t>(
      std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, sequences))) - 1);
}

bool SpeculationSwitch::should_draft(int64_t sequences) const {
  const Load& load = loads_[index(sequences)];
  return load.on != (load.probing > 0);
}

void SpeculationSwitch::measured(const DecodeTiming& step) {
  if (std::exchange(speculated_, step.speculates) != step.speculates) settling_ = kSettling;
  if (step.speculates && step.draft_tokens == 0) return;
  if (settling_ > 0) {
    --settling_;
    return;
  }
  if (!(step.seconds > 0)) return;
  if (step.speculates != should_draft(step.sequences)) return;  // planned before the last switch
  Load& load = loads_[index(step.sequences)];
  (step.speculates ? load.with : load.without).add(step);
  if (load.probing > 0) {
    if (--load.probing > 0) return;
    load.interval = std::min(2 * load.interval, kMaxInterval);
    return decide(load);
  }
  decide(load);
  if (step.speculates != load.on || ++load.usual < load.interval) return;
  load.usual = 0;
  load.probing = kProbe;
  (load.on ? load.without : load.with) = {};
}

void SpeculationSwitch::decide(Load& load) {
  if (load.with.steps < kProbe || load.without.steps < kProbe) return;
  gain_ = load.with.value() / load.without.value();
  const bool on = gain_ >= (load.on ? 1.0 : kOnGain);
  if (on == load.on) return;
  load.on = on;
  load.usual = 0;
  load.interval = kFirstInterval;
  ++changes_;
}

}  // namespace trireme
