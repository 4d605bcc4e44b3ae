// Hold on one weight version for all sequences of a response: the rounds of a beam search, or the
// completions of a request. All sequences submitted with the same hold, also later ones, run with
// the same weights:
//
// - Handover::kWait waits until the hold ends. Sequences of a hold that was registered before the
//   change still start; a hold whose first sequence arrives later starts with the new weights.
// - Handover::kAbort ends the hold's sequences in the engine and refuses later ones.
//
// kKeep and kBeside ignore holds. A hold ends when it is destroyed. Its owners must do that as soon
// as no further sequence of it will be submitted.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace trireme {

// One thread at a time may submit sequences of a hold.
class WeightsHold {
 public:
  WeightsHold() = default;
  ~WeightsHold();
  WeightsHold(const WeightsHold&) = delete;
  WeightsHold& operator=(const WeightsHold&) = delete;

  // True once an engine has registered it.
  bool is_registered() const { return !releases_.empty(); }
  // Registers `release`, which is called when this hold ends; `engine` must still exist then. Later
  // calls for the same engine are ignored.
  void on_end(const void* engine, std::function<void()> release);

 private:
  std::vector<std::pair<const void*, std::function<void()>>> releases_;
};

}  // namespace trireme
