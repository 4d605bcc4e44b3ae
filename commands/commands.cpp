#include "commands/commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <system_error>

#include "commands/bench/bench.h"
#include "commands/checkpoint/checkpoint.h"
#include "commands/command_line.h"
#include "commands/completion.h"
#include "commands/failure.h"
#include "commands/generate.h"
#include "commands/logits.h"
#include "commands/man_page.h"
#include "commands/parse_error.h"
#include "commands/schedule.h"
#include "commands/serving/route.h"
#include "commands/serving/serve.h"
#include "commands/tokenize.h"
#include "commands/training/config.h"
#include "commands/training/data.h"
#include "commands/training/eval.h"
#include "commands/training/rendezvous.h"
#include "commands/training/report.h"
#include "commands/training/training_commands.h"
#include "commands/version.h"
#include "engine/core/error.h"
#include "engine/core/standard_descriptors.h"
#include "engine/observe/log.h"
#include "engine/ops/backend/instruction_set.h"
#include "parallel/agree.h"

namespace trireme {
namespace {

constexpr const char* kDescription =
    "Trains and serves transformer language models: one program, one JSON file per run.";
constexpr const char* kFooter =
    "Exit codes: 0 done, 1 unexpected failure, 2 bad input (the message says what to change),\n"
    "3 stopped by request after saving, 4 diverged, 5 lost a rank. More: "
    "docs/reference/exit-codes.md";

// Appends the exit codes to a command's own footer (an example).
void complete_footers(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    if (command->get_footer() != kFooter) {
      command->footer(concat(command->get_footer(), "\n\n", kFooter));
    }
    complete_footers(*command);
  }
}

void add_bench_command(CLI::App& app, const CommandLine& line) {
  CLI::App* bench = app.add_subcommand("bench", "Benchmark this machine, or a server");
  bench->require_subcommand(1);
  add_bench_gemm(*bench);
  add_bench_train(*bench);
  add_bench_rows(*bench);
  add_bench_ops(*bench);
  add_bench_decode(*bench);
  add_bench_steps(*bench);
  add_bench_comm(*bench, line);
  add_bench_compress(*bench, line);
  add_bench_serve(*bench);
}

void add_commands(CLI::App& app, const CommandLine& line) {
  app.set_help_all_flag("--help-all", "Print the help of every command and exit");
  app.set_version_flag("--version", version_text,
                       "Print versions, backends and processor, and exit");
  app.add_option_function<std::string>(
         "--isa", [](const std::string& name) { limit_instruction_set(parse_isa(name)); },
         "Newest instruction set that kernels and the GEMM library may use: auto, avx512, avx2, "
         "portable; give it before the command (default: auto)")
      ->type_name("SET");
  app.footer(kFooter);  // inherited by every command added below
  app.require_subcommand(1);
  add_config_command(app);
  add_data_command(app);
  add_training_commands(app, line);
  add_rendezvous_command(app);
  add_eval_command(app, line);
  add_logits_command(app, line);
  add_generate_command(app, line);
  add_serve_command(app, line);
  add_route_command(app);
  add_checkpoint_command(app);
  add_tokenize_commands(app);
  add_report_command(app);
  add_schedule_command(app);
  add_bench_command(app, line);
  add_completion_command(app);
  add_man_command(app);
  complete_footers(app);
}

// Exit code after checking standard output: output that could not be written (full disk, closed
// pipe) is a failure.
int finish(int code) {
  // A rank was lost, which this rank noticed only after its own work was done.
  if (code == 0 && loss_announced()) return static_cast<int>(ExitCode::kLostRank);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return code != 0 ? code : fail_command("cannot write to standard output", ExitCode::kFailure);
}

int parse_and_run(CLI::App& app, const CommandLine& line) {
  try {
    app.parse(line.argc, line.argv);
  } catch (const CLI::Success& e) {  // --help, --help-all, --version
    return app.exit(e);
  } catch (const CLI::RuntimeError& e) {  // a command chose its exit code
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    return fail_command(explain_parse_error(app, e), ExitCode::kBadInput);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

int run_command_line(int argc, char** argv) {
  open_standard_descriptors();
  try {
    const CommandLine line{argc, argv};
    CLI::App app(kDescription, "trireme");
    add_commands(app, line);
    return finish(parse_and_run(app, line));
  } catch (const ReportedError& e) {
    return static_cast<int>(e.code());
  } catch (const Error& e) {
    return fail_command(e.what(), e.code());
  } catch (const std::bad_alloc&) {
    return fail_command("out of memory", ExitCode::kFailure);
  } catch (const std::system_error& e) {
    const bool threads = e.code() == std::errc::resource_unavailable_try_again;
    return fail_command(concat(threads ? "cannot start a thread: " : "", e.what(),
                               threads ? "; raise the limit of processes and threads (ulimit -u, "
                                         "or the pids limit of the container)"
                                       : ""),
                        ExitCode::kFailure);
  } catch (const std::exception& e) {
    return fail_command(e.what(), ExitCode::kFailure);
  }
}

}  // namespace trireme
