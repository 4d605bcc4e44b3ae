#!/usr/bin/env python3
"""Every house check of the code fails on a sample that it exists to refuse, and passes its repaired twin."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_backend
import check_errors
import check_families
import check_format
import check_globals
import check_includes
import check_isa
import check_kernels
import check_language
import check_mirror
import check_ops
import check_tidy
import check_units
import check_words
from source import code_only


class Includes(unittest.TestCase):
    def problems(self, path, text):
        return check_includes.check(path, text, exists=lambda name: True)

    def test_edges(self):
        forbidden = [("engine/core/a.cpp", "engine/ops/b.h"), ("engine/ops/a.cpp", "engine/io/b.h"),
                     ("engine/io/a.cpp", "parallel/b.h"), ("parallel/comm/a.cpp", "transformer/pass/b.h"),
                     ("optim/a.cpp", "transformer/config/b.h"), ("transformer/model/a.cpp", "optim/b.h"),
                     ("serving/engine/a.cpp", "optim/b.h"), ("serving/engine/a.cpp", "serving/http/service/b.h"),
                     ("serving/http/service/a.cpp", "training/run/b.h"), ("training/run/a.cpp", "serving/http/service/b.h"),
                     ("training/run/a.cpp", "commands/b.h"), ("main.cpp", "training/run/b.h"),
                     ("training/config/a.cpp", "training/data/b.h"), ("training/step/a.cpp", "training/run/b.h"),
                     ("training/data/a.cpp", "training/data/examples/b.h"),
                     ("transformer/layers/a.cpp", "transformer/model/b.h"),
                     ("transformer/config/a.cpp", "transformer/families/b.h"),
                     ("parallel/comm/liveness/a.cpp", "parallel/comm/transport/b.h"),
                     ("parallel/comm/transport/a.cpp", "parallel/comm/b.h"),
                     ("engine/core/a.cpp", "tests/support/b.h")]
        for path, name in forbidden:
            self.assertEqual(len(self.problems(path, f'#include "{name}"\n')), 1, (path, name))
        allowed = [("engine/text/a.cpp", "engine/io/b.h"),
                   ("commands/training/a.cpp", "training/run/b.h"), ("training/run/a.cpp", "training/step/b.h"),
                   ("transformer/layers/a.cpp", "transformer/pass/b.h"), ("tests/optim/a.cpp", "transformer/layers/b.h"),
                   ("parallel/a.cpp", "parallel/comm/b.h")]
        for path, name in allowed:
            self.assertEqual(self.problems(path, f'#include "{name}"\n'), [], (path, name))

    def test_unused_edges(self):
        used = {(room, other) for room, others in check_includes.MAY_INCLUDE.items() for other in others}
        self.assertEqual(check_includes.unused(used), [])
        edge = check_includes.edges("optim/a.cpp", '#include "parallel/b.h"\n')
        self.assertEqual(edge, {("optim", "parallel")})
        self.assertEqual(len(check_includes.unused(used - edge)), 1)

    def test_rooms_from_the_bottom_up(self):
        self.assertEqual(check_includes.upward({"a": [], "a/b": ["a"], "c": ["a/b"]}), [])
        self.assertEqual(len(check_includes.upward({"a": ["c"], "b": ["a"], "c": ["b"]})), 1)

    def test_headers(self):
        self.assertEqual(len(self.problems("engine/io/a.h", "int x;\n")), 1)
        self.assertEqual(len(self.problems("engine/io/a.h", "#pragma once\n#include <nlohmann/json.hpp>\n")), 1)
        self.assertEqual(len(self.problems("engine/io/a.h", "#pragma once\nusing namespace std;\n")), 1)
        self.assertEqual(self.problems("engine/io/a.h", "#pragma once\n#include <nlohmann/json_fwd.hpp>\n"), [])
        self.assertEqual(self.problems("engine/io/a.cpp", "#include <nlohmann/json.hpp>\n"), [])

    def test_headers_for_cpp_files_only(self):
        heavy = "// For .cpp files only.\n#pragma once\n#include <nlohmann/json.hpp>\n"
        self.assertEqual(self.problems("engine/io/heavy.h", heavy), [])
        user = '#pragma once\n#include "engine/io/heavy.h"\n'
        refused = check_includes.check("engine/io/a.h", user, lambda name: True, {"engine/io/heavy.h"})
        self.assertEqual(len(refused), 1)
        self.assertEqual(check_includes.check("engine/io/a.cpp", user, lambda name: True, {"engine/io/heavy.h"}), [])
        alike = "// For .cpp files only.\n" + user
        self.assertEqual(check_includes.check("engine/io/b.h", alike, lambda name: True, {"engine/io/heavy.h"}), [])

    def test_unknown_room_and_missing_file(self):
        self.assertEqual(len(self.problems("helpers/a.cpp", "int x;\n")), 1)
        self.assertEqual(len(self.problems("training/a.cpp", "int x;\n")), 1)
        self.assertEqual(len(check_includes.check("engine/io/a.cpp", '#include "no/such.h"\n')), 1)

    def test_commented_include_is_no_edge(self):
        self.assertEqual(self.problems("engine/core/a.cpp", '// #include "training/b.h"\n'), [])


class Ops(unittest.TestCase):
    GOOD = {"engine/ops/context.h": "", "engine/ops/context.cpp": '#include "engine/ops/gemm/gemm.h"\n',
            "engine/ops/gemm/gemm.h": '#include "engine/ops/context.h"\n',
            "engine/ops/norm/norm.h": '#include "engine/ops/context.h"\n',
            "engine/ops/norm/norm.cpp": '#include "engine/ops/norm/norm.kernels.h"\n#include "engine/ops/rows/sums.cpu.h"\n',
            "engine/ops/norm/norm.kernels.h": '#include "engine/ops/backend/isa.h"\n', "engine/ops/norm/norm_tail.cuda.cpp": "",
            "engine/ops/norm/norm.cpu.cpp": '#include "engine/ops/norm/norm.kernels.h"\n#include "engine/ops/rows/sums.cpu.h"\n',
            "engine/ops/norm/norm.cu": '#include "engine/ops/norm/norm.kernels.h"\n#include "engine/ops/rows/sums.cuda.h"\n',
            "engine/ops/rows/sums.cpu.h": "", "engine/ops/rows/sums.cuda.h": "", "engine/ops/backend/isa.h": "",
            "transformer/layers/norm.cpp": '#include "engine/ops/norm/norm.h"\n'}

    def problems(self, path, text=""):
        return check_ops.check({**self.GOOD, path: text})[0]

    def test_good(self):
        self.assertEqual(check_ops.check(self.GOOD)[0], [])

    def test_places(self):
        for path, wanted in (("engine/ops/cpu/norm.cpp", "engine/ops/norm/norm.cpu.cpp"),
                             ("engine/ops/cuda/norm.cu", "engine/ops/norm/norm.cu"),
                             ("engine/ops/cuda/norm_backward.h", "engine/ops/norm/norm_backward.cuda.h"),
                             ("engine/ops/norm/cuda/norm.cpp", "engine/ops/norm/norm.cuda.cpp"),
                             ("engine/ops/gemm/norm.cpu.h", "engine/ops/norm/norm.cpu.h"),
                             ("engine/ops/convolution/convolve.cpp", "engine/ops/<family>/convolve.cpp")):
            (problem,) = self.problems(path)
            self.assertIn(f"belongs to {wanted}", problem)
        for path in ("engine/ops/norm/norm.avx2.cpp", "engine/ops/norm/norm.cuh", "engine/ops/norm/norm.kernels.cpp"):
            (problem,) = self.problems(path)
            self.assertIn("files of an op X are", problem)

    def test_flat_files(self):
        more = {**self.GOOD, "engine/ops/libraries.cuda.cpp": ""}
        self.assertEqual(check_ops.check(more)[0], [])
        (problem,) = check_ops.check({**more, "engine/ops/norm_rows.cpp": ""})[0]
        self.assertIn("4 files outside of the families, at most 3", problem)
        self.assertIn("engine/ops/norm_rows.cpp (to engine/ops/norm/norm_rows.cpp?)", problem)

    def test_backends(self):
        for path, name in (("engine/ops/norm/norm.cu", "rows/sums.cpu.h"), ("engine/ops/norm/a.cuda.cpp", "rows/sums.cpu.h"),
                           ("engine/ops/norm/a.cuda.h", "rows/sums.cpu.h"), ("engine/ops/norm/a.cpu.cpp", "rows/sums.cuda.h"),
                           ("engine/ops/norm/a.cpu.h", "rows/sums.cuda.h"), ("engine/ops/norm/a.kernels.h", "rows/sums.cpu.h"),
                           ("engine/ops/norm/a.kernels.h", "rows/sums.cuda.h"), ("engine/ops/norm/norm.h", "norm/norm.kernels.h"),
                           ("transformer/layers/a.cpp", "norm/norm.kernels.h"), ("optim/cuda/a.cu", "rows/sums.cuda.h")):
            for line in (f'#include "engine/ops/{name}"\n', f"  #include <engine/ops/{name}>\n"):
                self.assertEqual(len(self.problems(path, line)), 1, (path, line))
        self.assertEqual(len(self.problems("engine/ops/norm/a.cu", '#include "engine/ops/norm/norm.cpp"\n')), 1)

    def test_families(self):
        for path, name in (("engine/ops/rows/sums.cpp", "norm/norm.h"), ("engine/ops/backend/a.h", "gemm/gemm.h"),
                           ("engine/ops/norm/a.cpp", "gemm/gemm.h"), ("engine/ops/context.h", "gemm/gemm.h")):
            (problem,) = self.problems(path, f'#include "engine/ops/{name}"\n')
            self.assertIn("may not include", problem)
        self.assertEqual(self.problems("engine/ops/norm/a.cpp", '// #include "engine/ops/gemm/gemm.h"\n'), [])
        self.assertEqual(check_ops.upward({"a": [], "b": ["a"]}), [])
        self.assertEqual(len(check_ops.upward({"a": ["b"], "b": []})), 1)
        used = {(family, other) for family, others in check_ops.FAMILIES.items() for other in others}
        self.assertEqual(check_ops.unused(used), [])
        self.assertEqual(len(check_ops.unused(used - {("moe", "loss")})), 1)


class Kernels(unittest.TestCase):
    def test_the_first_statement(self):
        kernel = "template <class T>\n__global__ void __launch_bounds__(f(8), 2)\n    a_kernel(A<T> a) {\n  BODY\n}\n"
        block = "const int64_t n0 = static_cast<int64_t>(blockIdx.x) * kOutputs;\n  "
        for body in ("begin_kernel();\n  f(a);", block + "begin_kernel([&] { prefetch_weight(a, n0); });"):
            self.assertEqual(check_kernels.check("a.cu", kernel.replace("BODY", body)), [])
        for body in ("f(a);", "f(a);\n  begin_kernel();", "// begin_kernel();", "",
                     "begin_kernel([&] { f(a); prefetch_weight(a); });", "begin_kernel([&] { read(a); });"):
            self.assertEqual(len(check_kernels.check("a.cu", kernel.replace("BODY", body))), 1, body)


class Units(unittest.TestCase):
    def test_cycles(self):
        def include(*names):
            return "".join(f'#include "{name}"\n' for name in names)
        # A source of a unit counts as its header; a unit that includes itself is no cycle.
        good = {"optim/a.h": "", "optim/a.cpp": include("optim/a.h", "optim/b.h"), "optim/b.h": "",
                "optim/b.cpp": include("optim/b.h", "optim/c.h"), "optim/c.h": include("optim/d.h"), "optim/d.h": ""}
        self.assertEqual(check_units.check_cycles(good, {}), [])
        for path, name in (("optim/b.h", "optim/a.h"), ("optim/d.h", "optim/b.h"), ("optim/d.h", "optim/a.h")):
            bad = {**good, path: good[path] + include(name)}
            (problem,) = check_units.check_cycles(bad, {})
            self.assertIn(path[:-2] + " -> " + name[:-2], problem)
        units = sum(len(group) for group in check_units.cycles(check_units.unit_edges(bad)))
        self.assertEqual(units, 4)
        self.assertEqual(check_units.check_cycles(bad, {"optim": 4}), [])
        self.assertEqual(len(check_units.check_cycles(bad, {"optim": 3})), 1)

    def problems(self, path, text, allowed=()):
        texts = {"transformer/model/lora.h": "namespace trireme {\nstruct Plan {\n  int x;\n};\nenum class Kind { kA };\n}\n",
                 "engine/core/base.h": "namespace trireme::detail {\nclass Base {\n};\n}\n", path: text}
        return check_units.check_declarations(texts, allowed)

    def test_declarations(self):
        for declared in ("struct Plan;\n", "enum class Kind;\n", "void f(const class Plan& p);\n",
                         "struct S {\n  std::shared_ptr<class Plan> plan;\n  std::map<const class Plan*, int> of;\n};\n"):
            text = "namespace trireme {\n" + declared + "}\n"
            self.assertTrue(self.problems("parallel/a.h", text), declared)
            self.assertEqual(self.problems("transformer/model/a.h", text), [], declared)
            self.assertEqual(self.problems("serving/engine/a.cpp", text), [], declared)
        self.assertEqual(self.problems("parallel/a.h", "namespace trireme {\nstruct Plan;\n}\n", {("a.h", "Plan")}), [])
        for fine in ("namespace trireme {\nclass Unknown;\n}\n", "namespace other {\nstruct Plan;\n}\n",
                     "namespace trireme {\nclass A {\n  class Plan;\n};\ntemplate <class Plan>\nvoid f();\n}\n",
                     "namespace trireme {\n// struct Plan;\nstruct Plan {\n};\n}\n",
                     "namespace trireme {\nnamespace detail {\nclass Base;\n}\n}\n"):
            self.assertEqual(self.problems("parallel/a.h", fine), [], fine)
        self.assertEqual(len(self.problems("parallel/a.h", "namespace trireme {\nnamespace b {\n}\nstruct Plan;\n}\n")), 1)


class Globals(unittest.TestCase):
    def names(self, text):
        return [name for _, name in check_globals.variables(text)]

    def test_what_can_change(self):
        for line in ("int x = 0;", "std::atomic<int> x{0};", "static std::map<int, std::string> x;", "const char* x = 0;",
                     "thread_local Budget* x = nullptr;", "inline std::mutex x;", "extern int y;\nint x[3] = {1, 2, 3};",
                     "void f() {\n  static int x = g();\n}", "void f() {\n  for (;;) {\n    thread_local std::string x;\n  }\n}",
                     "class A {\n  static inline std::atomic<int> x{0};\n};", "bool x;",
                     "void f() {\n  thread_local std::mt19937 x{seed()};\n}",
                     "void f() {\n  thread_local std::vector<void (*)(int)> x;\n}", "constexpr int y = 1;\ndouble x;"):
            for text in (line + "\n", "namespace a {\nnamespace {\n" + line + "\n}\n}\n"):
                self.assertEqual(self.names(text), ["x"], text)

    def test_constants_and_functions(self):
        for line in ("const int x = 0;", "constexpr const char* x = 0;", "const char* const x = 0;", "int x();",
                     "static int x(int a) {\n  int b = a;\n  return b;\n}", "using x = int;", "struct x;", "enum class x { kA };",
                     "class A {\n  int x = 0;\n  static int f();\n  static constexpr int k = 1;\n};", "// int x;",
                     "void f() {\n  int x = 0;\n  static const auto y = [] { return 1; }();\n}", "extern const int x;",
                     "template <class T>\nint x(T a);", "#define X int x;", "friend class x;", "auto f() -> int {\n  return 1;\n}",
                     "std::string x(const std::string& a = {}) {\n  return a;\n}"):
            for text in (line + "\n", "namespace a {\nnamespace {\n" + line + "\n}\n}\n"):
                self.assertEqual(self.names(text), [], text)

    def test_reasons(self):
        self.assertEqual(len(check_globals.check("engine/core/a.cpp", "int x = 0;\n", {})), 1)
        self.assertEqual(check_globals.check("engine/core/a.cpp", "int x = 0;\n", {"a.cpp x": "why"}), [])
        self.assertEqual(len(check_globals.unused({"engine/core/a.cpp": ""}, {"a.cpp x": "why"})), 1)


class Families(unittest.TestCase):
    def test_a_branch_on_a_family(self):
        branch = "if (config.family == ModelFamily::kGemma3) f();\n"
        self.assertEqual(len(check_families.check("transformer/formats/hf/a.cpp", branch)), 1)
        self.assertEqual(len(check_families.check("training/run/a.cpp", branch)), 1)
        self.assertEqual(check_families.check("transformer/families/a.cpp", branch), [])
        self.assertEqual(check_families.check("tests/a.cpp", branch), [])
        self.assertEqual(check_families.check("training/run/a.cpp", "// " + branch), [])


class Errors(unittest.TestCase):
    def found(self, text):
        return len(list(check_errors.decisions(text)))

    def test_decisions(self):
        for line in ('if (why.find("check failed") != npos) f();', "return why == kRanksLost;", 'if (e.what() == "gone") f();',
                     "if (std::string_view(error.what()).starts_with(what)) f();", "if (event.error != kStops) f();",
                     'x = std::string(e.what()) == "gone";', "if (kGone == failure.why) f();", "if (error_.compare(kGone) == 0) f();",
                     'if (reason.find( "x" ) > 0) f();'):
            self.assertEqual(self.found(line + "\n"), 1, line)
        for line in ('if (why.empty() || error == "") f();', "if (error == Error::kGone) f();", "if (failure.cause == Cause::kGone) f();",
                     "log(e.what());", 'if (text.find("why") > 0) f();', "// why == kGone", "if (message == other) f();",
                     'x = "error.find(\\"a\\")";', "if (error.code() == ExitCode::kLostRank) f();"):
            self.assertEqual(self.found(line + "\n"), 0, line)

    def test_reasons(self):
        self.assertEqual(len(check_errors.check("a/b.cpp", "if (why == kGone) f();\n", {})), 1)
        self.assertEqual(check_errors.check("a/b.cpp", "if (why == kGone) f();\n", {"b.cpp": "shown"}), [])
        self.assertEqual(len(check_errors.unused({"a/b.cpp": "f();\n"}, {"b.cpp": "shown"})), 1)


class Words(unittest.TestCase):
    def test_owned_names(self):
        bad = {"training/a.cpp": "int r = MPI_Init(0, 0);\n", "engine/core/a.cpp": "#include <mpi.h>\n",
               "transformer/a.cpp": "cudaMalloc(&p, 4);\n", "optim/a.cpp": "ncclAllReduce();\n",
               "training/b.cpp": "dnnl::memory m;\n", "engine/io/a.cpp": 'getenv("HOME");\n',
               "training/c.cpp": "std::exit(1);\n", "engine/text/a.cpp": "abort();\n",
               "engine/ops/norm/a.cpp": "cudaMalloc(&p, 4);\n", "engine/ops/norm/a.kernels.h": "__global__ void f();\n",
               "engine/ops/norm/a.cpu.cpp": "cudaMalloc(&p, 4);\n"}
        for path, text in bad.items():
            self.assertEqual(len(check_words.check(path, text)), 1, path)
        good = {"parallel/comm/mpi.cpp": "MPI_Init(0, 0);\n", "engine/ops/gemm/gemm.cpp": "dnnl::memory m;\n",
                "engine/ops/norm/a.cu": "f<<<1, 2>>>();\n", "engine/ops/norm/a.cuda.cpp": "cudaMalloc(&p, 4);\n",
                "engine/ops/norm/a.cuda.h": "__global__ void f();\n", "optim/cuda/a.cu": "f<<<1, 2>>>();\n",
                "training/a.cpp": '// calls MPI_Init later\nlog("set OMPI with getenv()");\n',
                "training/b.cpp": "app.exit(e);\n"}
        for path, text in good.items():
            self.assertEqual(check_words.check(path, text), [], path)

    def test_unfinished(self):
        self.assertEqual(len(check_words.check("optim/a.cpp", "// TO" "DO: later\n")), 1)
        self.assertEqual(len(check_words.check("docs/a.md", "FIX" "ME\n")), 1)

    def test_co_await_within_a_choice(self):
        bad = ["auto x = a ? co_await f() : g();", "auto x = a ? g()\n : co_await f({1, 2});", "use(a ? T{b} : co_await f());",
               "x = co_await f() ? 1 : 2;", "x = (co_await f()) ? 1 : 2;", "if (a ? co_await f() : b) g();",
               "run([=]() -> Task<T> { if (a) { co_return b ? co_await f() : 1; } });"]
        for line in bad:
            text = "Task<void> run() {\n  g(1 ? 2 : 3);\n  " + line + "\n}\n"
            (problem,) = check_words.check("serving/a.cpp", text)
            self.assertIn(f"a.cpp:{3 + line[:line.index('co_await')].count(chr(10))}:", problem)
        good = ["if (a) x = co_await f(); else x = b ? 1 : 2;", "while (co_await f()) x = a ? 1 : 2;",
                "if (co_await f()) {\n g();\n}\nx = a ? 1 : 2;", 'co_await f("a ? b : c");  // a ? b : c',
                "spawn(a ? b : c, [=]() -> Task<T> { co_await f(); });", "x = T{a ? b : c};\nco_await f(x);",
                "do x = a ? b : c;\nwhile (co_await f());", "co_await f(a ? b : c);", "use(T(a ? b : c), co_await f());"]
        for line in good:
            self.assertEqual(check_words.check("serving/a.cpp", "Task<void> run() {\n" + line + "\n}\n"), [], line)

    def test_length(self):
        self.assertEqual(len(check_words.check("optim/a.cpp", "int x;\n" * 601)), 1)
        self.assertEqual(check_words.check("optim/a.cpp", "int x;\n" * 600), [])
        self.assertEqual(check_words.check("docs/a.md", "text\n" * 601), [])
        self.assertEqual(len(check_words.check("optim/a.cpp", "int x;")), 1)


class CodeOnly(unittest.TestCase):
    def test_blanks_comments_and_literals_only(self):
        text = 'f("MPI_A // x"); // MPI_B\n/* MPI_C\n*/ MPI_D(1\'000); R"(MPI_E)"; \'"\'; MPI_F;\n'
        code = code_only(text)
        self.assertEqual(len(code), len(text))
        kept = [name for name in "ABCDEF" if "MPI_" + name in code]
        self.assertEqual(kept, ["D", "F"])
        self.assertIn('"a/b.h"', code_only('#include "a/b.h"  // why\n'))


class Tools(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def sample(self, text):
        path = self.folder / "sample.cpp"
        path.write_text(text)
        return path

    def test_format(self):
        tool = check_format.find_tool("clang-format")
        if tool is None:
            self.skipTest("clang-format is not installed")
        (self.folder / ".clang-format").write_text("BasedOnStyle: Google\n")
        self.assertEqual(len(check_format.check(tool, [self.sample("int  x ;\n")], self.folder)), 1)
        self.assertEqual(check_format.check(tool, [self.sample("int x;\n")], self.folder), [])

    def test_tidy(self):
        tool = check_format.find_tool("clang-tidy", check_tidy.WANTED)
        if tool is None:
            self.skipTest("clang-tidy is not installed")
        bad = self.sample("int f(int a) {\n  if (a > 0)\n    return 1;\n  else\n    return 1;\n}\n")
        checks = "--checks=-*,bugprone-branch-clone"
        self.assertEqual(len(check_tidy.check(tool, bad, ["-std=c++20"], [checks])), 1)
        good = self.sample("int f(int a) {\n  if (a > 0)\n    return 1;\n  else\n    return 2;\n}\n")
        self.assertEqual(check_tidy.check(tool, good, ["-std=c++20"], [checks]), [])

    def test_static_analysis_without_the_check_that_crashes_the_tool(self):
        tool = self.folder / "tidy"
        for crashes, problems in [(f'case "$*" in *-{check_tidy.CRASHES}*) exit 0;; esac; ', 0), ("", 1)]:
            tool.write_text(f"#!/bin/sh\n{crashes}kill -SEGV $$\n")
            tool.chmod(0o755)
            self.assertEqual(len(check_tidy.check(str(tool), self.sample(""), [])), problems)

    def test_isa(self):
        source = self.sample("namespace trireme::cpu::avx2 { void kernel() {} }\n"
                             "inline int shared(int x) { return x; }\nint (*use)(int) = &shared;\n")
        subprocess.run(["g++", "-c", str(source), "-o", str(self.folder / "a.o")], check=True)
        symbols = subprocess.run(["nm", "-C", "--defined-only", str(self.folder / "a.o")], capture_output=True,
                                 text=True, check=True).stdout
        self.assertEqual(sorted(check_isa.leaks("avx2", symbols)), ["shared(int)", "use"])
        self.assertIn("trireme::cpu::avx2::kernel()", check_isa.leaks("avx512", symbols))

    def test_backend(self):
        declared = "namespace trireme::cuda {\n[[gnu::weak]] void launcher();\n"
        source = self.sample("")
        program = str(self.folder / "program")
        for defined, missing in [("", ["trireme::cuda::launcher()"]), ("void launcher() {}\n", [])]:
            source.write_text(declared + defined + "}\nint main() { trireme::cuda::launcher(); }\n")
            subprocess.run(["g++", str(source), "-o", program], check=True)
            symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout
            self.assertEqual(check_backend.functions(symbols), (missing, 1 - len(missing)))


class Language(unittest.TestCase):
    def markdown(self, text):
        return check_language.check_markdown("docs/a.md", text)

    def test_columns_of_markdown(self):
        wide = "word " * 20 + "x"
        self.assertEqual(len(wide), 101)
        self.assertEqual(len(self.markdown(wide + "\n")), 1)
        self.assertEqual(len(self.markdown("- " + "word " * 18 + "wordy\n  " + wide + "\n")), 1)
        for fine in (wide[:100], "| " + wide + " |", "```\n" + wide + "\n```", "    " + wide,
                     "see [it](" + "x" * 120 + ")", "![picture](x.png) " + wide):
            self.assertEqual(self.markdown(fine + "\n"), [], fine)

    def test_words_of_markdown(self):
        for said in ("It comes by and by.", "what comes of it", "files of others", "requests are handed in",
                     "the beginning of its prompt", "the texts go on", "A line that goes\non here."):
            self.assertEqual(len(self.markdown(said + "\n")), 1, said)
        for fine in ("It comes with a model.", "the rank of other tests", "`told`", "a line that goes\n\non", "go online",
                     "```\nby and by\n```"):
            self.assertEqual(self.markdown(fine + "\n"), [], fine)

    def test_openings_of_markdown(self):
        self.assertEqual(len(self.markdown("Of the weights each rank has some.\n")), 1)
        self.assertEqual(len(self.markdown("Text.\n\n- Of the weights some.\n")), 1)
        self.assertEqual(self.markdown("Each rank has some\nOf the weights.\n"), [])

    def test_comments(self):
        def count(text):
            return len(check_language.check_comments("engine/a.h", text))
        self.assertEqual(count("// Of the GPU what its maker states.\n"), 1)
        self.assertEqual(count("int a;  // What is told.\n"), 2)
        self.assertEqual(count("// Rate\n// Of the GPU.\n"), 0)
        self.assertEqual(count('f("// told");\n'), 0)
        self.assertEqual(count("// " + "x" * 98 + "\n"), 1)
        self.assertEqual(count("// " + "x" * 97 + "\n" + "y" * 101 + "\n"), 0)

    def test_words_of_sources(self):
        for said in ("by and by", "what comes of it", "files of others", "handed in", "take back", "the prefix behind it",
                     "the beginning of a prompt", "one behind the other", "guesses", "a wish", "goes on", "whoever asks",
                     "read anew", "is told", "heard", "an answer", "to tell them", "it lies there", "it stands there",
                     "it goes there"):
            self.assertTrue(check_language.check_comments("engine/a.cpp", f"// {said}\n"), said)
            self.assertTrue(check_language.check_strings("engine/a.cpp", f'f("so: {said}");\n'), said)
        self.assertTrue(check_language.check_strings("engine/a.cpp", 'f("so it goes "\n  "on");\n'))
        for fine in ("it continues", "a server behind a proxy", "it stands for a number", "understands", "`told`"):
            self.assertEqual(check_language.check_comments("engine/a.cpp", f"// {fine}\n"), [], fine)
            self.assertEqual(check_language.check_strings("engine/a.cpp", f'f("so: {fine}");\n'), [], fine)
        self.assertEqual(check_language.check_strings("engine/a.cpp", '#include "told me"\nf("told"); // "is told"\n'), [])

    def test_subjects(self):
        self.assertEqual(check_language.check_subject("x" * 72), [])
        self.assertEqual(len(check_language.check_subject("x" * 73)), 1)
        history = {"rev-parse": str(check_language.ROOT), "merge-base": "", "log": "first\nsecond"}
        self.assertEqual(check_language.new_subjects(lambda *a: history[a[0]]), ["first", "second"])
        for lost in ("rev-parse", "merge-base"):  # no git, or a shallow clone
            self.assertEqual(check_language.new_subjects(lambda *a: None if a[0] == lost else history[a[0]]), [])


class Mirror(unittest.TestCase):
    SOURCES = ["serving/engine/sampler", "serving/engine/engine", "serving/api/usage", "optim/sampler",
               "serving/engine/cpu/sampler"]

    def found(self, path, text):
        return check_mirror.tests_of({path: text}, self.SOURCES)

    def test_subjects(self):
        case = "TEST(Any, Case) {}\n"
        sampler = ["serving/engine/sampler"]
        # By its path, by its name, by a suite's name, by its first header of the product.
        for path, text in (("tests/serving/engine/test_sampler.cpp", case), ("tests/serving/test_sampler.cpp", case),
                           ("tests/serving/test_a.cpp", "TEST(Sampler, Case) {}\n"),
                           ("tests/serving/test_a.cpp", "TEST_F(SamplerTest, Case) {}\n"),
                           ("tests/serving/test_a.cpp", '#include "optim/a.h"\n#include "serving/engine/sampler.h"\n' + case)):
            self.assertEqual(list(self.found(path, text)), sampler, (path, text))
        self.assertEqual({check_mirror.mirrored(f"optim/sampler{end}") for end in (".cpp", ".cpu.cpp", ".cuda.cpp")},
                         {"tests/optim/test_sampler.cpp"})
        self.assertEqual(list(self.found("tests/optim/test_a.cpp", '#include "optim/sampler.cpu.h"\n' + case)),
                         ["optim/sampler"])
        both = self.found("tests/serving/engine/test_engine.cpp", "TEST(Engine, A) {}\nTEST(Usage, A) {}\n")
        self.assertEqual(sorted(both), ["serving/api/usage", "serving/engine/engine"])
        for text in ("", "// TEST(Sampler, Case)\n"):  # a file without a case is a test of nothing
            self.assertEqual(self.found("tests/serving/engine/test_sampler.cpp", text), {})
        self.assertEqual(self.found("tests/serving/test_a.cpp", '#include "serving/a.h"\n' + case), {})

    def test_share(self):
        there = self.found("tests/serving/engine/test_sampler.cpp", "TEST(Sampler, Case) {}\n")
        self.assertEqual((check_mirror.astray(there), check_mirror.check(there, 100)), ({}, []))
        elsewhere = self.found("tests/serving/engine/test_engine.cpp", "TEST(Engine, A) {}\nTEST(Usage, A) {}\n")
        self.assertEqual(check_mirror.astray(elsewhere), {"serving/api/usage": ["tests/serving/engine/test_engine.cpp"]})
        self.assertEqual(check_mirror.check(elsewhere, 50), [])
        (problem,) = check_mirror.check(elsewhere, 51)
        self.assertIn("50.0 %", problem)
        self.assertEqual(len(check_mirror.check({}, 1)), 1)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
