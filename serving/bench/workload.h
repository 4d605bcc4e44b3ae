// Workload of a load run: its requests and their arrival times. Equal seeds give equal bytes and
// equal times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct WorkloadOptions {
  bool chat = false;
  std::string model = {};
  // "random": prompts of input_tokens random ids below vocab_size, for chats as many common words;
  //           the first prefix_tokens are the same in all prompts.
  // "sharegpt": first turns of the conversations in a ShareGPT file that have at least two turns.
  // "custom": JSON lines with "prompt", or for chats "messages", and optionally "output_tokens".
  std::string dataset = "random";
  std::string path = {};  // file of the dataset; not for "random"
  int64_t input_tokens = 1024, output_tokens = 128, prefix_tokens = 0;
  int64_t vocab_size = 256;
  uint64_t seed = 0;
  // JSON object whose members replace those of every request; null removes a member.
  std::string extra_body = {};
};

struct LoadRequest {
  std::string body;          // JSON
  int64_t input_tokens = 0;  // 0: only the server knows
};

// Makes `count` streaming requests at temperature 0; those of "random" ignore EOS. A file with
// fewer prompts is repeated. stream: name of the random stream, which gives a warm-up other prompts
// than the run ("random" only). InputError for an invalid extra_body, and for a file that cannot be
// read, is above 4 GiB, has no prompts or has an invalid format.
std::vector<LoadRequest> make_requests(const WorkloadOptions& options, int64_t count,
                                       const std::string& stream);

// Arrival times in seconds since the start. Gaps follow a gamma distribution of shape `burstiness`
// > 0 (1: a Poisson process; less: bursts; more: more even), scaled so that the last request
// arrives at count / rate, as in vLLM's benchmark. rate: requests per second; <= 0: all at once.
std::vector<double> arrival_times(int64_t count, double rate, double burstiness, uint64_t seed);

}  // namespace trireme
