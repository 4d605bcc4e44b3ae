#include "commands/schedule.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/console.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/schedule_file.h"
#include "parallel/pipeline/timeline.h"

namespace trireme {
namespace {

constexpr int kWidest = 200;  // columns: longer lines are hard to follow

struct ShowArguments {
  std::string schedule = "1f1b";
  int stages = 4, chunks = 1, micro_batches = 8;
  std::string file, svg, json;
  StageTimes times;
};

Schedule chosen_schedule(const ShowArguments& arguments) {
  if (!arguments.file.empty()) return read_schedule_file(arguments.file);
  return load_schedule(arguments.schedule, arguments.stages, arguments.chunks,
                       arguments.micro_batches);
}

void print_head(const Schedule& schedule, const StageTimes& times) {
  std::string line = concat(schedule.name, ": ", schedule.stages, " stages, ");
  if (schedule.chunks > 1) line += concat(schedule.chunks, " chunks each, ");
  line += concat(schedule.micro_batches, " micro-batches; forward ", times.forward,
                 ", backward of the input ", times.backward_input, ", of the weights ",
                 times.backward_weight);
  if (times.transfer > 0) line += concat(", transfer ", times.transfer);
  std::printf("%s\n\n", line.c_str());
}

void show(const ShowArguments& arguments) {
  const Schedule schedule = chosen_schedule(arguments);
  const Timeline timeline = simulate(schedule, arguments.times);
  // Writes the files before it prints, so that a write error is not lost in a screen of text.
  if (!arguments.svg.empty())
    write_file_atomically(arguments.svg, timeline_svg(schedule, arguments.times, timeline));
  if (!arguments.json.empty()) write_file_atomically(arguments.json, schedule_json(schedule));
  print_head(schedule, arguments.times);
  const TimelineTextOptions options{std::min(console_width(), kWidest), console_is_terminal()};
  std::printf("%s\n%s", timeline_text(schedule, arguments.times, timeline, options).c_str(),
              timeline_table(schedule, arguments.times, timeline).c_str());
  if (!arguments.svg.empty()) std::printf("picture  %s\n", arguments.svg.c_str());
  if (!arguments.json.empty()) std::printf("schedule %s\n", arguments.json.c_str());
}

void add_times(CLI::App& command, StageTimes& times) {
  const auto add = [&](const char* name, double& value, const char* description) {
    command.add_option(name, value, description)
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
  };
  add("--forward", times.forward, "Time of a chunk's forward pass, in any unit");
  add("--backward-input", times.backward_input, "Time of the gradient of a chunk's input");
  add("--backward-weight", times.backward_weight, "Time of the gradient of a chunk's weights");
  add("--transfer", times.transfer, "Time of a message between two ranks");
}

CLI::App* add_show(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand(
      "show", "Draw a schedule's timeline, with the bubble and the micro-batches in flight");
  const auto arguments = std::make_shared<ShowArguments>();
  CLI::Option* name =
      command
          ->add_option("-s,--schedule", arguments->schedule,
                       "Schedule: gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_h2, or the path of a "
                       "schedule file")
          ->capture_default_str();
  const auto add_size = [&](const char* option, int& value, const char* description) {
    return command->add_option(option, value, description)
        ->check(CLI::Range(1, 1 << 22))
        ->capture_default_str();
  };
  CLI::Option* stages = add_size("-p,--stages", arguments->stages, "Pipeline stages (ranks)");
  CLI::Option* batches = add_size("-m,--micro-batches", arguments->micro_batches,
                                  "Micro-batches of one optimizer step");
  CLI::Option* chunks =
      add_size("--virtual", arguments->chunks, "Chunks of layers per rank (interleaved_1f1b)");
  add_times(*command, arguments->times);
  command
      ->add_option("--file", arguments->file,
                   "Schedule file; sets stages, micro-batches and chunks too")
      ->type_name("FILE")
      ->excludes(name)
      ->excludes(stages)
      ->excludes(batches)
      ->excludes(chunks);
  command->add_option("--svg", arguments->svg, "Output SVG file for the timeline")
      ->type_name("FILE");
  command
      ->add_option(
          "--json", arguments->json,
          "Output file of the schedule (JSON), readable by --file and parallel.pipeline_schedule")
      ->type_name("FILE");
  command->footer(
      "docs/design/pipeline-parallelism.md explains the schedules and the file format.");
  command->callback([arguments] { show(*arguments); });
  return command;
}

}  // namespace

CLI::App* add_schedule_command(CLI::App& parent) {
  CLI::App* command =
      parent.add_subcommand("schedule", "Inspect pipeline schedules without running them");
  command->require_subcommand(1);
  add_show(*command);
  return command;
}

}  // namespace trireme
