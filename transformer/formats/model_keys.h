// Reference pages of third-party models: all keys of their files and their effect
// (docs/reference/model-keys.md), and the table of the families (docs/reference/models.md).
#pragma once

#include <string>
#include <vector>

#include "engine/config/schema.h"

namespace trireme {

// Row of a key table. `keys`: as the page shows them, "`a`, `b`" for two spellings of one key.
struct KeyRow {
  std::string keys, effect;
  std::string where;  // "" in a table without that column
};
// Effects: "read: ...", "no effect", "no effect, with a note: ...", "refused unless `false`: ...".
KeyRow key_row(const Key& key);
// Markdown table, a line for each row. where: title of the third column; "": no such column.
std::string key_table(const std::vector<KeyRow>& rows, const std::string& where);

// Returns docs/reference/model-keys.md: keys of every family's config.json, of quantization_config,
// of tokenizer_config.json and of GGUF metadata and tokenizers.
std::string model_keys_page();

// Markdown table of the families, a line for each: model_type, models, features, refused features.
// docs/reference/models.md contains it between two comments.
std::string family_table();

}  // namespace trireme
