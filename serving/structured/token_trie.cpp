#include "serving/structured/token_trie.h"

#include <algorithm>
#include <numeric>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr size_t kLongest = 1024;  // bytes; longer tokens are left out

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, int64_t output_vocab_size)
    : ids_(output_vocab_size) {
  TRIREME_CHECK(tokenizer.vocab_size() <= output_vocab_size, tokenizer.vocab_size(),
                " token ids, expected at most ", output_vocab_size);
  std::vector<std::string> tokens(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t id = 0; id < tokens.size(); ++id)
    if (!tokenizer.is_control(static_cast<int32_t>(id)))
      tokenizer.append_bytes(static_cast<int32_t>(id), tokens[id]);
  build(tokens);
}

TokenTrie::TokenTrie(const std::vector<std::string>& tokens) : ids_(std::ssize(tokens)) {
  build(tokens);
}

std::string_view TokenTrie::bytes(int32_t id) const {
  if (id < 0 || id + 1 >= std::ssize(text_at_)) return {};
  const auto at = text_at_.begin() + id;
  return std::string_view(text_).substr(static_cast<size_t>(at[0]),
                                        static_cast<size_t>(at[1] - at[0]));
}

void TokenTrie::build(const std::vector<std::string>& tokens) {
  text_at_.push_back(0);
  for (const std::string& token : tokens) {
    text_ += token;
    text_at_.push_back(static_cast<int64_t>(text_.size()));
  }
  std::vector<int32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order,
                [&](int32_t id) { return bytes(id).empty() || bytes(id).size() > kLongest; });
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    return bytes(a) != bytes(b) ? bytes(a) < bytes(b) : a < b;
  });
  std::vector<int32_t> open;  // nodes from the root to the last one
  const auto add = [&](uint8_t byte) {
    open.push_back(nodes());
    bytes_.push_back(byte);
    depths_.push_back(static_cast<uint16_t>(open.size() - 1));
    depth_ = std::max(depth_, depths_.back());
    ends_.push_back(0);
    first_token_.push_back(static_cast<int32_t>(tokens_.size()));
  };
  const auto close = [&](size_t depth) {
    for (; open.size() > depth + 1; open.pop_back())
      ends_[static_cast<size_t>(open.back())] = nodes();
  };
  add(0);
  std::string_view last;
  for (const int32_t id : order) {
    const std::string_view token = bytes(id);
    const auto [differ, unused] = std::ranges::mismatch(token, last);
    auto common = static_cast<size_t>(differ - token.begin());
    close(common);
    for (; common < token.size(); ++common) add(static_cast<uint8_t>(token[common]));
    tokens_.push_back(id);
    last = token;
  }
  close(0);
  ends_[0] = nodes();
  first_token_.push_back(static_cast<int32_t>(tokens_.size()));
}

}  // namespace trireme
