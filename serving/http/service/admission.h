// Admission control: admits or refuses a request before its prompt is tokenized, so that a refusal
// is cheap.
//
// Limits: `running` + `waiting` unfinished sequences, and waiting_tokens prompt tokens that are not
// computed yet. While no prompt token waits, a prompt of any length is admitted.
//
// With several tenants (API keys), those that have sequences share both limits equally. A single
// active tenant leaves half for others, but may always have `running` sequences. A tenant above its
// share keeps its sequences, and gets 429 until it is below. A tenant without sequences may submit
// one even when there are `running` + `waiting` of them: there are only as many tenants as keys.
// The limit on prompt tokens still applies to it. Other refusals are 503, or 429 while no other
// tenant has sequences.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace trireme {

struct AdmissionLimits {
  int64_t running = 256;               // sequences
  int64_t waiting = 1024;              // sequences
  int64_t waiting_tokens = INT64_MAX;  // prompt tokens
  bool several_tenants = false;        // the server has several API keys

  // Maximum sequences of one of `active` tenants; all sequences without several_tenants.
  int64_t share(int64_t active) const;
  // Maximum sequences of one request: a request for more could never be admitted.
  int64_t max_request_sequences() const { return share(1); }
};

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // Admission of one request. The destructor releases its remaining sequences and tokens.
  class Ticket {
   public:
    Ticket(Admission& admission, std::string tenant, int64_t sequences, int64_t prompt_tokens)
        : admission_(admission),
          tenant_(std::move(tenant)),
          sequences_(sequences),
          tokens_(prompt_tokens) {}
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    // Sets the prompt tokens not computed yet, without a check of the limits: when their number is
    // known, and whenever a prompt is computed.
    void set_prompt_tokens(int64_t tokens);
    void end_sequence();  // one of its sequences has ended

   private:
    Admission& admission_;
    std::string tenant_;
    int64_t sequences_, tokens_;
  };

  // Throws ApiError 429 or 503 if one more sequence would be refused now.
  void check(const std::string& tenant) const;
  // Admits `sequences` with about prompt_tokens in total, or throws like check().
  std::unique_ptr<Ticket> enter(const std::string& tenant, int64_t sequences,
                                int64_t prompt_tokens);
  // Refuses every request with 503, this code and message. Empty code: admits again.
  void close(const std::string& code, const std::string& message);
  void check_open() const;        // ApiError 503 while closed
  int64_t sequences() const;      // unfinished, of all tenants
  int64_t prompt_tokens() const;  // not computed yet, of all tenants

 private:
  void check_locked(const std::string& tenant, int64_t sequences, int64_t tokens) const;
  bool is_over(const std::string& tenant, int64_t sequences, int64_t tokens) const;
  void change(const std::string& tenant, int64_t sequences, int64_t tokens);

  AdmissionLimits limits_;
  mutable std::mutex mutex_;  // guards all below
  int64_t sequences_ = 0, tokens_ = 0;
  struct Held {
    int64_t sequences = 0, tokens = 0;
  };
  std::map<std::string, Held> of_tenant_;
  std::string closed_code_, closed_message_;
};

}  // namespace trireme
