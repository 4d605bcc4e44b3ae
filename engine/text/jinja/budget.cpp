#include "engine/text/jinja/budget.h"

#include "engine/core/error.h"

namespace trireme::jinja {
namespace {
thread_local Budget* t_budget = nullptr;
}  // namespace

Budget::Budget(int64_t steps) : limit_(steps), left_(steps), before_(t_budget) { t_budget = this; }
Budget::~Budget() { t_budget = before_; }

void Budget::take(int64_t steps) {
  if (steps > left_) fail(concat("rendering takes more than ", limit_, " steps"));
  left_ -= steps;
}

void spend(int64_t steps) {
  if (t_budget != nullptr) t_budget->take(steps);
}

void spend_bytes(size_t bytes) { spend(static_cast<int64_t>(bytes / 256)); }

void fail(const std::string& what) { fail_input("chat template: ", what); }

}  // namespace trireme::jinja
