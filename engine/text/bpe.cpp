#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <queue>

#include "engine/text/json_fields.h"
#include "engine/text/sentencepiece_proto.h"
#include "engine/text/token_model.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

struct Merge {
  int32_t rank = -1, id = -1;
};

// (left, right) -> merge, by open addressing: looked up once for each pair of each word.
class MergeTable {
 public:
  explicit MergeTable(size_t entries) {
    size_t size = 16;
    while (size < 2 * entries) size *= 2;
    slots_.resize(size);
  }
  // False: the pair has a merge already.
  bool add(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[place(left, right)];
    if (slot.merge.rank >= 0) return false;
    slot = {left, right, merge};
    return true;
  }
  Merge find(int32_t left, int32_t right) const { return slots_[place(left, right)].merge; }

 private:
  struct Slot {
    int32_t left = -1, right = -1;
    Merge merge;
  };
  size_t place(int32_t left, int32_t right) const {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    size_t at = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20) & (slots_.size() - 1);
    while (slots_[at].merge.rank >= 0 && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  std::vector<Slot> slots_;
};

// Cache of encoded words, for one tokenizer at a time; each thread has its own.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 24, kMaxIds = 6, kEntries = 1 << 14;
  struct Entry {
    uint8_t bytes = 0, count = 0;  // count 0: empty
    char word[kMaxBytes];
    int32_t ids[kMaxIds];
    std::string_view text() const { return {word, bytes}; }
  };
  Entry& at(uint64_t owner, std::string_view word) {
    if (owner != owner_) {
      entries_.assign(kEntries, Entry{});
      owner_ = owner;
    }
    return entries_[StringHash()(word) % kEntries];
  }

 private:
  uint64_t owner_ = 0;
  std::vector<Entry> entries_;
};

// Number of a tokenizer, by which a thread's cache identifies the owner of its words.
uint64_t next_bpe_number() {
  static std::atomic<uint64_t> number = 0;
  return ++number;
}

struct Symbol {
  int32_t id, previous, next;  // positions in the word; -1: none, or joined to another
};

class Bpe : public TokenModel {
 public:
  Bpe(const nlohmann::json& json, bool byte_level, const std::string& what)
      : byte_level_(byte_level), merges_(merges_of(json, what).size()) {
    prefix_ = field_or<std::string>(json, "continuing_subword_prefix", what, "");
    suffix_ = field_or<std::string>(json, "end_of_word_suffix", what, "");
    ignore_merges_ = field_or(json, "ignore_merges", what, false);
    fuse_unknown_ = field_or(json, "fuse_unk", what, false);
    if (const auto dropout = field_or(json, "dropout", what, 0.0); dropout != 0.0)
      fail_input(what, ": a dropout of merges (", dropout, ") is not supported");
    read_vocabulary(json, what);
    read_merges(json, what);
    if (const auto unknown = field_or<std::string>(json, "unk_token", what, ""); !unknown.empty()) {
      unknown_ = vocabulary_.find(unknown);
      if (unknown_ < 0) fail_input(what, ": unk_token \"", unknown, "\" is not in the vocabulary");
    }
    if (field_or(json, "byte_fallback", what, false)) byte_fallback_ = byte_tokens(vocabulary_);
    for (size_t byte = 0; byte < 256; ++byte)
      byte_ids_[byte] = spelled_.find(std::string(1, static_cast<char>(byte)));
  }

  Bpe(const SentencePieces& parts, const std::string& what) : byte_level_(false), merges_(0) {
    for (size_t id = 0; id < parts.pieces.size(); ++id) {
      const SentencePieces::Piece& piece = parts.pieces[id];
      vocabulary_.add(piece.text, static_cast<int64_t>(id), what);
      if (piece.type == SentencePieces::kNormal)
        spelled_.add(piece.text, static_cast<int64_t>(id), what);
    }
    byte_fallback_ = byte_tokens(vocabulary_);
    byte_ids_.fill(-1);
    merge_by_score(parts);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  int64_t max_bytes_of_id() const override {
    const bool has_bytes = byte_level_ && prefix_.empty() && suffix_.empty() &&
                           std::ranges::none_of(byte_ids_, [](int32_t id) { return id < 0; });
    const bool one_each = unknown_ >= 0 && !fuse_unknown_;
    if (!has_bytes && byte_fallback_.empty() && !one_each) return 0;
    constexpr int64_t kMaxCharacterBytes = 4;
    return std::max(spelled_.longest(), kMaxCharacterBytes);
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    if (word.size() > WordCache::kMaxBytes) return encode_new(word, ids);
    thread_local WordCache cache;
    WordCache::Entry& known = cache.at(number_, word);
    if (known.count == 0 || known.text() != word) {
      const size_t before = ids.size();
      encode_new(word, ids);
      const size_t count = ids.size() - before;
      if (count == 0 || count > WordCache::kMaxIds) return;
      known.bytes = static_cast<uint8_t>(word.size());
      known.count = static_cast<uint8_t>(count);
      std::copy(word.begin(), word.end(), known.word);
      std::copy(ids.end() - static_cast<int64_t>(count), ids.end(), known.ids);
      return;
    }
    ids.insert(ids.end(), known.ids, known.ids + known.count);
  }

 private:
  static const nlohmann::json& merges_of(const nlohmann::json& json, const std::string& what) {
    return members(json, "merges", what);
  }

  void read_vocabulary(const nlohmann::json& json, const std::string& what) {
    const auto found = json.find("vocab");
    if (found == json.end() || !found->is_object())
      fail_input(what, ": there is no object \"vocab\"");
    for (const auto& [token, id] : found->items()) {
      if (!id.is_number_integer())
        fail_input(what, ": the id of \"", token.substr(0, 60), "\" is not a whole number");
      vocabulary_.add(token, id.get<int64_t>(), what);
      bool reachable = true;  // a token with another spelling is never part of a word
      const std::string spelled = byte_level_ ? byte_level_bytes(token, reachable) : token;
      if (reachable) spelled_.add(spelled, id.get<int64_t>(), what);
    }
  }

  // "left right", or ["left", "right"] if a token may contain a space.
  std::pair<std::string, std::string> parts_of(const nlohmann::json& merge,
                                               const std::string& what) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
        return {text.substr(0, space), text.substr(space + 1)};
    }
    fail_input(what, ": the merge ", merge.dump().substr(0, 60), " is not a pair of tokens");
  }

  void read_merges(const nlohmann::json& json, const std::string& what) {
    int32_t rank = 0;
    for (const auto& merge : merges_of(json, what)) {
      const auto [left, right] = parts_of(merge, what);
      const std::string joined =
          left + (right.starts_with(prefix_) ? right.substr(prefix_.size()) : right);
      const int32_t a = vocabulary_.find(left), b = vocabulary_.find(right),
                    id = vocabulary_.find(joined);
      if (a < 0 || b < 0 || id < 0)
        fail_input(what, ": the merge of \"", left.substr(0, 60), "\" and \"", right.substr(0, 60),
                   "\" names a token that is not in the vocabulary");
      (void)merges_.add(a, b, {rank++, id});  // the first of equal pairs wins
    }
  }

  // Adds each split of a piece into two; pieces of equal score have equal rank, so that the
  // leftmost is joined first.
  void merge_by_score(const SentencePieces& parts) {
    struct Cut {
      int32_t left, right, id;
    };
    std::vector<Cut> cuts;
    std::vector<double> scores;
    for (size_t id = 0; id < parts.pieces.size(); ++id) {
      const std::string_view text = parts.pieces[id].text;
      if (parts.pieces[id].type != SentencePieces::kNormal) continue;
      for (size_t at = character_bytes(text[0]); at < text.size();
           at += character_bytes(text[at])) {
        const int32_t left = spelled_.find(text.substr(0, at)),
                      right = spelled_.find(text.substr(at));
        if (left >= 0 && right >= 0) cuts.push_back({left, right, static_cast<int32_t>(id)});
      }
      scores.push_back(parts.pieces[id].score);
    }
    std::ranges::sort(scores, std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    merges_ = MergeTable(cuts.size());
    for (const Cut& cut : cuts) {
      const double score = parts.pieces[static_cast<size_t>(cut.id)].score;
      const auto rank = std::ranges::lower_bound(scores, score, std::greater<>()) - scores.begin();
      (void)merges_.add(cut.left, cut.right, {static_cast<int32_t>(rank), cut.id});
    }
  }

  // Initial symbols of a word.
  void begin_word(std::string_view word, std::vector<Symbol>& symbols) const {
    const auto add = [&](int32_t id) {
      const auto at = static_cast<int32_t>(symbols.size());
      symbols.push_back({id, at - 1, at + 1});
    };
    bool unknown_before = false;
    for (size_t at = 0; at < word.size();) {
      const size_t bytes = byte_level_ ? 1 : character_bytes(word[at]);
      const std::string_view character = word.substr(at, bytes);
      const bool first = at == 0;
      at += bytes;
      int32_t id;
      if (byte_level_ && prefix_.empty() && suffix_.empty())
        id = byte_ids_[static_cast<uint8_t>(character[0])];
      else
        id = spelled_.find(
            concat(first ? "" : prefix_, character, at == word.size() ? suffix_ : ""));
      if (id >= 0) {
        add(id);
      } else if (!byte_fallback_.empty()) {
        for (const char byte : character) add(byte_fallback_[static_cast<uint8_t>(byte)]);
      } else if (unknown_ >= 0 && !(fuse_unknown_ && unknown_before)) {
        add(unknown_);
      }
      unknown_before = id < 0 && byte_fallback_.empty();
    }
    if (!symbols.empty()) symbols.back().next = -1;
  }

  // Joins one pair at a time by a linear search: faster for short words.
  void merge_short(std::vector<Symbol>& symbols) const {
    for (size_t count = symbols.size(); count > 1; --count) {
      Merge best;
      size_t place = 0;
      for (size_t i = 0; i + 1 < count; ++i) {
        const Merge m = merges_.find(symbols[i].id, symbols[i + 1].id);
        if (m.rank >= 0 && (best.rank < 0 || m.rank < best.rank)) best = m, place = i;
      }
      if (best.rank < 0) return;
      symbols[place].id = best.id;
      symbols.erase(symbols.begin() + static_cast<int64_t>(place) + 1);
    }
  }

  struct Candidate {
    int32_t rank, place, id;
    bool operator<(const Candidate& other) const {  // of a priority queue: the last is popped first
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };

  void merge_long(std::vector<Symbol>& symbols) const {
    std::priority_queue<Candidate> queue;
    const auto offer = [&](int32_t left) {
      if (left < 0) return;
      const Symbol& s = symbols[static_cast<size_t>(left)];
      if (s.next < 0) return;
      const Merge m = merges_.find(s.id, symbols[static_cast<size_t>(s.next)].id);
      if (m.rank >= 0) queue.push({m.rank, left, m.id});
    };
    for (size_t i = 0; i < symbols.size(); ++i) offer(static_cast<int32_t>(i));
    while (!queue.empty()) {
      const Candidate c = queue.top();
      queue.pop();
      Symbol& left = symbols[static_cast<size_t>(c.place)];
      if (left.id < 0 || left.next < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      const Merge m = merges_.find(left.id, right.id);  // the pair may have changed by now
      if (m.rank != c.rank) continue;
      left.id = m.id;
      left.next = right.next;
      right.id = -1;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = c.place;
      offer(left.previous);
      offer(c.place);
    }
    std::erase_if(symbols, [](const Symbol& s) { return s.id < 0; });
  }

  void encode_new(std::string_view word, std::vector<int32_t>& ids) const {
    if (ignore_merges_)
      if (const int32_t id = spelled_.find(word); id >= 0) return ids.push_back(id);
    constexpr size_t kShort = 32;
    std::vector<Symbol> symbols;
    begin_word(word, symbols);
    symbols.size() <= kShort ? merge_short(symbols) : merge_long(symbols);
    for (const Symbol& s : symbols) ids.push_back(s.id);
  }

  bool byte_level_;
  const uint64_t number_ = next_bpe_number();
  Vocabulary vocabulary_;
  Vocabulary spelled_;  // tokens by their text: with byte_level_ as bytes, else as in vocabulary_
  MergeTable merges_;
  std::string prefix_, suffix_;
  bool ignore_merges_ = false, fuse_unknown_ = false;
  int32_t unknown_ = -1;
  std::vector<int32_t> byte_fallback_;
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace

std::unique_ptr<TokenModel> make_scored_bpe(const SentencePieces& parts, const std::string& what) {
  return std::make_unique<Bpe>(parts, what);
}

std::unique_ptr<TokenModel> make_bpe(const nlohmann::json& json, bool byte_level,
                                     const std::string& what) {
  return std::make_unique<Bpe>(json, byte_level, what);
}

}  // namespace trireme
