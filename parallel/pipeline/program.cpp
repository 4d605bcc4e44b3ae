#include "parallel/pipeline/program.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/core/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/simulate.h"

namespace trireme {
namespace {

constexpr int kTags = Communicator::kMaxTag + 1;

// Rank and step of an instruction.
struct StepPosition {
  int rank = -1;
  int step = -1;
};

class Builder {
 public:
  explicit Builder(const Schedule& schedule)
      : schedule_(schedule),
        timeline_(simulate(schedule, {})),
        programs_(static_cast<size_t>(schedule.stages)),
        sources_(programs_.size()),
        consumers_(programs_.size()) {
    const size_t visits =
        static_cast<size_t>(schedule.model_chunks()) * static_cast<size_t>(schedule.micro_batches);
    forwards_.resize(visits);
    backwards_.resize(visits);
  }

  std::vector<RankProgram> build() {
    for (int r = 0; r < schedule_.stages; ++r) add_steps(r);
    for (int r = 0; r < schedule_.stages; ++r)
      for (int i = 0; i < std::ssize(program(r).steps); ++i) route({r, i});
    for (int r = 0; r < schedule_.stages; ++r) post_receives(r);
    for (int r = 0; r < schedule_.stages; ++r) retire_sends(r);
    return std::move(programs_);
  }

 private:
  // Message that brings a step's input: the number-th from peer; peer -1: none.
  struct Source {
    int peer = -1;
    int number = 0;
  };

  RankProgram& program(int rank) { return programs_[static_cast<size_t>(rank)]; }
  ProgramStep& step(const StepPosition& at) {
    return program(at.rank).steps[static_cast<size_t>(at.step)];
  }
  StepPosition& position_of(std::vector<StepPosition>& table, int model_chunk,
                            int micro_batch) const {
    return table[static_cast<size_t>(model_chunk) * static_cast<size_t>(schedule_.micro_batches) +
                 static_cast<size_t>(micro_batch)];
  }

  void add_steps(int rank) {
    for (const Instruction& in : schedule_.ranks[static_cast<size_t>(rank)]) {
      const int chunk = schedule_.model_chunk(rank, in.chunk);
      const StepPosition here{rank, static_cast<int>(program(rank).steps.size())};
      program(rank).steps.emplace_back().instruction = in;
      if (in.kind == InstructionKind::kForward)
        position_of(forwards_, chunk, in.micro_batch) = here;
      else if (in.kind != InstructionKind::kBackwardWeight)
        position_of(backwards_, chunk, in.micro_batch) = here;
    }
    sources_[static_cast<size_t>(rank)].resize(program(rank).steps.size());
  }

  // Connects a step's result to the step that uses it.
  void route(const StepPosition& from) {
    const Instruction in = step(from).instruction;
    if (in.kind == InstructionKind::kBackwardWeight) return;
    const bool gradient = in.kind != InstructionKind::kForward;
    const int chunk = schedule_.model_chunk(from.rank, in.chunk) + (gradient ? -1 : 1);
    if (chunk < 0 || chunk == schedule_.model_chunks()) return;
    const StepPosition to = position_of(gradient ? backwards_ : forwards_, chunk, in.micro_batch);
    if (to.rank == from.rank) {
      step(from).local_output = step(to).local_input = true;
      return;
    }
    const int number = sent_[{from.rank, to.rank}]++;
    sources_[static_cast<size_t>(to.rank)][static_cast<size_t>(to.step)] = {from.rank, number};
    consumers_[static_cast<size_t>(from.rank)].push_back(to);
    std::vector<PipelineMessage>& sends = program(from.rank).sends;
    step(from).send = static_cast<int>(sends.size());
    sends.push_back({in.chunk, in.micro_batch, gradient, to.rank, number % kTags});
  }

  void post_receives(int rank) {
    RankProgram& mine = program(rank);
    std::map<int, std::vector<int>> last;  // by peer and tag: number of the latest message
    for (int i = 0; i < std::ssize(mine.steps); ++i) {
      const Source& source = sources_[static_cast<size_t>(rank)][static_cast<size_t>(i)];
      if (source.peer < 0) continue;
      const Instruction& in = mine.steps[static_cast<size_t>(i)].instruction;
      std::vector<int>& of_peer = last[source.peer];
      of_peer.resize(kTags, -1);
      int& latest = of_peer[static_cast<size_t>(source.number % kTags)];
      if (latest > source.number) {
        fail_input("schedule ", schedule_.name, ": rank ", rank, ", instruction ", i, " (", in,
                   ") uses a message after one that was sent more than ", kTags, " messages later");
      }
      latest = source.number;
      const int receive = static_cast<int>(mine.receives.size());
      const bool gradient = in.kind != InstructionKind::kForward;
      mine.receives.push_back(
          {in.chunk, in.micro_batch, gradient, source.peer, source.number % kTags});
      mine.steps[static_cast<size_t>(i)].receive = receive;
      mine.steps[static_cast<size_t>(std::max(0, i - 1))].post.push_back(receive);
    }
  }

  // Simulated time at which a rank reaches a step: the end of the step before.
  double reached(const StepPosition& at) const {
    if (at.step <= 0) return 0;
    const Timeline::Rank& rank = timeline_.ranks[static_cast<size_t>(at.rank)];
    return rank.spans[static_cast<size_t>(at.step - 1)].end;
  }

  void retire_sends(int rank) {
    RankProgram& mine = program(rank);
    const int end = static_cast<int>(mine.steps.size());
    for (int i = 0; i < end; ++i) {
      const int send = mine.steps[static_cast<size_t>(i)].send;
      if (send < 0) continue;
      const StepPosition to = consumers_[static_cast<size_t>(rank)][static_cast<size_t>(send)];
      const double posted = reached({to.rank, to.step - 1});
      int at = i + 1;
      while (at < end && reached({rank, at}) < posted) ++at;
      (at < end ? mine.steps[static_cast<size_t>(at)].retire : mine.retire_last).push_back(send);
    }
  }

  const Schedule& schedule_;
  Timeline timeline_;
  std::vector<RankProgram> programs_;
  std::vector<std::vector<Source>> sources_;          // by rank and step
  std::vector<std::vector<StepPosition>> consumers_;  // by rank and send
  std::vector<StepPosition> forwards_, backwards_;    // by model chunk and micro-batch
  std::map<std::pair<int, int>, int> sent_;           // by sender and receiver: messages so far
};

// Execution of the programs with sends and receives that wait for their counterpart.
class Rendezvous {
 public:
  explicit Rendezvous(const std::vector<RankProgram>& programs)
      : programs_(programs), ranks_(programs.size()) {
    for (size_t r = 0; r < programs.size(); ++r) {
      ranks_[r].sends.resize(programs[r].sends.size(), -1);
      ranks_[r].receives.resize(programs[r].receives.size(), -1);
    }
  }

  std::string run() {
    for (bool moved = true; moved && wrong_.empty();) {
      moved = false;
      for (size_t r = 0; r < ranks_.size(); ++r)
        while (wrong_.empty() && advance(static_cast<int>(r))) moved = true;
    }
    for (size_t r = 0; r < ranks_.size() && wrong_.empty(); ++r)
      if (!ranks_[r].ended) wrong_ = concat("rank ", r, " waits forever at step ", ranks_[r].step);
    for (const auto& [key, channel] : channels_)
      if (wrong_.empty() && channel.sent.size() != channel.received.size())
        wrong_ =
            concat(channel.sent.size(), " messages sent, ", channel.received.size(), " received");
    return wrong_;
  }

 private:
  // Messages with one sender, receiver and tag; the k-th sent is the k-th received.
  struct Channel {
    std::vector<const PipelineMessage*> sent, received;
  };
  struct Rank {
    size_t step = 0;
    bool posted = false;  // the step's receives
    bool ended = false;
    std::vector<int> sends, receives;  // number within the channel; -1: not posted yet
  };

  Channel& channel(int from, int to, int tag) { return channels_[{from, to, tag}]; }

  void post(int rank, int index, bool send) {
    const auto r = static_cast<size_t>(rank), i = static_cast<size_t>(index);
    const PipelineMessage& m = send ? programs_[r].sends[i] : programs_[r].receives[i];
    Channel& way = send ? channel(rank, m.peer, m.tag) : channel(m.peer, rank, m.tag);
    auto& list = send ? way.sent : way.received;
    (send ? ranks_[r].sends : ranks_[r].receives)[i] = static_cast<int>(list.size());
    list.push_back(&m);
  }

  // True if the counterpart of a posted message has been posted too.
  bool met(int rank, int index, bool send) {
    const auto r = static_cast<size_t>(rank), i = static_cast<size_t>(index);
    const PipelineMessage& m = send ? programs_[r].sends[i] : programs_[r].receives[i];
    const int number = (send ? ranks_[r].sends : ranks_[r].receives)[i];
    Channel& way = send ? channel(rank, m.peer, m.tag) : channel(m.peer, rank, m.tag);
    const auto& other = send ? way.received : way.sent;
    if (number < 0) wrong_ = concat("rank ", rank, " waits for a message it has not posted");
    if (number < 0 || number >= std::ssize(other)) return false;
    const PipelineMessage& met = *other[static_cast<size_t>(number)];
    if (met.micro_batch != m.micro_batch || met.gradient != m.gradient)
      wrong_ = concat("rank ", rank, ": a send matches a receive of another micro-batch");
    return true;
  }

  bool all_met(int rank, const std::vector<int>& sends) {
    return std::ranges::all_of(sends, [&](int s) { return met(rank, s, true); });
  }

  bool advance(int rank) {
    Rank& state = ranks_[static_cast<size_t>(rank)];
    const RankProgram& program = programs_[static_cast<size_t>(rank)];
    if (state.ended) return false;
    if (state.step == program.steps.size()) return state.ended = all_met(rank, program.retire_last);
    const ProgramStep& step = program.steps[state.step];
    if (!state.posted) {
      for (const int receive : step.post) post(rank, receive, false);
      return state.posted = true;
    }
    if (!all_met(rank, step.retire)) return false;
    if (step.receive >= 0 && !met(rank, step.receive, false)) return false;
    if (step.send >= 0) post(rank, step.send, true);
    ++state.step;
    state.posted = false;
    return true;
  }

  const std::vector<RankProgram>& programs_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, int>, Channel> channels_;
  std::string wrong_;
};

}  // namespace

std::vector<RankProgram> make_programs(const Schedule& schedule) {
  return Builder(schedule).build();
}

std::string check_programs(const std::vector<RankProgram>& programs) {
  return Rendezvous(programs).run();
}

std::vector<MessagePath> message_paths(const std::vector<RankProgram>& programs) {
  std::set<MessagePath> paths;
  for (int r = 0; r < std::ssize(programs); ++r)
    for (const PipelineMessage& m : programs[static_cast<size_t>(r)].sends)
      paths.insert({r, m.peer});
  return {paths.begin(), paths.end()};
}

std::string check_message_order(const std::vector<RankProgram>& programs) {
  using Name = std::pair<int, bool>;  // tag, gradient: tags number the messages of a path
  std::map<MessagePath, std::vector<Name>> sent, received;
  for (int r = 0; r < std::ssize(programs); ++r) {
    const RankProgram& program = programs[static_cast<size_t>(r)];
    for (const PipelineMessage& m : program.sends) sent[{r, m.peer}].push_back({m.tag, m.gradient});
    for (const ProgramStep& step : program.steps)
      for (const int receive : step.post) {
        const PipelineMessage& m = program.receives[static_cast<size_t>(receive)];
        received[{m.peer, r}].push_back({m.tag, m.gradient});
      }
  }
  for (const auto& [path, order] : sent)
    if (received[path] != order)
      return concat("rank ", path.to, " uses messages of rank ", path.from,
                    " in another order than they are sent");
  return "";
}

int64_t message_count(const Schedule& schedule) {
  if (schedule.stages == 1) return 0;
  const int64_t one_way = int64_t{schedule.model_chunks() - 1} * schedule.micro_batches;
  return schedule.trains() ? 2 * one_way : one_way;
}

}  // namespace trireme
