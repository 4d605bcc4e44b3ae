// Chat templates, and example sets from text files.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/scratch_directory.h"
#include "training/data/examples/example_set.h"

namespace trireme::test {

// A turn is "<role>content", ended by the tokenizer's end of document.
inline constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
inline constexpr const char* kMarked =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{{ eos_token }}"
    "{% endif %}{% endfor %}";

inline ChatTemplateSources template_sources(const std::string& chat_template) {
  if (chat_template.empty()) return {};
  return {{kDefaultChatTemplate, chat_template}};
}

struct ExampleFiles {
  ScratchDirectory dir;
  std::string write(const std::vector<std::pair<std::string, std::string>>& answers) {
    std::ofstream out(dir / "a.jsonl");
    for (const auto& [prompt, completion] : answers)
      out << Json({{"prompt", prompt}, {"completion", completion}}).dump() << "\n\n";
    return dir / "a.jsonl";
  }
};

inline std::shared_ptr<const ExampleSet> load_examples(const std::string& file,
                                                       ExampleSetOptions options) {
  const auto tokenizer = make_byte_tokenizer();
  const ExampleReader reader(*tokenizer, {}, true);
  return std::make_shared<const ExampleSet>(std::vector<std::string>{file}, reader, options);
}

}  // namespace trireme::test
