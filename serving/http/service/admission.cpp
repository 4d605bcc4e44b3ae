#include "serving/http/service/admission.h"

#include <algorithm>

#include "serving/api/api_error.h"

namespace trireme {
namespace {

constexpr int64_t kRetryMs = 250, kClosedRetryMs = 1000;

}  // namespace

int64_t AdmissionLimits::share(int64_t active) const {
  const int64_t all = running + waiting;
  if (!several_tenants) return all;
  return active > 1 ? all / active : std::max(running, all / 2);
}

Admission::Ticket::~Ticket() { admission_.change(tenant_, -sequences_, -tokens_); }

void Admission::Ticket::set_prompt_tokens(int64_t tokens) {
  admission_.change(tenant_, 0, tokens - tokens_);
  tokens_ = tokens;
}

void Admission::Ticket::end_sequence() {
  admission_.change(tenant_, -1, 0);
  --sequences_;
}

void Admission::check(const std::string& tenant) const {
  const std::lock_guard lock(mutex_);
  check_locked(tenant, 1, 0);
}

std::unique_ptr<Admission::Ticket> Admission::enter(const std::string& tenant, int64_t sequences,
                                                    int64_t prompt_tokens) {
  {
    const std::lock_guard lock(mutex_);
    check_locked(tenant, sequences, prompt_tokens);
    sequences_ += sequences;
    tokens_ += prompt_tokens;
    Held& own = of_tenant_[tenant];
    own.sequences += sequences;
    own.tokens += prompt_tokens;
  }
  return std::make_unique<Ticket>(*this, tenant, sequences, prompt_tokens);
}

void Admission::check_locked(const std::string& tenant, int64_t sequences, int64_t tokens) const {
  if (!closed_code_.empty())
    throw ApiError(503, closed_message_, "", closed_code_).retry_after(kClosedRetryMs);
  const int64_t all = limits_.running + limits_.waiting;
  const bool over = is_over(tenant, sequences, tokens);
  const bool first = limits_.several_tenants && sequences == 1 && !of_tenant_.contains(tenant);
  const bool full = sequences_ + sequences > all && !first;
  const bool too_long = tokens_ > 0 && tokens_ > limits_.waiting_tokens - tokens;
  if (!full && !too_long && !over) return;
  const int64_t waiting = std::max<int64_t>(sequences_ - limits_.running, 0);
  const std::string message = too_long
                                  ? concat("queue full (prompts of ", tokens_, " tokens waiting)")
                                  : concat("queue full (", waiting, " waiting)");
  const auto own = of_tenant_.find(tenant);
  const bool alone = of_tenant_.empty() || (own != of_tenant_.end() && of_tenant_.size() == 1);
  const bool its_own = over || alone;
  if (its_own) throw ApiError(429, message, "", "queue_full").retry_after(kRetryMs);
  throw ApiError(503, message, "", "server_overloaded").retry_after(kRetryMs);
}

// Above the tenant's share. A tenant without sequences may submit as many as any request may have.
bool Admission::is_over(const std::string& tenant, int64_t sequences, int64_t tokens) const {
  const auto at = of_tenant_.find(tenant);
  if (at == of_tenant_.end()) return sequences > limits_.max_request_sequences();
  const Held& own = at->second;
  const auto active = std::ssize(of_tenant_);
  if (own.sequences + sequences > limits_.share(active)) return true;
  if (!limits_.several_tenants || own.tokens == 0) return false;
  return own.tokens > limits_.waiting_tokens / std::max<int64_t>(active, 2) - tokens;
}

void Admission::change(const std::string& tenant, int64_t sequences, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  sequences_ += sequences;
  tokens_ += tokens;
  const auto at = of_tenant_.find(tenant);
  if (at == of_tenant_.end()) return;
  at->second.sequences += sequences;
  at->second.tokens += tokens;
  if (at->second.sequences == 0 && at->second.tokens == 0) of_tenant_.erase(at);
}

void Admission::close(const std::string& code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  closed_code_ = code;
  closed_message_ = message;
}

void Admission::check_open() const {
  const std::lock_guard lock(mutex_);
  if (!closed_code_.empty())
    throw ApiError(503, closed_message_, "", closed_code_).retry_after(kClosedRetryMs);
}

int64_t Admission::sequences() const {
  const std::lock_guard lock(mutex_);
  return sequences_;
}

int64_t Admission::prompt_tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

}  // namespace trireme
