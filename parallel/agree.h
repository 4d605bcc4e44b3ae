// Agreement of ranks on input errors: each distinct error is reported once before the launcher ends
// the run.
//
// A launcher kills every rank as soon as the first one fails. So the rank that reports the message
// writes it while the others wait, and then all exit with the same code.
#pragma once

#include <functional>

#include "parallel/comm/communicator.h"

namespace trireme {

// Input error that a rank has already written to standard error. Handlers must not report it again.
class ReportedError : public InputError {
 public:
  using InputError::InputError;
};

// Collective: runs f on every rank. f may itself be collective if it then fails on all ranks or on
// none. When f throws InputError on any rank, the lowest rank with each distinct message writes it
// once (prefixed "rank 3: " unless it is rank 0), and every rank throws ReportedError with the
// message of the lowest rank that failed. In a group of one rank f's own exception propagates.
// Exceptions other than InputError concern one rank only: they propagate there, and the other ranks
// see that rank as lost.
void agreed(Communicator& group, const std::function<void()>& f);

// Collective: runs f on rank 0 and returns its string on every rank; fails as agreed() does.
std::string from_rank_0(Communicator& group, const std::function<std::string()>& f);

// agreed() before the ranks are connected. First sets the rank of log messages (set_log_rank()).
// Every rank reads the same command line and files, so an InputError of f usually occurs on all
// ranks, and only rank 0 should report it. Rank 0 rethrows it at once, and its launcher then ends
// the other ranks. Each of these waits five seconds for that end. A rank that still runs after the
// wait rethrows, because rank 0 did not have the error.
void before_connecting(const std::function<void()>& f);

}  // namespace trireme
