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
#include "engine/text/prefix_space.h"
#include "engine/text/token_decoder.h"
#include "engine/text/token_model.h"
#include "engine/text/tokenizer_config.h"
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

// Ids that a post-processor adds around one text.
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
                 " is not supported; supported: TemplateProcessing, ByteLevel, Sequence");
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
          fail_input(what, ": the template's token \"", name, "\" has the invalid id ", id.dump());
        (text_seen ? behind : before).push_back(id.get<int32_t>());
      }
    }
  }
};

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const nlohmann::json& json, const TokenizerConfig& config, std::string name)
      : name_(std::move(name)),
        normalizer_(part(json, "normalizer"), name_),
        pre_tokenizer_(part(json, "pre_tokenizer"), name_),
        decoder_(part(json, "decoder"), name_) {
    make_model(part(json, "model"));
    if (config.cleans_up_spaces && !pairs_)
      fail_input(name_, ": clean_up_tokenization_spaces of tokenizer_config.json, which drops ",
                 "spaces from decoded text, is not supported for a Unigram model; set it to false");
    make_added(part(json, "added_tokens"), config);
    around_.add(part(json, "post_processor"), name_ + ": post_processor");
    make_tokens();
    for (const std::vector<int32_t>* ids : {&around_.before, &around_.behind})
      for (const int32_t id : *ids)
        if (id >= vocab_size()) fail_input(name_, ": the template's id ", id, " is not a token id");
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
  int64_t max_bytes_of_id() const override {
    const int64_t word = model_->max_bytes_of_id(), added = added_.longest();
    if (word == 0 || added < 0 || !pre_tokenizer_.keeps_text()) return 0;
    return std::max(word, added) * normalizer_.max_shrinking();
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
    // Offsets are lost if characters were repaired or normalized: then no special tokens are
    // encoded in such a text.
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
    std::string looks = {};  // as seen by the decoder: the text, possibly changed by the normalizer
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
    // Old files have no type; it follows from their content.
    const auto type =
        field_or<std::string>(json, "type", what, json.contains("merges") ? "BPE" : "");
    pairs_ = type == "BPE";
    if (pairs_)
      model_ = make_bpe(json, pre_tokenizer_.byte_level(), what);
    else if (type == "Unigram")
      model_ = make_unigram(json, what);
    else
      fail_input(what, " \"", type, "\" is not supported; supported: BPE, Unigram");
  }

  // Tokens of the file, those that tokenizer_config.json adds or gives other flags, and special
  // tokens that it names, which are appended if the vocabulary lacks them.
  void make_added(const nlohmann::json& json, const TokenizerConfig& config) {
    std::vector<AddedToken> tokens = AddedTokens(json, normalizer_, name_).all();
    std::unordered_map<std::string, size_t> places;
    std::unordered_map<int32_t, std::string> contents;
    int64_t next = model_->vocabulary().size();
    const auto add = [&](const AddedToken& t) {
      places[t.content] = tokens.size();
      contents[t.id] = t.content;
      tokens.push_back(t);
      next = std::max<int64_t>(next, t.id + 1);
    };
    std::vector<AddedToken> listed;
    std::swap(listed, tokens);
    for (const AddedToken& t : listed) add(t);
    for (const AddedToken& t : config.added) {
      if (const auto found = places.find(t.content); found != places.end()) {
        check_same_id(t, tokens[found->second].id);
        tokens[found->second] = t;
      } else {
        if (const int32_t id = model_->vocabulary().find(t.content); id >= 0) check_same_id(t, id);
        check_free(t, contents);
        add(t);
      }
    }
    for (AddedToken t : config.named) {
      if (places.contains(t.content)) continue;
      t.id = model_->vocabulary().find(t.content);
      if (t.id < 0 && is_bos_or_eos(config, t.content)) continue;  // rejected by named()
      if (t.id < 0) t.id = static_cast<int32_t>(next);
      add(t);
    }
    added_ = AddedTokens(std::move(tokens), normalizer_);
  }
  void check_same_id(const AddedToken& token, int32_t id) const {
    if (token.id == id) return;
    fail_input(name_, ": tokenizer_config.json gives \"", token.content, "\" the id ", token.id,
               ", tokenizer.json ", id, "; the files belong to different tokenizers");
  }
  void check_free(const AddedToken& token,
                  const std::unordered_map<int32_t, std::string>& contents) const {
    const Vocabulary& words = model_->vocabulary();
    const auto added = contents.find(token.id);
    const std::string other = added != contents.end()   ? added->second
                              : token.id < words.size() ? words.token(token.id)
                                                        : "";
    if (!other.empty() && other != token.content)
      fail_input(name_, ": tokenizer_config.json gives \"", token.content, "\" the id ", token.id,
                 ", which is \"", other,
                 "\" in tokenizer.json; the files belong to different tokenizers");
  }
  static bool is_bos_or_eos(const TokenizerConfig& config, const std::string& content) {
    for (const char* role : {"bos_token", "eos_token"})
      if (const auto found = config.roles.find(role);
          found != config.roles.end() && found->second == content)
        return true;
    return false;
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

  // A model may sample an id without a token, which has no text: usually added tokens were lost.
  void refuse_holes() const {
    constexpr int64_t kMaxListed = 8;
    std::string listed;
    int64_t holes = 0, ranges = 0;
    const auto size = std::ssize(tokens_);
    const auto is_hole = [&](int64_t id) { return tokens_[static_cast<size_t>(id)].text.empty(); };
    for (int64_t id = 0; id < size; ++id) {
      if (!is_hole(id)) continue;
      const int64_t first = id;
      while (id + 1 < size && is_hole(id + 1)) ++id;
      holes += id - first + 1;
      if (++ranges > kMaxListed) continue;
      listed += concat(ranges == 1 ? "" : ", ", first, first == id ? "" : concat(" to ", id));
    }
    if (holes == 0) return;
    fail_input(
        name_, ": ", holes, " of the ids from 0 to ", size - 1, " have no token: ", listed,
        ranges > kMaxListed ? ", and more" : "",
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

  // Token named by the configuration; else a template's only one, else the first of the usual ones.
  int32_t named(const TokenizerConfig& config, const char* role,
                const std::vector<int32_t>& from_template,
                std::initializer_list<std::string_view> usual) const {
    if (const auto found = config.roles.find(role); found != config.roles.end()) {
      if (!found->second.has_value()) return -1;
      if (const int32_t id = find(*found->second); id >= 0) return id;
      fail_input(name_, ": the ", role, " \"", *found->second,
                 "\" of tokenizer_config.json is not a token");
    }
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
  bool pairs_ = true;  // byte-pair encoding
  Template around_;
  std::vector<Token> tokens_;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  int32_t bos_ = -1, eod_ = -1;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view config,
                                                const std::string& name) {
  auto parsed = parse_strict_json<nlohmann::json>(json, name, kLimits);
  if (!parsed.is_object()) fail_input(name, " is not a JSON object");
  const TokenizerConfig settings = parse_tokenizer_config(config, name + ": tokenizer_config.json");
  apply_prefix_space(settings, parsed, name);
  return std::make_unique<JsonTokenizer>(parsed, settings, name);
}

std::unique_ptr<Tokenizer> load_tokenizer_json(const std::string& path) {
  return parse_tokenizer_json(
      read_small_file(path, kMaxFileBytes),
      tokenizer_config_beside(std::filesystem::path(path).parent_path().string()), path);
}

}  // namespace trireme
