#include "commands/completion.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <vector>

#include "engine/core/error.h"

namespace trireme {
namespace {

// Word that may follow a command, with its one-line help.
struct Word {
  std::string text;
  std::string help;
  bool is_command = false;
};

// Command with its full name, "trireme data prepare", and the words that may follow it.
struct Node {
  std::string path;
  std::vector<Word> words;
};

std::string first_line(const std::string& s) { return s.substr(0, s.find('\n')); }

void walk(CLI::App& app, const std::string& path, std::vector<Node>& nodes) {
  Node node{path, {}};
  const auto children = app.get_subcommands([](CLI::App*) { return true; });
  for (const CLI::App* child : children)
    node.words.push_back({child->get_name(), first_line(child->get_description()), true});
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      node.words.push_back({"--" + name, first_line(option->get_description()), false});
  nodes.push_back(node);
  for (CLI::App* child : children) walk(*child, path + " " + child->get_name(), nodes);
}

// Text for single quotes of the three shells, without colons: zsh separates word and help by one.
std::string quoted(const std::string& s) {
  std::string out;
  for (const char c : s) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c == ':' ? '-' : c;
  }
  return "'" + out + "'";
}

// Branches of `case "$at $word" in` that follow the typed words down the tree.
std::string descent(const std::vector<Node>& nodes) {
  std::string out;
  for (const Node& node : nodes)
    for (const Word& word : node.words)
      if (word.is_command) {
        const std::string path = node.path + " " + word.text;
        out += concat("      '", path, "') at='", path, "' ;;\n");
      }
  return out;
}

std::string bash_script(const std::vector<Node>& nodes) {
  std::string out = "# bash completion for trireme; load with: source <(trireme completion bash)\n";
  out += "_trireme() {\n  local at=trireme words='' i\n";
  out += "  for ((i = 1; i < COMP_CWORD; i++)); do\n    case \"$at ${COMP_WORDS[i]}\" in\n";
  out += descent(nodes) + "    esac\n  done\n  case \"$at\" in\n";
  for (const Node& node : nodes) {
    std::string words;
    for (const Word& word : node.words) words += (words.empty() ? "" : " ") + word.text;
    out += concat("    '", node.path, "') words='", words, "' ;;\n");
  }
  out +=
      "  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
      "\"${COMP_WORDS[COMP_CWORD]}\")\n";
  return out + "}\ncomplete -o default -F _trireme trireme\n";
}

std::string zsh_script(const std::vector<Node>& nodes) {
  std::string out =
      "#compdef trireme\n# zsh completion; load with: source <(trireme completion zsh)\n";
  out += "_trireme() {\n  local at=trireme i\n  local -a candidates\n";
  out += "  for ((i = 2; i < CURRENT; i++)); do\n    case \"$at ${words[i]}\" in\n";
  out += descent(nodes) + "    esac\n  done\n  case \"$at\" in\n";
  for (const Node& node : nodes) {
    out += concat("    '", node.path, "') candidates=(");
    for (const Word& word : node.words) {
      const std::string both = quoted(word.text) + ":" + quoted(word.help);
      out += "\n      " + both;
    }
    out += ") ;;\n";
  }
  out += "  esac\n  _describe 'trireme' candidates\n  _files\n}\n";
  return out +
         "if [ \"$funcstack[1]\" = _trireme ]; then _trireme; else compdef _trireme trireme; fi\n";
}

std::string fish_script(const std::vector<Node>& nodes) {
  std::string out = "# fish completion for trireme; load with: trireme completion fish | source\n";
  out += "function __trireme_at\n  set -l at trireme\n";
  out += "  for word in (commandline -opc)[2..-1]\n    switch \"$at $word\"\n";
  for (const Node& node : nodes)
    for (const Word& word : node.words)
      if (word.is_command) {
        const std::string path = node.path + " " + word.text;
        out += concat("      case '", path, "'\n        set at '", path, "'\n");
      }
  out += "    end\n  end\n  test \"$at\" = \"$argv[1]\"\nend\n";
  for (const Node& node : nodes)
    for (const Word& word : node.words)
      // -f: no file names where a command is expected
      out += concat("complete -c trireme ", word.is_command ? "-f " : "", "-n \"__trireme_at '",
                    node.path, "'\" -a '", word.text, "' -d ", quoted(word.help), "\n");
  return out;
}

}  // namespace

void add_completion_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "Shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell] {
    std::vector<Node> nodes;
    walk(app, app.get_name(), nodes);
    const std::string script = *shell == "bash"  ? bash_script(nodes)
                               : *shell == "zsh" ? zsh_script(nodes)
                                                 : fish_script(nodes);
    std::fputs(script.c_str(), stdout);
  });
}

}  // namespace trireme
