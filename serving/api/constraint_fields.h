// Fields of a request that constrain its output, in the spellings of OpenAI, vLLM, llama.cpp and
// SGLang. Unknown members are rejected by name: no request is served without a constraint that it
// asks for. For .cpp files only (includes the JSON library).
#pragma once

#include <span>

#include "serving/api/field_table.h"
#include "serving/api/requests.h"

namespace trireme {

inline constexpr size_t kMaxConstraintBytes = 64 << 10;  // of a schema, expression or grammar
inline constexpr size_t kMaxConstraintChoices = 1024;

// {"type": T, ...}. T is "text"; "json_object", with an optional schema in `schema` or
// `json_schema.schema`; "json_schema", with either; "grammar" with `grammar`; "regex" with
// `pattern`.
void read_response_format(GenerationRequest& request, const ApiJson& value, const Field& field);
// Exactly one of json, json_object, regex, choice and grammar.
void read_structured_outputs(GenerationRequest& request, const ApiJson& value, const Field& field);
// Field that is one constraint by itself. member: its name within structured_outputs.
void read_constraint(GenerationRequest& request, const char* member, const ApiJson& value,
                     const Field& field);

// Throws 400 for an unknown field that looks like a constraint, or like a misspelling of one.
void refuse_unknown_constraints(const ApiJson& object, std::span<const Field> fields);

template <class Request>
void add_constraint_fields(FieldTable<Request>& t) {
  t.other("response_format", FieldKind::kObject, "", R"({"required":["type"]})",
          "Constraint on the completion: {\"type\": \"text\", \"json_object\", \"json_schema\", "
          "\"grammar\" or \"regex\"}.",
          read_response_format);
  t.other("structured_outputs", FieldKind::kObject, "", "",
          "Constraint on the completion: one of json, json_object, regex, choice, grammar.",
          read_structured_outputs);
  struct Alias {
    const char *name, *member, *shape, *help;
  };
  constexpr char kSchema[] = R"({"type":["object","boolean","string","null"]})";
  constexpr char kText[] = R"({"type":["string","null"]})";
  constexpr char kTexts[] = R"({"type":["array","null"],"items":{"type":"string"}})";
  for (const Alias& alias :
       {Alias{"json_schema", "json", kSchema, "structured_outputs.json, as llama.cpp names it."},
        Alias{"grammar", "grammar", kText, "structured_outputs.grammar, as llama.cpp names it."},
        Alias{"regex", "regex", kText, "structured_outputs.regex, as SGLang names it."},
        Alias{"ebnf", "grammar", kText, "structured_outputs.grammar, as SGLang names it."},
        Alias{"guided_json", "json", kSchema, "structured_outputs.json, by its older name."},
        Alias{"guided_regex", "regex", kText, "structured_outputs.regex, by its older name."},
        Alias{"guided_choice", "choice", kTexts, "structured_outputs.choice, by its older name."},
        Alias{"guided_grammar", "grammar", kText,
              "structured_outputs.grammar, by its older name."}})
    t.other(alias.name, FieldKind::kOther, "", alias.shape, alias.help,
            [member = alias.member](Request& r, const ApiJson& v, const Field& f) {
              read_constraint(r, member, v, f);
            });
}

}  // namespace trireme
