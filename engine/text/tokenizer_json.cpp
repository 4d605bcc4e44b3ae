#include "engine/text/tokenizer_json.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"
#include "engine/text/added_tokens.h"
#include "engine/text/control_split.h"
#include "engine/text/json_fields.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/token_decoder.h"
#include "engine/text/token_model.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

constexpr int64_t kMaxFileBytes = 256 << 20;
constexpr size_t kMaxTextBytes = size_t{1} << 30;
constexpr JsonLimits kLimits = {.depth = 32, .keys_per_object = size_t{1} << 22};

const nlohmann::json& part(const nlohmann::json& json, const char* name) {
  static const nlohmann::json kNull;
  const auto found = json.find(name);
  return found == json.end() ? kNull : *found;
}

// The ids that a post-processor puts around one text.
struct Template {
  std::vector<int32_t> before, behind;

  void add(const nlohmann::json& json, const std::string& what, int depth = 0) {
    if (json.is_null()) return;
    const std::string type = type_of(json, what);
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      if (depth >= kMaxSequenceDepth) fail_input(what, ": sequences are nested too deeply");
      for (const auto& member : members(json, "processors", what)) add(member, what, depth + 1);
    } else if (type == "TemplateProcessing") {
      add_template(json, what);
    } else {
      fail_input(what, " ", type,
                 " is not available; TemplateProcessing, ByteLevel and Sequence are");
    }
  }

 private:
  void add_template(const nlohmann::json& json, const std::string& what) {
    bool text_seen = false;
    for (const auto& item : members(json, "single", what)) {
      if (item.contains("Sequence")) {
        text_seen = true;
        continue;
      }
      const auto name = field<std::string>(part(item, "SpecialToken"), "id", what);
      const auto& ids = part(part(part(json, "special_tokens"), name.c_str()), "ids");
      if (!ids.is_array()) fail_input(what, ": the template's token \"", name, "\" has no ids");
      for (const auto& id : ids) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kMaxVocabulary))
          fail_input(what, ": the template's token \"", name, "\" has the id ", id.dump());
        (text_seen ? behind : before).push_back(id.get<int32_t>());
      }
    }
  }
};

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const nlohmann::json& json, const nlohmann::json& config, std::string name)
      : name_(std::move(name)),
        normalizer_(part(json, "normalizer"), name_),
        pre_tokenizer_(part(json, "pre_tokenizer"), name_),
        added_(part(json, "added_tokens"), normalizer_, name_),
        decoder_(part(json, "decoder"), name_) {
    make_model(part(json, "model"));
    around_.add(part(json, "post_processor"), name_ + ": post_processor");
    make_tokens();
    for (const std::vector<int32_t>* ids : {&around_.before, &around_.behind})
      for (const int32_t id : *ids)
        if (id >= vocab_size()) fail_input(name_, ": the template's id ", id, " is no token");
    bos_ =
        named(config, "bos_token", around_.before, {"<|begin_of_text|>", "<s>", "<|endoftext|>"});
    eod_ = named(config, "eos_token", around_.behind, {"<|endoftext|>", "<|end_of_text|>", "</s>"});
  }

  std::string name() const override { return name_; }
  int64_t vocab_size() const override { return std::ssize(tokens_); }
  int32_t bos_id() const override { return bos_; }
  int32_t eod_id() const override { return eod_; }
  bool is_control(int32_t id) const override {
    check_id(id);
    return tokens_[static_cast<size_t>(id)].special;
  }
  int32_t find(std::string_view token) const override {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }
  std::string token(int32_t id) const override {
    check_id(id);
    return tokens_[static_cast<size_t>(id)].text;
  }
  int64_t most_bytes_of_id() const override {
    const int64_t word = model_->most_bytes_of_id(), added = added_.longest();
    if (word == 0 || added < 0 || !pre_tokenizer_.keeps_text()) return 0;
    return std::max(word, added) * normalizer_.most_shrinking();
  }
  void append_bytes(int32_t id, std::string& out) const override {
    if (!is_control(id)) out += decoder_.bytes(tokens_[static_cast<size_t>(id)].looks);
  }
  std::unique_ptr<Detokenizer> detokenizer(bool at_start) const override {
    return std::make_unique<JsonDetokenizer>(*this, at_start);
  }

 protected:
  std::vector<int32_t> encode_text(std::string_view bytes,
                                   const EncodeOptions& options) const override {
    if (bytes.size() > kMaxTextBytes)
      fail_input("a text of ", bytes.size(), " bytes is too long for tokenizer ", name_,
                 "; split it into documents of at most ", kMaxTextBytes, " bytes");
    const std::string text = valid_utf8(bytes);
    std::vector<int32_t> ids;
    if (options.add_special) ids = around_.before;
    bool first = true;
    const auto token = [&](int32_t id) {
      ids.push_back(id);
      first = false;
    };
    const auto words = [&](std::string_view rest) {
      encode_words(std::string(rest), first, ids);
      first = false;
    };
    // Offsets are lost where characters were mended or normalised: no special token is made of such
    // a text.
    const bool intact = options.breaks.empty() || text.size() == bytes.size();
    added_.split(text, false, options.parse_special && intact, options.breaks, token,
                 [&](std::string_view rest) {
                   const auto begin = static_cast<size_t>(rest.data() - text.data());
                   const bool special = options.parse_special && intact &&
                                        !has_break(options.breaks, begin, begin + rest.size());
                   added_.split(normalizer_.apply(std::string(rest)), true, special, {}, token,
                                words);
                 });
    if (options.add_special) ids.insert(ids.end(), around_.behind.begin(), around_.behind.end());
    return ids;
  }

 private:
  struct Token {
    std::string text = {};
    std::string looks = {};  // to the decoder: the text, which the normalizer may have changed
    bool special = false;
  };

  class JsonDetokenizer final : public Detokenizer {
   public:
    JsonDetokenizer(const JsonTokenizer& tokenizer, bool at_start)
        : tokenizer_(tokenizer), stream_(tokenizer.decoder_, at_start) {}
    void push(int32_t id, bool shown, DetokenizedText& out) override {
      tokenizer_.check_id(id);
      if (shown)
        stream_.push(tokenizer_.tokens_[static_cast<size_t>(id)].looks, out);
      else
        stream_.skip(out);
    }
    void finish(DetokenizedText& out) override { stream_.finish(out); }
    bool has_partial() const override { return stream_.has_partial(); }

   private:
    const JsonTokenizer& tokenizer_;
    TokenDecoder::Stream stream_;
  };

  void make_model(const nlohmann::json& json) {
    const std::string what = name_ + ": model";
    // Files of old have no type; what they hold tells.
    const auto type =
        field_or<std::string>(json, "type", what, json.contains("merges") ? "BPE" : "");
    if (type == "BPE")
      model_ = make_bpe(json, pre_tokenizer_.byte_level(), what);
    else if (type == "Unigram")
      model_ = make_unigram(json, what);
    else
      fail_input(what, " \"", type, "\" is not available; BPE and Unigram are");
  }

  void make_tokens() {
    const Vocabulary& vocabulary = model_->vocabulary();
    int64_t size = vocabulary.size();
    for (const AddedToken& t : added_.all()) size = std::max<int64_t>(size, t.id + 1);
    if (size == 0) fail_input("tokenizer ", name_, " has an empty vocabulary");
    tokens_.resize(static_cast<size_t>(size));
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const std::string& text = vocabulary.token(id);
      if (text.empty()) continue;
      tokens_[static_cast<size_t>(id)] = {text, text, false};
      ids_.emplace(text, id);
    }
    for (const AddedToken& t : added_.all()) {
      tokens_[static_cast<size_t>(t.id)] = {
          t.content, t.normalized ? normalizer_.apply(t.content) : t.content, t.special};
      ids_.insert_or_assign(t.content, t.id);
    }
    if (decoder_.expands())
      for (const Token& token : tokens_) (void)decoder_.bytes(token.looks);
    refuse_holes();
  }

  // An id without a token may be drawn by a model and has no text: as a rule added tokens were
  // lost.
  void refuse_holes() const {
    constexpr int64_t kMostListed = 8;
    std::string listed;
    int64_t holes = 0, ranges = 0;
    const auto size = std::ssize(tokens_);
    const auto is_hole = [&](int64_t id) { return tokens_[static_cast<size_t>(id)].text.empty(); };
    for (int64_t id = 0; id < size; ++id) {
      if (!is_hole(id)) continue;
      const int64_t first = id;
      while (id + 1 < size && is_hole(id + 1)) ++id;
      holes += id - first + 1;
      if (++ranges > kMostListed) continue;
      listed += concat(ranges == 1 ? "" : ", ", first, first == id ? "" : concat(" to ", id));
    }
    if (holes == 0) return;
    fail_input(
        name_, ": ", holes, " of the ids from 0 to ", size - 1, " have no token: ", listed,
        ranges > kMostListed ? ", and more" : "",
        "; added tokens may have been lost: download the file again, or name each of them in "
        "\"added_tokens\"");
  }

  void encode_words(std::string text, bool first, std::vector<int32_t>& ids) const {
    Words words;
    words.ranges = {{0, text.size()}};
    words.text = std::move(text);
    words.first = first;
    pre_tokenizer_.apply(words);
    for (const Words::Range& range : words.ranges)
      model_->encode(std::string_view(words.text).substr(range.begin, range.end - range.begin),
                     ids);
  }

  // The token that the configuration names; else a template's only one, else the first of the
  // usual.
  int32_t named(const nlohmann::json& config, const char* key,
                const std::vector<int32_t>& from_template,
                std::initializer_list<std::string_view> usual) const {
    const nlohmann::json& value = part(config, key);
    if (value.is_string() || value.is_object()) {
      const auto text = value.is_string() ? value.get<std::string>()
                                          : field<std::string>(value, "content", name_);
      if (const int32_t id = find(text); id >= 0) return id;
      fail_input(name_, ": the ", key, " \"", text, "\" of tokenizer_config.json is no token");
    }
    if (config.is_object() && config.contains(key)) return -1;  // null: there is none
    if (from_template.size() == 1) return from_template[0];
    for (const std::string_view text : usual)
      if (const int32_t id = find(text); id >= 0) return id;
    return -1;
  }

  std::string name_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens added_;
  TokenDecoder decoder_;
  std::unique_ptr<TokenModel> model_;
  Template around_;
  std::vector<Token> tokens_;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  int32_t bos_ = -1, eod_ = -1;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view config,
                                                const std::string& name) {
  const auto parsed = parse_strict_json<nlohmann::json>(json, name, kLimits);
  if (!parsed.is_object()) fail_input(name, " is no JSON object");
  const auto settings = config.empty() ? nlohmann::json()
                                       : parse_strict_json<nlohmann::json>(
                                             config, name + ": tokenizer_config.json", kLimits);
  return std::make_unique<JsonTokenizer>(parsed, settings, name);
}

std::unique_ptr<Tokenizer> load_tokenizer_json(const std::string& path) {
  const auto config = std::filesystem::path(path).parent_path() / "tokenizer_config.json";
  return parse_tokenizer_json(
      read_small_file(path, kMaxFileBytes),
      std::filesystem::exists(config) ? read_small_file(config.string(), kMaxFileBytes) : "", path);
}

}  // namespace trireme
