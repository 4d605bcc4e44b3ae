#include "serving/structured/tool_format.h"

#include <array>
#include <nlohmann/json.hpp>

#include "engine/io/strict_json.h"
#include "serving/structured/json_schema_grammar.h"

namespace trireme {
namespace {

using Node = Grammar::Node;
using Json = nlohmann::ordered_json;

struct Form {
  ToolFormat format;
  const char *name, *marker;
  const char *before, *between, *after;  // of the calls of a text
  const char* arguments;                 // the member that holds them
};
constexpr std::array<Form, 3> kForms = {{
    {ToolFormat::kHermes, "hermes", "<tool_call>", "<tool_call>\n", "\n</tool_call>\n<tool_call>\n",
     "\n</tool_call>", "arguments"},
    {ToolFormat::kLlama3, "llama3_json", "<|python_tag|>", "", "; ", "", "parameters"},
    {ToolFormat::kMistral, "mistral", "[TOOL_CALLS]", "[", ", ", "]", "arguments"},
}};

const Form* form_of(ToolFormat format) {
  for (const Form& form : kForms)
    if (form.format == format) return &form;
  return nullptr;
}

Node one_call(JsonGrammar& json, const Form& form, const Json& tool) {
  Grammar& g = json.grammar();
  const Node name =
      g.literal(concat(R"({"name": )", tool["name"].dump(), R"(, ")", form.arguments, R"(": )"));
  Node arguments = g.literal("{}");
  if (tool.contains("parameters")) {
    Json parameters = tool["parameters"];
    if (parameters.is_object() && !parameters.contains("type") && !parameters.contains("$ref"))
      parameters["type"] = "object";
    try {
      arguments = json_schema_grammar(json, parameters.dump());
    } catch (const InputError& error) {
      fail_input("the tool ", tool["name"].get<std::string>(), ": ", error.what());
    }
  }
  return g.sequence({name, arguments, g.literal("}")});
}

}  // namespace

ToolFormat tool_format_of_template(std::string_view chat_template) {
  for (const Form& form : kForms)
    if (chat_template.find(form.marker) != std::string_view::npos) return form.format;
  // Llama 3's template calls the role of what tools say so, and names no marker.
  const bool llama = chat_template.find("ipython") != std::string_view::npos;
  return llama ? ToolFormat::kLlama3 : ToolFormat::kNone;
}

ToolFormat tool_format(std::string_view name) {
  for (const Form& form : kForms)
    if (form.name == name) return form.format;
  fail_input("\"", name, "\" is no form of tool calls; there are hermes, llama3_json and mistral");
}

const char* text(ToolFormat format) {
  const Form* form = form_of(format);
  return form == nullptr ? "none" : form->name;
}

const char* tool_marker(ToolFormat format) {
  const Form* form = form_of(format);
  return form == nullptr ? "" : form->marker;
}

std::string_view tool_end(ToolFormat format) {
  return format == ToolFormat::kHermes ? "</tool_call>" : "";
}

Node tool_call_grammar(Grammar& g, std::string_view tools) {
  const Json source = parse_strict_json<Json>(tools, "the tools", {.depth = 256});
  const Form& form = *form_of(tool_format(source["format"].get<std::string>()));
  JsonGrammar json(g);
  std::vector<Node> ways;
  for (const Json& tool : source["tools"]) ways.push_back(one_call(json, form, tool));
  const Node call = g.named(g.choice(std::move(ways)));
  const int64_t most = source["parallel"] == true ? -1 : 1;
  return g.sequence({g.literal(form.before), g.separated(call, g.literal(form.between), 1, most),
                     g.literal(form.after)});
}

}  // namespace trireme
