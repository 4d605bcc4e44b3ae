// Sources of a model's chat templates, by name.
//
// A model usually has one template, named "default" here; some have others, for conversations with
// tools ("tool_use") or documents ("rag"). They are read from the places that transformers 5 and
// llama.cpp read:
//
//   chat_template.jinja, additional_chat_templates/NAME.jinja   next to the tokenizer
//   "chat_template" of tokenizer_config.json   without such files: a string, a list of {"name",
//                                              "template"}, or an object of them by name
//   tokenizer.chat_template, tokenizer.chat_template.NAME   of a .gguf; precede both
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trireme {

using ChatTemplateSources = std::map<std::string, std::string>;
inline constexpr const char* kDefaultChatTemplate = "default";
inline constexpr const char* kToolUseChatTemplate = "tool_use";
inline constexpr const char* kGgufChatTemplate = "tokenizer.chat_template";
inline constexpr size_t kMaxChatTemplateBytes = 1 << 20;

// Returns the templates of a tokenizer, given as for load_tokenizer(); none for "byte" and for "".
// InputError for more than 64 templates and for a .jinja file above kMaxChatTemplateBytes.
ChatTemplateSources find_chat_templates(const std::string& tokenizer);
ChatTemplateSources chat_templates_of(const std::string& tokenizer);  // InputError if there is none

ChatTemplateSources gguf_chat_templates(const std::string& path);  // of the file alone

// Returns the templates for a user's argument: a name in `own` (then only that template, as the
// default), a template file, or a tokenizer's directory with templates. InputError if it is none of
// these.
ChatTemplateSources read_chat_templates(const std::string& given, const ChatTemplateSources& own);

// Returns the name of the template that renders a conversation, selected as by get_chat_template()
// of transformers 5: `asked`, unless empty; else "tool_use" if it exists and tools are given; else
// "default". InputError with the names if there is no such template.
std::string chosen_chat_template(const ChatTemplateSources& sources, bool has_tools,
                                 const std::string& asked = "");
std::string chat_template_names(const ChatTemplateSources& sources);  // "default", "tool_use"

// Returns the names of message members that a template's code may read, as .name, ['name'],
// .get('name') or 'name' in ...: every string and every attribute in it, sorted. InputError if it
// cannot be parsed.
std::vector<std::string> members_read(const std::string& source);

// Form in checkpoints: the source if "default" is the only template, else an object by name; "" for
// none. When read, any other value means no templates.
nlohmann::ordered_json chat_templates_to_json(const ChatTemplateSources& sources);
ChatTemplateSources chat_templates_from_json(const nlohmann::ordered_json& json);

// Writes the files above into a directory and removes all earlier ones. If a template's name is not
// a file name ("a/b"), all are written as a list to "chat_template" of tokenizer_config.json
// instead. No effect without sources.
void write_chat_template_files(const ChatTemplateSources& sources, const std::string& directory);
// Returns whether every name is usable in a file name: 1 to 128 bytes, no leading dot, no slash,
// backslash or control character.
bool are_names_of_files(const ChatTemplateSources& sources);
// List of {"name", "template"}, as in tokenizer_config.json.
nlohmann::ordered_json chat_templates_to_list(const ChatTemplateSources& sources);
// File of the template of this name, and existing template files; relative to the directory.
std::string chat_template_file(const std::string& name);
std::vector<std::string> chat_template_files(const std::string& directory);

}  // namespace trireme
