#include "parallel/pipeline/executor.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One pass of one rank.
class Pass {
 public:
  Pass(const RankProgram& program, Communicator& group, bool trains, PipelineStage& stage, Ctx& ctx)
      : program_(program),
        group_(group),
        trains_(trains),
        stage_(stage),
        ctx_(ctx),
        sends_(program.sends.size()),
        receives_(program.receives.size()) {}

  PipelineReport run() {
    const Clock::time_point start = Clock::now();
    try {
      for (const ProgramStep& step : program_.steps) {
        run_step(step);
        first_ = false;
      }
      for (const int send : program_.retire_last) retire(send);
    } catch (const std::exception& error) {
      give_up(error.what());
      throw;
    }
    TRIREME_CHECK(local_.empty(), "pipeline pass ends with ", local_.size(), " unused activations");
    report_.seconds = seconds_since(start);
    return report_;
  }

 private:
  // A message and its memory, from posting until the stage takes it or it has been sent.
  struct Flight {
    Activation memory;
    Work work;
  };
  // Key of a result that the same rank uses: gradient, consuming model chunk, micro-batch.
  using LocalKey = std::tuple<bool, int, int>;

  static LocalKey key_of_input(const Instruction& in) {
    return {in.kind != InstructionKind::kForward, in.chunk, in.micro_batch};
  }
  // In a group of one rank the chunks of the rank are those of the model.
  static LocalKey key_of_output(const Instruction& in) {
    const bool gradient = in.kind != InstructionKind::kForward;
    return {gradient, in.chunk + (gradient ? -1 : 1), in.micro_batch};
  }

  void run_step(const ProgramStep& step) {
    for (const int receive : step.post) post(receive);
    for (const int send : step.retire) retire(send);
    Activation input;
    if (step.receive >= 0) {
      Flight& flight = receives_[static_cast<size_t>(step.receive)];
      wait(flight.work);
      input = std::move(flight.memory);
    } else if (step.local_input) {
      const auto found = local_.find(key_of_input(step.instruction));
      TRIREME_CHECK(found != local_.end(), step.instruction, ": its input is missing");
      input = std::move(found->second);
      local_.erase(found);
    }
    Activation output = compute(step.instruction, std::move(input));
    const bool wanted = step.send >= 0 || step.local_output;
    TRIREME_CHECK(output.present() == wanted, step.instruction,
                  wanted ? " returned no" : " returned an", " activation");
    if (step.send >= 0)
      send(step.send, std::move(output));
    else if (step.local_output)
      local_[key_of_output(step.instruction)] = std::move(output);
  }

  Activation compute(const Instruction& in, Activation input) {
    switch (in.kind) {
      case InstructionKind::kForward:
        report_.peak_in_flight = std::max(report_.peak_in_flight, ++in_flight_);
        if (!trains_) --in_flight_;
        return stage_.forward(in.chunk, in.micro_batch, std::move(input));
      case InstructionKind::kBackwardInput:
        return stage_.backward_input(in.chunk, in.micro_batch, std::move(input));
      case InstructionKind::kBackward:
      case InstructionKind::kBackwardWeight: break;
    }
    Activation d_input;
    if (in.kind == InstructionKind::kBackward)
      d_input = stage_.backward_input(in.chunk, in.micro_batch, std::move(input));
    stage_.backward_weight(in.chunk, in.micro_batch);
    --in_flight_;
    return d_input;
  }

  void post(int receive) {
    const PipelineMessage& m = program_.receives[static_cast<size_t>(receive)];
    Flight& flight = receives_[static_cast<size_t>(receive)];
    flight.memory = stage_.allocate_message(m.chunk, m.micro_batch, m.gradient);
    if (!ctx_.planning()) flight.work = group_.post_recv(*flight.memory, m.peer, m.tag);
  }

  void send(int send, Activation output) {
    const PipelineMessage& m = program_.sends[static_cast<size_t>(send)];
    Flight& flight = sends_[static_cast<size_t>(send)];
    flight.memory = std::move(output);
    if (!ctx_.planning()) flight.work = group_.post_send(*flight.memory, m.peer, m.tag);
  }

  void retire(int send) {
    Flight& flight = sends_[static_cast<size_t>(send)];
    wait(flight.work);
    flight.memory.reset();
  }

  void wait(const Work& work) {
    if (ctx_.planning()) return;
    const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
    const Clock::time_point start = Clock::now();
    work.wait();
    const double spent = seconds_since(start);
    report_.idle_seconds += spent;
    if (first_) report_.first_seconds += spent;
  }

  // Aborts and waits, so that no transfer reads or writes memory that is about to be freed.
  void give_up(const char* reason) noexcept {
    const auto open = [](const std::vector<Flight>& flights) {
      return std::ranges::any_of(flights, [](const Flight& f) {
        try {
          return !f.work.done();
        } catch (const std::exception&) {
          return true;  // a failed device reports no completion
        }
      });
    };
    if (!open(sends_) && !open(receives_)) return;
    group_.abort(
        concat("rank ", group_.rank(), " of group \"", group_.name(), "\" failed: ", reason));
    for (const std::vector<Flight>* flights : {&sends_, &receives_})
      for (const Flight& flight : *flights) try {
          flight.work.wait();
        } catch (const std::exception&) {
          // The loss that was just reported.
        }
  }

  const RankProgram& program_;
  Communicator& group_;
  bool trains_;
  PipelineStage& stage_;
  Ctx& ctx_;
  std::vector<Flight> sends_, receives_;
  std::map<LocalKey, Activation> local_;
  bool first_ = true;
  int in_flight_ = 0;
  PipelineReport report_;
};

}  // namespace

PipelineExecutor::PipelineExecutor(const Schedule& schedule, Communicator& group)
    : group_(group), trains_(schedule.trains()) {
  TRIREME_CHECK(group.size() == schedule.stages, "schedule of ", schedule.stages,
                " stages for group \"", group.name(), "\" of ", group.size(), " ranks");
  std::vector<RankProgram> programs = make_programs(schedule);
  if (!group.device_backend().empty()) {
    const std::string wrong = check_message_order(programs);
    if (!wrong.empty())
      fail_input("schedule ", schedule.name, ": ", wrong,
                 ", which is not supported for GPU tensors");
    group.open_paths(message_paths(programs));
  }
  program_ = std::move(programs[static_cast<size_t>(group.rank())]);
}

PipelineReport PipelineExecutor::run(PipelineStage& stage, Ctx& ctx) const {
  return Pass(program_, group_, trains_, stage, ctx).run();
}

}  // namespace trireme
