// What one rank does, messages included: derived from a schedule, the same on every run.
//
// Every message is posted, that is, it travels while its rank does other things (Communicator::
// post_send, post_recv). Before instruction i a rank, in this order,
//   1. allocates and posts the receives listed under i: those of instruction i + 1, so that a message
//      travels while instruction i computes (and those of instruction 0 itself at the beginning),
//   2. waits for the sends listed under i and frees what they sent,
//   3. waits for its input,
// then it computes and posts the send of the result.
//
// A send is listed under the first instruction at which, were all instructions equally long, its
// receive has been posted. So a wait for a send ends without the receiver having to get further
// than it would anyway: in the order of that imagined time every wait is for something earlier, and
// the ranks cannot wait for each other in a circle, even where no message is buffered. It also
// makes the order of allocations and releases a matter of the schedule and not of the clock.
#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/schedule.h"

namespace trireme {

struct PipelineMessage {
  int chunk = 0;  // of this rank: who receives it, or who made it
  int micro_batch = 0;
  bool gradient = false;  // of the output of `chunk`, when received; of its input, when sent
  int peer = 0;           // rank in the group
  int tag = 0;
};

struct ProgramStep {
  Instruction instruction;
  std::vector<int> post;     // receives to allocate and start
  std::vector<int> retire;   // sends to wait for, whose memory is then free
  int receive = -1;          // its input, among receives; -1: none, or made by this rank
  int send = -1;             // its result, among sends; -1: none, or used by this rank
  bool local_input = false;  // made by this rank in an earlier step (a group of one rank)
  bool local_output = false;
};

struct RankProgram {
  std::vector<PipelineMessage> receives, sends;  // in the order of posting
  std::vector<ProgramStep> steps;
  std::vector<int> retire_last;  // after the last step
};

// Of all ranks. The schedule has passed check_schedule() or is one of ours. InputError when more
// than a communicator's tags are under way between two ranks out of order (custom schedules only).
std::vector<RankProgram> make_programs(const Schedule& schedule);

// Runs the programs of all ranks in thought, with sends and receives that block until the other
// side has posted, and nothing buffered. "" or what the ranks wait for.
std::string check_programs(const std::vector<RankProgram>& programs);

// Between which ranks messages travel, in order; the same on every rank.
std::vector<MessagePath> message_paths(const std::vector<RankProgram>& programs);
// Whether between each two ranks messages are posted for receipt in the order in which they are
// sent: "" or where not.
std::string check_message_order(const std::vector<RankProgram>& programs);

// Messages that all ranks together send: 2 (p v - 1) m in training, half of it in a forward pass,
// none with one rank.
int64_t message_count(const Schedule& schedule);

}  // namespace trireme
