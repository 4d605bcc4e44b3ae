// Mistakes that several ranks find: said once, by one of them, before the launcher ends the run.
//
// A launcher kills every rank as soon as the first one fails. So whoever has the message writes it
// while the others wait, and then all end with the same exit code.
#pragma once

#include <functional>

#include "parallel/comm/communicator.h"

namespace trireme {

// An InputError that has been written to standard error by some rank: say nothing more.
class ReportedError : public InputError {
 public:
  using InputError::InputError;
};

// Collective. Runs f on every rank; f may be collective itself when it then fails on all ranks or
// on none. When f throws InputError anywhere, each different message is written once, by the lowest
// rank that has it ("rank 3: " before it unless that is rank 0), and every rank throws
// ReportedError. A group of one rank throws what f throws. Other exceptions are a rank's own: they
// pass, and the others find it lost.
void agreed(Communicator& group, const std::function<void()>& f);

// Collective. f runs on rank 0; every rank gets its string, or the failure as agreed() has it.
std::string from_rank_0(Communicator& group, const std::function<std::string()>& f);

// The same before the ranks are connected, where they cannot agree. Every rank reads the same
// command line and files: rank 0 throws f's InputError at once and its launcher ends the others,
// who wait for that so that one speaks. A rank that is not ended found a mistake of its own and
// throws it.
void before_connecting(const std::function<void()>& f);

}  // namespace trireme
