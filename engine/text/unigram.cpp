#include <algorithm>
#include <limits>

#include "engine/text/json_fields.h"
#include "engine/text/token_model.h"
#include "engine/text/trie.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the least probable token

class Unigram : public TokenModel {
 public:
  Unigram(const nlohmann::json& json, const std::string& what) {
    const nlohmann::json& vocab = members(json, "vocab", what);
    std::vector<std::pair<std::string, int32_t>> entries;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& entry : vocab) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        fail_input(what, ": ", entry.dump().substr(0, 60),
                   " is not a pair of a token and its score");
      const auto id = static_cast<int32_t>(scores_.size());
      vocabulary_.add(entry[0].get<std::string>(), id, what);
      entries.emplace_back(entry[0].get<std::string>(), id);
      scores_.push_back(entry[1].get<double>());
      least = std::min(least, scores_.back());
    }
    trie_ = Trie(std::move(entries));
    unknown_ = field_or<int32_t>(json, "unk_id", what, -1);
    if (unknown_ >= std::ssize(scores_))
      fail_input(what, ": unk_id ", unknown_, " is not in the vocabulary of ", scores_.size());
    unknown_score_ = least - kUnknownPenalty;
    if (field_or(json, "byte_fallback", what, false)) byte_fallback_ = byte_tokens(vocabulary_);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  int64_t max_bytes_of_id() const override {
    return byte_fallback_.empty() ? 0 : vocabulary_.longest();
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    struct Best {
      double score = 0;
      size_t begin = kNone;  // start of the last token of the best segmentation up to here
      int32_t id = -1;
    };
    std::vector<Best> best(word.size() + 1);
    for (size_t at = 0; at < word.size();) {
      const double so_far = best[at].score;
      const size_t next = at + character_bytes(word[at]);
      bool alone = false;  // the character is a token
      const auto offer = [&](size_t end, double score, int32_t id) {
        if (best[end].begin == kNone || score > best[end].score) best[end] = {score, at, id};
      };
      trie_.for_each_prefix(word, at, [&](size_t end, int32_t id) {
        offer(end, so_far + scores_[static_cast<size_t>(id)], id);
        alone |= end == next;
      });
      if (!alone) offer(next, so_far + unknown_score_, -1);
      at = next;
    }
    std::vector<Piece> pieces;  // in reverse order
    for (size_t end = word.size(); end > 0; end = best[end].begin)
      pieces.push_back({best[end].begin, end, best[end].id});
    std::ranges::reverse(pieces);
    for (size_t i = 0; i < pieces.size();) {
      size_t next = i + 1;  // adjacent unknown pieces form one
      if (is_unknown(pieces[i].id))
        while (next < pieces.size() && is_unknown(pieces[next].id)) ++next;
      if (next == i + 1 && pieces[i].id >= 0)
        ids.push_back(pieces[i].id);
      else
        add_unknown(word.substr(pieces[i].begin, pieces[next - 1].end - pieces[i].begin), ids);
      i = next;
    }
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Piece {
    size_t begin, end;
    int32_t id;  // -1: a character that the vocabulary lacks
  };
  bool is_unknown(int32_t id) const { return id < 0 || id == unknown_; }
  void add_unknown(std::string_view text, std::vector<int32_t>& ids) const {
    if (!byte_fallback_.empty())
      for (const char byte : text) ids.push_back(byte_fallback_[static_cast<uint8_t>(byte)]);
    else if (unknown_ >= 0)
      ids.push_back(unknown_);
    else
      fail_input("a character is not in the vocabulary, which has no unknown token");
  }

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  Trie trie_;
  int32_t unknown_ = -1;
  double unknown_score_ = 0;
  std::vector<int32_t> byte_fallback_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(const nlohmann::json& json, const std::string& what) {
  return std::make_unique<Unigram>(json, what);
}

}  // namespace trireme
