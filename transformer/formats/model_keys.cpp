#include "transformer/formats/model_keys.h"

#include <algorithm>
#include <map>

#include "engine/core/error.h"
#include "engine/text/tokenizer_keys.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_architectures.h"
#include "transformer/formats/gguf/gguf_keys.h"
#include "transformer/formats/hf/quantization_keys.h"

namespace trireme {
namespace {

std::string code_list(const std::vector<std::string>& words, const std::string& separator) {
  std::string out;
  for (const std::string& word : words) out += concat(out.empty() ? "" : separator, "`", word, "`");
  return out;
}

std::string effect_of(const Key& key) {
  const std::string unless =
      key.trivial.empty() ? "" : concat(" unless ", code_list(key.trivial, " or "));
  switch (key.status) {
    case KeyStatus::kImplemented: return "read: " + key.help;
    case KeyStatus::kIgnored: return "no effect";
    case KeyStatus::kNoEffect: return "no effect, with a note: " + key.help;
    case KeyStatus::kRefused:
    case KeyStatus::kUnavailable: return concat("refused", unless, ": ", key.help);
  }
  TRIREME_UNREACHABLE("key status ", static_cast<int>(key.status));
}

// Schemas with their names. Rows that are equal are merged into one, with the names of all schemas
// that have it.
std::string joined_table(const std::vector<std::pair<std::string, const Schema*>>& schemas,
                         const std::string& where) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> places;
  for (const auto& [name, schema] : schemas)
    for (const Key& key : schema->keys()) {
      const KeyRow row = key_row(key);
      places[{row.keys, row.effect}].push_back(concat("`", name, "`"));
    }
  std::vector<KeyRow> rows;
  for (const auto& [row, names] : places) {
    std::string list;
    for (const std::string& name : names) list += concat(list.empty() ? "" : ", ", name);
    rows.push_back({row.first, row.second, names.size() == schemas.size() ? "all" : list});
  }
  return key_table(rows, where);
}

std::string plain_table(const Schema& schema) {
  std::vector<KeyRow> rows;
  for (const Key& key : schema.keys()) rows.push_back(key_row(key));
  std::ranges::sort(rows, {}, &KeyRow::keys);
  return key_table(rows, "");
}

constexpr const char* kHead =
    "# Keys of third-party models\n\nMade by `trireme config model-keys`. A key of `config.json`, "
    "of its `quantization_config`, of `tokenizer_config.json` or of a GGUF\nfile's metadata is "
    "read, has no effect with the value that it has, or is refused by name. `null` counts as\nan "
    "absent key unless the table says otherwise. A key that is in none of these tables is refused, "
    "because\nit may change what the model computes: remove it from `config.json` if it does not. "
    "(If its value is null,\nit is ignored with a note.) `model_type` and `architectures` must be "
    "of one family.\n\n";

}  // namespace

KeyRow key_row(const Key& key) {
  std::vector<std::string> names = key.aliases;
  names.insert(names.begin(), key.path);
  return {code_list(names, ", "), effect_of(key), ""};
}

std::string key_table(const std::vector<KeyRow>& rows, const std::string& where) {
  std::string out = where.empty() ? "| key | handling |\n|---|---|\n"
                                  : concat("| key | handling | ", where, " |\n|---|---|---|\n");
  for (const KeyRow& row : rows)
    out += concat("| ", row.keys, " | ", row.effect, " |", where.empty() ? "" : " " + row.where,
                  where.empty() ? "" : " |", "\n");
  return out + "\n";
}

std::string family_table() {
  std::string out = "| `model_type` | models | specific features | refused |\n|---|---|---|---|\n";
  for (const Family* family : families())
    out += concat("| `", family->model_type, "` | ", family->models, " | ", family->special, " | ",
                  family->refused, *family->refused == '\0' ? "" : " ", "|\n");
  return out;
}

std::string model_keys_page() {
  std::vector<std::pair<std::string, const Schema*>> families_of, methods, architectures;
  for (const Family* family : families())
    families_of.emplace_back(family->model_type, &model_schema(family->id));
  for (const char* method : quantization_methods())
    methods.emplace_back(method, &quantization_schema(method));
  for (const GgufArchitecture& a : kGgufArchitectures)
    if (std::ranges::none_of(architectures, [&](const auto& one) { return one.first == a.name; }))
      architectures.emplace_back(a.name, &gguf_schema(a.name));
  std::string page = kHead;
  page += "## config.json\n\n" + joined_table(families_of, "model_type");
  page += concat(
      "## quantization_config\n\nThe files themselves show which tensors are quantized, and their "
      "scales.\n\n",
      joined_table(methods, "quant_method"));
  page += concat(
      "## tokenizer_config.json\n\nWith `special_tokens_map.json` and `added_tokens.json`, "
      "as transformers 5 reads them; beside `tokenizer.json`\nor `tokenizer.model`.\n\n",
      plain_table(tokenizer_config_schema()));
  page += concat(
      "## GGUF metadata\n\nKeys after `<architecture>.`; `general.` and `split.` do not affect the "
      "computation.\n\n",
      joined_table(architectures, "architecture"));
  page += concat(
      "## GGUF tokenizer\n\nKeys after `tokenizer.`. Conversions to a HuggingFace directory and "
      "back keep all that have an effect, or\nname what they cannot keep.\n\n",
      plain_table(gguf_tokenizer_schema()));
  page.pop_back();
  return page;
}

}  // namespace trireme
