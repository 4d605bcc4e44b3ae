#include "commands/man_page.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "commands/version.h"
#include "engine/core/error.h"

namespace trireme {
namespace {

// Escapes a text for roff, so that it is printed literally: with hyphens that can be copied, and
// without lines that start a macro.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += c;
    }
  }
  return out;
}

// Paragraph with the text's own line breaks, since it includes examples.
std::string paragraph(const std::string& text) {
  if (text.empty()) return {};
  return concat(".PP\n.nf\n", plain(text), "\n.fi\n");
}

bool is_shown(const CLI::Option& option) { return !option.get_group().empty(); }

// "\fB-c\fR, \fB--config\fR FILE", or "FILE" for an argument.
std::string heading(const CLI::Option& option) {
  std::string names;
  const auto add = [&](const std::string& dashes, const std::string& name) {
    names += concat(names.empty() ? "" : ", ", "\\fB", plain(dashes + name), "\\fR");
  };
  for (const std::string& name : option.get_snames()) add("-", name);
  for (const std::string& name : option.get_lnames()) add("--", name);
  if (names.empty()) return concat("\\fI", plain(option.get_name(true)), "\\fR");
  const std::string type = option.get_type_size() == 0 ? "" : option.get_type_name();
  return type.empty() ? names : concat(names, " \\fI", plain(type), "\\fR");
}

std::string options_of(CLI::App& command) {
  std::string out;
  for (const CLI::Option* option : command.get_options([](const CLI::Option* one) {
         return is_shown(*one) && !one->check_lname("help") && !one->check_lname("help-all");
       })) {
    std::string help = option->get_description();
    if (option->get_required()) help += " (required)";
    out += concat(".TP\n", heading(*option), "\n", plain(help), "\n");
  }
  return out;
}

void add_sections(CLI::App& command, const std::string& path, std::string& page) {
  page += concat(".SS ", plain(path), "\n", plain(command.get_description()), "\n");
  page += options_of(command);
  // Without the exit codes at the end of the footer, which are the same for every command.
  const std::string footer = command.get_footer();
  page += paragraph(footer.substr(0, footer.find("Exit codes:")));
  for (CLI::App* child : command.get_subcommands([](CLI::App*) { return true; }))
    add_sections(*child, path + " " + child->get_name(), page);
}

std::string man_page(CLI::App& app) {
  std::string page =
      concat(".TH TRIREME 1 \"\" \"trireme ", version_number(), "\" \"User Commands\"\n");
  page += ".nh\n.ad l\n";  // lines end between words, and commands can be copied
  page += concat(".SH NAME\ntrireme \\- ", plain(app.get_description()), "\n");
  page += ".SH SYNOPSIS\n.B trireme\n[\\fIoptions\\fR] \\fIcommand\\fR [\\fIarguments\\fR]\n";
  page += ".SH OPTIONS\n" + options_of(app);
  page += ".SH COMMANDS\n";
  for (CLI::App* child : app.get_subcommands([](CLI::App*) { return true; }))
    add_sections(*child, child->get_name(), page);
  page += concat(".SH EXIT STATUS\n", plain(app.get_footer()), "\n");
  return page;
}

}  // namespace

void add_man_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "Print the manual page: trireme man | man -l -");
  command->callback([&app] { std::fputs(man_page(app).c_str(), stdout); });
}

}  // namespace trireme
