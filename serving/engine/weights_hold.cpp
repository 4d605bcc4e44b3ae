#include "serving/engine/weights_hold.h"

#include <algorithm>

#include "engine/observe/log.h"

namespace trireme {

WeightsHold::~WeightsHold() {
  try {
    for (const auto& [engine, release] : releases_) release();
  } catch (const std::exception& error) {
    log_error("cannot release a hold on the weights: ", error.what());
  }
}

void WeightsHold::on_end(const void* engine, std::function<void()> release) {
  const bool registered =
      std::ranges::any_of(releases_, [&](const auto& r) { return r.first == engine; });
  if (!registered) releases_.emplace_back(engine, std::move(release));
}

}  // namespace trireme
