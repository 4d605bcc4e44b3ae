#include "commands/training/report.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "engine/observe/console.h"
#include "training/report/report.h"

namespace trireme {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output;
  std::string axis = "step";
};

// Default output: in the run's directory for one run, in the current directory for a comparison.
std::string default_output(const std::vector<std::string>& runs) {
  const bool own = runs.size() == 1 && std::filesystem::is_directory(runs.front());
  return own ? runs.front() + "/report.html" : "report.html";
}

void report(const ReportArguments& arguments) {
  const std::vector<RunRecord> runs = read_runs(arguments.runs);
  const std::string output =
      arguments.output.empty() ? default_output(arguments.runs) : arguments.output;
  const ReportFiles files = write_report(
      runs, output, arguments.axis == "tokens" ? ReportAxis::kTokens : ReportAxis::kStep);
  std::printf("%s\npage     %s%s\n", report_text(runs, console_width()).c_str(), files.page.c_str(),
              files.interactive ? "" : " (static pictures: libjs-dygraphs is not installed)");
  for (const std::string& picture : files.pictures) std::printf("picture  %s\n", picture.c_str());
}

}  // namespace

CLI::App* add_report_command(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand(
      "report", "Draw loss and throughput of runs: one HTML page, SVG files, a terminal picture");
  const auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("run", arguments->runs, "Run directories (output_dir), or metrics.jsonl files")
      ->required()
      ->type_name("RUN");
  command
      ->add_option("-o,--output", arguments->output,
                   "Output HTML page; SVG files are named after it (default: RUN/report.html for "
                   "one run, else ./report.html)")
      ->type_name("FILE");
  command->add_option("-x,--x", arguments->axis, "Horizontal axis of the charts")
      ->check(CLI::IsMember({"step", "tokens"}))
      ->capture_default_str();
  command->callback([arguments] { report(*arguments); });
  return command;
}

}  // namespace trireme
