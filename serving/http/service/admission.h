// How much work a server takes: decided before a prompt is tokenized, so that a refusal costs
// nothing.
//
// Sequences that were admitted and have not ended are at most `running` + `waiting`, and the tokens
// of prompts among them that have not been computed at most waiting_tokens (one request is always
// taken, however long). Where there are several tenants (API keys), those that have sequences here
// share the places evenly, and a tenant alone leaves half of them, but never a place to run, to one
// that may come. A tenant above its share keeps what it has and gets 429 until it is below. One
// without sequences always has a place for one, beside all others where these are taken: tenants
// are as many as there are keys. Everyone else gets 503.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace trireme {

struct AdmissionLimits {
  int64_t running = 256;
  int64_t waiting = 1024;
  int64_t waiting_tokens = INT64_MAX;
  bool several_tenants = false;

  // Share of one of `active` tenants.
  int64_t share(int64_t active) const;
  // Sequences that a request may ask for: more would be refused for ever.
  int64_t of_a_tenant() const { return share(1); }
};

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // A request's place. When the last copy is gone, so is what it holds.
  class Place {
   public:
    Place(Admission& admission, std::string tenant, int64_t sequences, int64_t prompt_tokens)
        : admission_(admission),
          tenant_(std::move(tenant)),
          sequences_(sequences),
          tokens_(prompt_tokens) {}
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    void set_prompt_tokens(int64_t tokens);  // now that they are known; 0: they are computed
    void end_sequence();                     // one of its sequences has ended

   private:
    Admission& admission_;
    std::string tenant_;
    int64_t sequences_, tokens_;
  };

  // ApiError 429 or 503 where one more sequence has no place, or none is taken any more.
  void check(const std::string& tenant) const;
  // The same for so many, whose prompts have about that many tokens.
  std::unique_ptr<Place> enter(const std::string& tenant, int64_t sequences, int64_t prompt_tokens);
  // Nothing is admitted any more: 503 with this code and message. Empty: again.
  void close(const std::string& code, const std::string& message);
  void check_open() const;  // 503 where nothing is admitted
  int64_t sequences() const;
  int64_t prompt_tokens() const;

 private:
  void check_locked(const std::string& tenant, int64_t sequences, int64_t tokens) const;
  bool is_over(const std::string& tenant, int64_t sequences, int64_t tokens) const;
  void change(const std::string& tenant, int64_t sequences, int64_t tokens);

  AdmissionLimits limits_;
  mutable std::mutex mutex_;  // of all below
  int64_t sequences_ = 0, tokens_ = 0;
  struct Held {
    int64_t sequences = 0, tokens = 0;
  };
  std::map<std::string, Held> of_tenant_;
  std::string closed_code_, closed_message_;
};

}  // namespace trireme
