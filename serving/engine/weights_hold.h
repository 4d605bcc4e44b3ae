// What sequences have in common that belong to one answer: the rounds of a beam search, the texts
// of a request. All that are submitted with the same hold are computed with the same
// weights, also those that come later:
//
// - Handover::kWait waits until the hold is gone. Sequences of a hold that was there before go on meanwhile; a hold whose
//   first sequence comes later begins with the new weights.
// - Handover::kAbort ends what the hold has in the engine, and refuses what comes of it later.
//
// kKeep and kBeside take no notice. Whoever makes one lets it go as soon as no sequence of it will
// come any more.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace trireme {

// Sequences of one hold are added by one thread at a time.
class WeightsHold {
 public:
  WeightsHold() = default;
  ~WeightsHold();
  WeightsHold(const WeightsHold&) = delete;
  WeightsHold& operator=(const WeightsHold&) = delete;

  // An engine knows it.
  bool is_known() const { return !releases_.empty(); }
  // `release` is called at the end of this hold; of each engine, which must still be there then,
  // the first one counts.
  void on_end(const void* engine, std::function<void()> release);

 private:
  std::vector<std::pair<const void*, std::function<void()>>> releases_;
};

}  // namespace trireme
