#include "serving/engine/replicas.h"

#include <bit>

#include "engine/core/error.h"

namespace trireme {
namespace {

ServerSet all_but(size_t replica) { return ~(ServerSet{1} << replica); }

// Prefix blocks of the prompt, its tokens taken as bytes.
std::vector<uint64_t> blocks_of(const SequenceRequest& request) {
  const std::string_view bytes(reinterpret_cast<const char*>(request.prompt.data()),
                               request.prompt.size() * sizeof(int32_t));
  return prefix_blocks(bytes, prefix_scope(concat(request.adapter, ":", request.salt)));
}

}  // namespace

Replicas::Replicas(std::vector<std::unique_ptr<Engine>> engines, const BalanceRule& rule)
    : choice_(engines.size(), rule), engines_(std::move(engines)) {}

Replicas::~Replicas() { stop(); }

// Updates which engines can run.
void Replicas::look() {
  for (size_t i = 0; i < engines_.size(); ++i) {
    const bool able = engines_[i]->failure().empty();
    // An engine that could not run has lost its cache.
    if (able != choice_.is_up(i)) choice_.set_up(i, able, !able);
  }
}

Replicas::Placement Replicas::find_placement(std::span<const uint64_t> blocks, ServerSet others) {
  look();
  const std::optional<ServerChoice::Chosen> chosen = choice_.begin(blocks, others);
  // None can run: the engine returned will report why.
  if (!chosen) return {static_cast<size_t>(std::countr_one(others))};
  const size_t replica = chosen->server;
  return {replica, std::shared_ptr<const void>(
                       nullptr, [this, replica](const void*) { choice_.end(replica); })};
}

Replicas::Placement Replicas::best_placement(const SequenceRequest& request) {
  if (size() == 1) return {};
  return find_placement(blocks_of(request), 0);
}

Replicas::Placement Replicas::placement_on(size_t replica) {
  if (size() == 1) return {};
  return find_placement({}, all_but(replica));
}

// The listener holds the load; an engine drops it when the sequence ends, for whatever reason.
SequenceListener Replicas::with_replica(const Placement& placement,
                                        SequenceListener listener) const {
  if (size() == 1) return listener;
  return [placement, listener = std::move(listener)](SequenceEvent&& event) {
    event.replica = placement.replica;
    listener(std::move(event));
  };
}

// Registers the hold on all engines, wherever its sequences will run. Otherwise the change of one
// replica could wait for sequences that wait for the change of another.
void Replicas::register_hold(const std::shared_ptr<WeightsHold>& hold) {
  if (hold == nullptr || size() == 1 || hold->is_registered()) return;
  const std::lock_guard lock(order_);
  for (const auto& engine : engines_) engine->register_hold(hold);
}

SequenceId Replicas::add(SequenceRequest request, SequenceListener listener,
                         const std::shared_ptr<WeightsHold>& hold, SequenceId beside) {
  register_hold(hold);
  const Placement placement =
      beside == 0 ? best_placement(request) : placement_on(replica_of(beside));
  return id_of(placement.replica,
               engines_[placement.replica]->add(
                   std::move(request), with_replica(placement, std::move(listener)), hold));
}

std::vector<SequenceId> Replicas::add_siblings(
    const SequenceRequest& request, size_t n,
    const std::function<SequenceListener(size_t)>& listener_of,
    const std::shared_ptr<WeightsHold>& hold) {
  register_hold(hold);
  const Placement first = best_placement(request);
  std::vector<SequenceId> ids = engines_[first.replica]->add_siblings(
      request, n,
      [&](size_t i) {
        return with_replica(i == 0 ? first : placement_on(first.replica), listener_of(i));
      },
      hold);
  for (SequenceId& id : ids) id = id_of(first.replica, id);
  return ids;
}

void Replicas::cancel(SequenceId id) { engines_[replica_of(id)]->cancel(id / engines_.size()); }

void Replicas::forget_prefixes() {
  for (const auto& engine : engines_) engine->forget_prefixes();
}

void Replicas::change_weights(Handover how, const std::function<void(size_t)>& change) {
  std::vector<std::future<void>> changes;
  {
    const std::lock_guard lock(order_);
    for (size_t i = 0; i < size(); ++i)
      changes.push_back(engines_[i]->change_weights(how, [change, i] { change(i); }));
  }
  std::exception_ptr first;
  for (std::future<void>& one : changes) {
    try {
      one.get();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void Replicas::stop() {
  for (const auto& engine : engines_) engine->stop();
}

std::vector<EngineCounts> Replicas::counts() const {
  std::vector<EngineCounts> out;
  out.reserve(size());
  for (const auto& engine : engines_) out.push_back(engine->counts());
  return out;
}

Failure Replicas::failure() const {
  Failure first;
  for (const auto& engine : engines_) {
    const Failure failure = engine->failure();
    if (failure.empty()) return {};
    if (first.empty()) first = failure;
  }
  return first;
}

}  // namespace trireme
