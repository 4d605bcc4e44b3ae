// Input errors found by several ranks: each is reported once before the launcher ends the run.
//
// A launcher kills every rank as soon as the first one fails. So the rank that reports the message
// writes it while the others wait, and then all exit with the same code.
#pragma once

#include <functional>

#include "parallel/comm/communicator.h"

namespace trireme {

// InputError that some rank has already written to standard error: report nothing more.
class ReportedError : public InputError {
 public:
  using InputError::InputError;
};

// Collective: runs f on every rank. f may itself be collective if it then fails on all ranks or on
// none. When f throws InputError on any rank, the lowest rank with each distinct message writes it
// once (prefixed "rank 3: " unless it is rank 0), and every rank throws ReportedError. A group of
// one rank rethrows f's own exception. Other exceptions concern one rank only: they propagate
// there, and the other ranks see that rank as lost.
void agreed(Communicator& group, const std::function<void()>& f);

// Collective: runs f on rank 0 and returns its string on every rank; fails as agreed() does.
std::string from_rank_0(Communicator& group, const std::function<std::string()>& f);

// agreed() for the time before the ranks are connected. Every rank reads the same command line and
// files, so rank 0 throws f's InputError at once and its launcher ends the others, which wait five
// seconds for that so that only rank 0 reports. A rank that is still running after the wait
// rethrows, because the error is its own.
void before_connecting(const std::function<void()>& f);

}  // namespace trireme
