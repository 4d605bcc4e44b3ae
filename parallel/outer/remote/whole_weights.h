// Exchange of weights inside a site between the pieces of its ranks (parallel/outer/outer_state.h)
// and the whole units of the first rank (WholeModel), whatever the layout of the site.
#pragma once

#include <string>
#include <vector>

#include "parallel/groups.h"
#include "parallel/outer/remote/whole_model.h"

namespace trireme {

class WholeWeights {
 public:
  // pieces, store: of this rank. whole: on rank 0, else nullptr. All arguments must outlive this
  // object. Collective over the site, as gather() and scatter(). Determines sizes only, and sets
  // pieces.message_bytes.
  WholeWeights(Communicator& site, OuterState& pieces, const ParameterStore& store,
               WholeModel* whole, Ctx& ctx);

  // Allocates the messages, once. The first gather() or scatter() calls it.
  void allocate();

  // An array of the whole units of a fragment = that of the pieces of all ranks, and the reverse.
  // Where several ranks hold an element, their values must be equal.
  void gather(int fragment, Tensor OuterState::Unit::*to, Tensor OuterState::Unit::*from);
  void scatter(int fragment, Tensor OuterState::Unit::*from, Tensor OuterState::Unit::*to);

 private:
  // Part of a parameter in a piece of this rank.
  struct Span {
    const OuterState::Unit* unit;
    ParamHandle parameter;
    int64_t begin, elements;  // in the piece; of the parameter's box they begin at `first`
    int64_t first;
  };
  // Elements of a rank's message, in the order of its spans, and in a whole unit.
  struct Run {
    const OuterState::Unit* unit;
    int64_t in_unit, in_message, elements;
  };
  struct Fragment {
    std::vector<Span> spans;
    int64_t elements = 0;         // of this rank's message
    std::vector<int64_t> counts;  // rank 0: elements of each rank's message
    std::vector<Run> runs;        // rank 0: of all messages, one after the other
  };
  std::string describe(const Fragment& fragment) const;
  void add_runs(Fragment& fragment, const std::string& description, int64_t& at) const;
  void exchange(const Fragment& fragment, bool to_first);
  Tensor message(const Fragment& fragment) const;
  Tensor all_messages(const Fragment& fragment) const;

  Communicator& site_;
  const ParameterStore& store_;
  WholeModel* whole_;
  Ctx& ctx_;
  DType dtype_;
  std::vector<Fragment> fragments_;
  int64_t message_bytes_ = 0, all_messages_bytes_ = 0;  // of the largest fragment
  Buffer message_, all_messages_;
};

}  // namespace trireme
