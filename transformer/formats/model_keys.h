// Page of all keys in files of third-party models and what becomes of each:
// docs/reference/model-keys.md.
#pragma once

#include <string>
#include <vector>

#include "engine/config/schema.h"

namespace trireme {

// A row of such a table. `keys`: as the page shows them, "`a`, `b`" for two names of one.
struct KeyRow {
  std::string keys, effect;
  std::string where;  // "" in a table of one place
};
// "read: ...", "no effect", or "refused unless `false`: ..."
KeyRow key_row(const Key& key);
// Markdown, a line for each row; `where`: the title of the third column, "" for none.
std::string key_table(const std::vector<KeyRow>& rows, const std::string& where);

// The page: config.json of every family, its quantization_config, GGUF metadata.
std::string model_keys_page();

}  // namespace trireme
