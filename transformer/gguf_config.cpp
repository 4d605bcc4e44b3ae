// Hyper-parameters between GGUF's metadata and HuggingFace's words.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "transformer/families/family.h"
#include "transformer/gguf_model.h"

namespace trireme {
namespace {

struct Word {
  const char* ours;    // in config.json
  const char* theirs;  // behind "<architecture>."
  bool required = true;
};
constexpr Word kLlamaIntegers[] = {{"max_position_embeddings", "context_length"},
                                   {"hidden_size", "embedding_length"},
                                   {"num_hidden_layers", "block_count"},
                                   {"intermediate_size", "feed_forward_length"},
                                   {"num_attention_heads", "attention.head_count"},
                                   {"num_key_value_heads", "attention.head_count_kv", false},
                                   {"head_dim", "attention.key_length", false}};
constexpr Word kLlamaNumbers[] = {{"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
                                  {"rope_theta", "rope.freq_base", false}};
constexpr Word kGpt2Integers[] = {{"n_positions", "context_length"},
                                  {"n_embd", "embedding_length"},
                                  {"n_layer", "block_count"},
                                  {"n_inner", "feed_forward_length"},
                                  {"n_head", "attention.head_count"}};
constexpr Word kGpt2Numbers[] = {{"layer_norm_epsilon", "attention.layer_norm_epsilon"}};
constexpr Word kMixtralIntegers[] = {{"num_local_experts", "expert_count"},
                                     {"num_experts_per_tok", "expert_used_count"}};

// Floats of 32 bits to the number that was meant: 1e-05, not 9.999999747378752e-06.
double meant(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), static_cast<float>(value)).ptr;
  double out = value;
  std::from_chars(buffer, end, out);
  return out;
}

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {
    arch_ = require<std::string>("general.architecture");
  }

  Json read() {
    const bool experts = integer_or("expert_count", 0) > 0;
    if (arch_ == "gpt2") {
      read_words(kGpt2Integers, kGpt2Numbers, "gpt2");
    } else if (arch_ == "llama" || ((arch_ == "qwen2" || arch_ == "qwen3") && !experts)) {
      read_words(kLlamaIntegers, kLlamaNumbers, experts ? "mixtral" : arch_);
      read_rotary();
      if (experts) words(kMixtralIntegers, json_, [&](const Word& w) { add_integer(w); });
      if (arch_ == "llama" && !experts)
        json_["attention_bias"] = file_.find("blk.0.attn_q.bias") != nullptr;
    } else {
      fail_input(file_.path(), ": models of architecture \"", arch_,
                 "\" are not read from GGUF in this version; llama, qwen2, qwen3 and gpt2 are");
    }
    const SourceTensor* table = file_.find("token_embd.weight");
    if (table == nullptr) fail_input(file_.path(), ": has no tensor token_embd.weight");
    json_["vocab_size"] = table->shape.front();
    json_["tie_word_embeddings"] = file_.find("output.weight") == nullptr;
    for (const char* token : {"bos", "eos"}) {
      const auto id = file_.get<int64_t>(concat("tokenizer.ggml.", token, "_token_id"));
      json_[concat(token, "_token_id")] = id.has_value() ? Json(*id) : Json();
    }
    return json_;
  }

 private:
  template <class T>
  T require(const std::string& key) const {
    if (const auto value = file_.get<T>(key)) return *value;
    fail_input(file_.path(), ": has no \"", key, "\"");
  }
  int64_t integer_or(const char* key, int64_t fallback) const {
    return file_.get<int64_t>(concat(arch_, ".", key)).value_or(fallback);
  }
  template <size_t n, class F>
  static void words(const Word (&table)[n], Json&, F&& f) {
    for (const Word& word : table) f(word);
  }
  void add_integer(const Word& word) {
    const std::string key = concat(arch_, ".", word.theirs);
    if (word.required)
      json_[word.ours] = require<int64_t>(key);
    else if (const auto value = file_.get<int64_t>(key))
      json_[word.ours] = *value;
  }
  void add_number(const Word& word) {
    const std::string key = concat(arch_, ".", word.theirs);
    if (word.required)
      json_[word.ours] = meant(require<double>(key));
    else if (const auto value = file_.get<double>(key))
      json_[word.ours] = meant(*value);
  }
  template <size_t n, size_t m>
  void read_words(const Word (&integers)[n], const Word (&numbers)[m], const std::string& type) {
    json_["model_type"] = type;
    words(integers, json_, [&](const Word& w) { add_integer(w); });
    words(numbers, json_, [&](const Word& w) { add_number(w); });
  }

  void read_rotary() {
    if (const auto type = file_.get<std::string>(arch_ + ".rope.scaling.type");
        type.has_value() && *type != "none") {
      if (*type != "linear" && *type != "yarn")
        fail_input(file_.path(), ": rope.scaling.type \"", *type, "\" is not known");
      Json scaling = {{"rope_type", *type},
                      {"factor", meant(require<double>(arch_ + ".rope.scaling.factor"))}};
      if (const auto length = file_.get<int64_t>(arch_ + ".rope.scaling.original_context_length"))
        scaling["original_max_position_embeddings"] = *length;
      json_["rope_scaling"] = scaling;
    }
    if (const SourceTensor* factors = file_.find("rope_freqs.weight")) read_factors(*factors);
  }

  // Llama 3's scaling (low_freq_factor 1, high_freq_factor 4, 8192 original positions): what it divides
  // each frequency by must be what the file holds.
  void read_factors(const SourceTensor& tensor) {
    constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
    std::vector<double> found(static_cast<size_t>(tensor.numel()));
    file_.read(tensor, 0, Tensor(found.data(), DType::kF64, Shape{tensor.numel()}));
    double factor = 1;
    for (const double f : found) factor = std::max(factor, f);
    const double theta = json_.value("rope_theta", 10000.0);
    for (size_t i = 0; i < found.size(); ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(found.size());
      const double wavelength = 2 * std::numbers::pi * std::pow(theta, share);
      const double smooth = (kOriginal / wavelength - kLow) / (kHigh - kLow);
      const double expected = wavelength < kOriginal / kHigh ? 1
                              : wavelength > kOriginal / kLow
                                  ? factor
                                  : 1 / ((1 - smooth) / factor + smooth);
      if (std::abs(found[i] - expected) > 1e-4 * expected)
        fail_input(file_.path(), ": rope_freqs.weight are not the factors of Llama 3's scaling; ",
                   "use the HuggingFace directory of this model");
    }
    json_["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", factor},
                             {"low_freq_factor", kLow},
                             {"high_freq_factor", kHigh},
                             {"original_max_position_embeddings", 8192}};
  }

  const GgufFile& file_;
  std::string arch_;
  Json json_;
};

// What a configuration may say without a word in the metadata: nothing that inference computes with, or what
// the tensors show.
const std::set<std::string>& understood() {
  static const std::set<std::string> keys = {
      "model_type",        "architectures",  "initializer_range", "tie_word_embeddings",
      "bos_token_id",      "eos_token_id",   "hidden_act",        "activation_function",
      "attention_dropout", "attention_bias", "qkv_bias",          "resid_pdrop",
      "embd_pdrop",        "attn_pdrop",     "vocab_size",        "output_router_logits"};
  return keys;
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == 0 || (value.is_object() && value.empty()) ||
         (value.is_array() && value.empty());
}

}  // namespace

Json gguf_config(const GgufFile& file) { return Reader(file).read(); }

GgufMetadata gguf_metadata(const ModelConfig& config) {
  const Json json = model_config_to_json(config);
  const std::string type = family_of(config.family).model_type;
  const bool gpt2 = type == "gpt2", mixtral = type == "mixtral";
  if (!gpt2 && !mixtral && type != "llama" && type != "mistral" && type != "qwen2" &&
      type != "qwen3")
    fail_input("models of model_type \"", type,
               "\" are not written as GGUF in this version; llama, ",
               "mixtral, qwen2, qwen3 and gpt2 are");
  const std::string arch = mixtral || type == "mistral" ? "llama" : type;
  GgufMetadata out = {{"general.architecture", arch},
                      {"general.quantization_version", int64_t{2}},
                      {arch + ".vocab_size", config.vocab_size}};
  std::set<std::string> said = understood();
  const auto add = [&](const auto& table) {
    for (const Word& word : table) {
      if (!json.contains(word.ours)) continue;
      said.insert(word.ours);
      const Json& value = json.at(word.ours);
      if (value.is_null()) continue;
      out[concat(arch, ".", word.theirs)] = value.is_number_float()
                                                ? GgufValue(value.get<double>())
                                                : GgufValue(value.get<int64_t>());
    }
  };
  if (gpt2) {
    add(kGpt2Integers);
    add(kGpt2Numbers);
  } else {
    add(kLlamaIntegers);
    add(kLlamaNumbers);
    out[arch + ".attention.value_length"] = config.head_dim;
    out[arch + ".rope.dimension_count"] = config.head_dim;
    out[arch + ".rope.freq_base"] = config.rope_theta;
    out[arch + ".attention.layer_norm_rms_epsilon"] = config.norm_eps;
  }
  if (mixtral) add(kMixtralIntegers);
  if (config.mlp_bias && !gpt2) said.erase("mlp_bias");
  for (const auto& [key, value] : json.items())
    if (!said.contains(key) && !key.starts_with("router_") && !says_nothing(value))
      fail_input("the model has ", key, " ", value.dump().substr(0, 80),
                 ", which this version does not write as GGUF");
  return out;
}

}  // namespace trireme
