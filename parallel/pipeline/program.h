// Pipeline program of one rank, including messages: derived from a schedule, the same on every run.
//
// Every message is posted, that is, it is transferred while its rank computes
// (Communicator::post_send, post_recv). Before instruction i a rank, in this order,
//   1. allocates and posts the receives listed under i: those of instruction i + 1, so that a
//      message is transferred while instruction i computes (and those of instruction 0 itself at
//      the start),
//   2. waits for the sends listed under i and frees their memory,
//   3. waits for its input,
// then it computes and posts the send of the result.
//
// A send is listed under the first instruction at which its receive would be posted if all
// instructions took equally long. In that simulated time every wait is for an earlier event. So the
// ranks cannot deadlock, even if no message is buffered, and the order of allocations and frees
// depends on the schedule and not on timing.
#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/schedule.h"

namespace trireme {

struct PipelineMessage {
  int chunk = 0;  // of this rank: receiver or producer of the message
  int micro_batch = 0;
  bool gradient = false;  // received: of the output of `chunk`; sent: of its input
  int peer = 0;           // rank in the group
  int tag = 0;
};

struct ProgramStep {
  Instruction instruction;
  std::vector<int> post;     // receives to allocate and post
  std::vector<int> retire;   // sends to wait for, whose memory is then freed
  int receive = -1;          // index in receives of its input; -1: none, or computed by this rank
  int send = -1;             // index in sends of its result; -1: none, or used by this rank
  bool local_input = false;  // computed by this rank in an earlier step (a group of one rank)
  bool local_output = false;
};

struct RankProgram {
  std::vector<PipelineMessage> receives, sends;  // in the order of posting
  std::vector<ProgramStep> steps;
  std::vector<int> retire_last;  // sends to wait for after the last step
};

// Programs of all ranks. The schedule has passed check_schedule() or is a built-in one. The tags of
// the messages from one rank to another count up, modulo Communicator::kMaxTag + 1. InputError if a
// rank uses two messages with the same tag in an order other than that of sending (custom schedules
// only).
std::vector<RankProgram> make_programs(const Schedule& schedule);

// Simulates the programs of all ranks without buffering: a message is transferred once both sides
// have posted it. Returns "" or the error: a rank that waits forever, or mismatched messages.
std::string check_programs(const std::vector<RankProgram>& programs);

// Pairs of ranks between which messages are sent, sorted; the same on every rank.
std::vector<MessagePath> message_paths(const std::vector<RankProgram>& programs);
// Checks that between any two ranks receives are posted in the order of the sends. Returns "" or
// the first violation.
std::string check_message_order(const std::vector<RankProgram>& programs);

// Number of messages sent by all ranks together: 2 (p v - 1) m in training, half of it in a forward
// pass, none with one rank.
int64_t message_count(const Schedule& schedule);

}  // namespace trireme
