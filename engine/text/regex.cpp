#include "engine/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/text/regex_syntax.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

// Steps of one match: a class over a whole text takes one per character, and as many to backtrack.
constexpr size_t kMatchLimit = 10'000'000, kMatchLimitPerByte = 4;
constexpr uint32_t kDepthLimit = 100'000;
constexpr uint32_t kJitStackBytes = 1 << 20;

const pcre2_code* code_of(const std::shared_ptr<void>& code) {
  return static_cast<const pcre2_code*>(code.get());
}

// PCRE2 state of a match, apart from the expression; one per thread.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  Workspace() {
    TRIREME_CHECK(data != nullptr && context != nullptr && stack != nullptr,
                  "PCRE2 is out of memory");
    pcre2_set_depth_limit(context, kDepthLimit);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

}  // namespace

Regex::Regex(const std::string& pattern, const std::string& what) : pattern_(pattern) {
  const std::string source = "(*LF)" + translated_regex(pattern, what);
  int error = 0;
  size_t at = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (code == nullptr) {
    char message[256] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    fail_input(what, ": the regular expression \"", pattern, "\" is not supported: ", message);
  }
  code_ = {code, [](void* raw) { pcre2_code_free(static_cast<pcre2_code*>(raw)); }};
  // Optional: without executable memory matching is slower.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

bool Regex::find(std::string_view text, size_t from, Match& match) const {
  thread_local const Workspace workspace;
  const size_t limit = std::max(kMatchLimit, kMatchLimitPerByte * (text.size() - from));
  pcre2_set_match_limit(workspace.context,
                        static_cast<uint32_t>(std::min<size_t>(limit, UINT32_MAX)));
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto attempt = [&](uint32_t options) {
    return pcre2_match(code_of(code_), subject, text.size(), from, PCRE2_NO_UTF_CHECK | options,
                       workspace.data, workspace.context);
  };
  int found = attempt(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = attempt(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT ||
      found == PCRE2_ERROR_HEAPLIMIT)
    fail_input("the regular expression \"", pattern_, "\" takes too long on this text");
  TRIREME_CHECK(found >= 0, "pcre2_match: ", found);
  const size_t* const ends = pcre2_get_ovector_pointer(workspace.data);
  match = {ends[0], ends[1]};
  return true;
}

bool RegexMatches::next(Regex::Match& match) {
  while (from_ <= text_.size() && regex_.find(text_, from_, match)) {
    if (match.begin != match.end || match.end != last_end_) {
      from_ = last_end_ = match.end;
      return true;
    }
    // Skips an empty match directly after a match.
    from_ += from_ < text_.size() ? character_bytes(text_[from_]) : 1;
  }
  return false;
}

std::string quoted_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-#/&~ ").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace trireme
