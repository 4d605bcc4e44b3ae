// The requests of a load run and when they arrive. Equal seeds give equal bytes and equal times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct WorkloadOptions {
  bool chat = false;
  std::string model = {};
  // "random": prompts of input_tokens tokens each, the first prefix_tokens of which all share; ids
  // below vocab_size, in chats as many common words. "sharegpt": the first turns of a ShareGPT
  // file's conversations. "custom": JSON lines with "prompt" or "messages", and "output_tokens"
  // where they differ.
  std::string dataset = "random";
  std::string path = {};
  int64_t input_tokens = 1024, output_tokens = 128, prefix_tokens = 0;
  int64_t vocab_size = 256;
  uint64_t seed = 0;
  // JSON: members that replace those of every request; null takes one away.
  std::string extra_body = {};
};

struct LoadRequest {
  std::string body;          // JSON
  int64_t input_tokens = 0;  // 0: known to the server only
};

// `count` requests; a file with fewer is read around. stream_id keeps those of a warm-up and of the
// run apart ("random" only). InputError for what cannot be read or is too large.
std::vector<LoadRequest> make_requests(const WorkloadOptions& options, int64_t count,
                                       const std::string& stream);

// Seconds after the beginning at which requests arrive: gaps from a gamma distribution of shape
// `burstiness` (1: a Poisson process; less: in bursts; more: evenly), scaled so that the last comes
// at count / rate, as vLLM's benchmark has it. rate <= 0: all at once.
std::vector<double> arrival_times(int64_t count, double rate, double burstiness, uint64_t seed);

}  // namespace trireme
