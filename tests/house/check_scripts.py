#!/usr/bin/env python3
"""The shell scripts parse, explain themselves, refuse what they do not know, and act on exit codes."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from source import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import draw_texts  # noqa: E402

USER_SCRIPTS = ["install_deps.sh", "build.sh", "test.sh", "quickstart.sh"]


def run(*command, **environment):
    return subprocess.run(list(map(str, command)), env={**os.environ, **{k: str(v) for k, v in environment.items()}}, cwd=ROOT, capture_output=True,
                          stdin=subprocess.DEVNULL, text=True, timeout=60, check=False)

# Programs that are measured, by the name that it is started by: servers tell their speed, and what measures them asks for it.
STAND_IN = """#!/usr/bin/env python3
import http.server, json, pathlib, socketserver, sys, urllib.request
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
after = lambda word: words[words.index(word) + 1]
speed = {"trireme": 30, "llama-server": 20, "llama-bench": 25}[name]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(speed).encode())
if words[:2] == ["bench", "serve"]:
    got = float(urllib.request.urlopen(after("--base-url") + "/health").read())
    asked = int(after("--num-prompts"))
    result = {"completed": asked - (asked > 4), "output_throughput": got, "median_ttft_ms": 100 / got, "median_itl_ms": 1}
    pathlib.Path(after("--output")).write_text(json.dumps(result))
elif words[:2] == ["bench", "decode"]:
    print(json.dumps({"mean_token_ms": 1e3 / speed, "prompt_ms": 10, "share_of_floor": 0.5}))
else:
    model = pathlib.Path(after("-m" if name.startswith("llama") else "--model"))
    assert model.read_bytes()[:4] == b"GGUF"
    if name == "llama-bench":
        print(json.dumps([{"avg_ts": speed}]))
    elif "-np" in words and after("-np") == "7":
        sys.exit(3)
    else:
        socketserver.TCPServer(("127.0.0.1", int(after("--port"))), Handler).serve_forever()
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def stub(self, name, text):
        """A program of that name, found before the real one."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + text + "\n")
        path.chmod(0o755)

    def run_stubbed(self, *command, **environment):
        return run(*command, PATH=f"{self.folder}:{os.environ['PATH']}", **environment)

    def test_what_failed_is_said_last(self):
        said = "\n".join([f"passes {i}" for i in range(200)] + ["a_test.cpp:7: Failure", "Expected: one"]
                         + [f"passes {i}" for i in range(200, 300)])
        results = self.folder / "results.xml"
        results.write_text(f"""<testsuite><testcase name="serving" time="1.5" status="fail"><system-out>{said}</system-out>
            </testcase><testcase name="io" time="0" status="notrun"><skipped message="Unable to find executable"/>
            <system-out/></testcase><testcase name="old" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
            <system-out>no</system-out></testcase><testcase name="ops" time="1" status="run"><system-out>ops are right</system-out></testcase>
            </testsuite>""")
        done = run(sys.executable, "-B", ROOT / "scripts/lib/failed_tests.py", results)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertLess(len(lines), 40)
        self.assertNotIn("old", done.stdout)
        for line in ("== failed: serving, 1.5 s", "== failed: io, 0.0 s Unable to find executable", "a_test.cpp:7: Failure", "Expected: one", "...", "passes 299"):
            self.assertIn(line, lines)
        self.assertNotIn("passes 150", lines)
        self.assertNotIn("ops", done.stdout)

    def run_suites(self, *suites, **environment):
        """scripts/lib/run_suites.py over suites of (name, shell command)."""
        folder = self.folder / "suites"
        folder.mkdir(exist_ok=True)
        lines = [f'add_test({name} "sh" "-c" [==[{command}]==])\nset_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)'
                 for name, command in suites]
        (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
        return run(sys.executable, "-B", ROOT / "scripts/lib/run_suites.py", folder, "-j", "2",
                   XDG_CACHE_HOME=self.folder / "cache", **environment)

    @unittest.skipUnless(shutil.which("ctest"), "no ctest")
    def test_a_failed_suite_is_run_once_more(self):
        flaky = f"test -e {self.folder}/ran || {{ touch {self.folder}/ran; echo a.cpp:1: Failure; false; }}"
        skipped = "echo no GPU here; exit 77"
        inner = "printf 'a.cpp:9: Skipped\\nneeds AVX2\\n'"
        ran = self.run_suites(("a/flaky@avx2", flaky), ("whole", inner), ("gpu", skipped))
        self.assertEqual(ran.returncode, 0, ran.stdout)
        for line in ("== failed: a/flaky@avx2, ", "skipped: gpu: no GPU here", "skipped: 1 case of whole: needs AVX2",
                     "unstable: a/flaky@avx2 failed, then passed alone", "2 passed, 0 failed, 1 skipped"):
            self.assertIn(line, ran.stdout)
        ran = self.run_suites(("red", "false"), ("whole", "true"))
        self.assertEqual(ran.returncode, 8)
        self.assertIn("failed: red\n1 passed, 1 failed, 0 skipped", ran.stdout)

    @unittest.skipUnless(shutil.which("ctest"), "no ctest")
    def test_many_failures_are_not_chance(self):
        ran = self.run_suites(*[(f"red{i}", "false") for i in range(6)])
        self.assertEqual(ran.returncode, 8)
        self.assertNotIn("run once more", ran.stdout)
        self.assertIn("0 passed, 6 failed, 0 skipped", ran.stdout)

    @unittest.skipUnless(shutil.which("ctest"), "no ctest")
    def test_unstable_twice_is_a_failure(self):
        git = run("git", "rev-list", "--max-count=2", "HEAD").stdout.split()
        if len(git) < 2:
            self.skipTest("no git history here")
        for kept, code in (([], 0), ([{"commit": git[1], "unstable": ["other"]}], 0),
                           ([{"commit": git[1], "unstable": ["flaky"]}], 8),
                           ([{"commit": git[1], "unstable": ["flaky"]}, {"commit": "0" * 40, "unstable": []}], 8),
                           ([{"commit": git[0], "unstable": ["flaky"]}], 0), ("no list", 0)):
            path = self.folder / "cache/trireme/unstable.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept))
            (self.folder / "ran").unlink(missing_ok=True)
            ran = self.run_suites(("flaky", f"test -e {self.folder}/ran || {{ touch {self.folder}/ran; false; }}"))
            self.assertEqual(ran.returncode, code, (kept, ran.stdout))
            self.assertEqual("at the previous commit too" in ran.stdout, code == 8)
            self.assertEqual(json.loads(path.read_text())[-1], {"commit": git[0], "unstable": ["flaky"]})

    def test_all_parse(self):
        paths = [*ROOT.glob("scripts/**/*.sh"), *ROOT.glob("scripts/*.sbatch"), ROOT / ".ci/run"]
        self.assertGreaterEqual(len(paths), 7)
        for path in paths:
            self.assertEqual(run("bash", "-n", path).returncode, 0, path)

    def test_help_and_unknown_arguments(self):
        for name in USER_SCRIPTS:
            shown = run(ROOT / "scripts" / name, "--help")
            self.assertEqual(shown.returncode, 0, name)
            self.assertIn(f"scripts/{name}", shown.stdout)
            self.assertIn("--no-install", shown.stdout)
            if name == "build.sh":  # passes options on to CMake
                continue
            refused = run(ROOT / "scripts" / name, "--frobnicate", "--no-install")
            self.assertEqual(refused.returncode, 2, name)
            self.assertIn("--frobnicate", refused.stderr)

    def test_other_scripts_refuse_what_they_do_not_know(self):
        for name in ("gpu_check.sh", "offline_bundle.sh", "before_push.sh", "test_stability.sh"):
            shown = run(ROOT / "scripts" / name, "--help")
            self.assertEqual(shown.returncode, 0, name)
            self.assertIn(f"scripts/{name}", shown.stdout)
            refused = run(ROOT / "scripts" / name, "--frobnicate")
            self.assertEqual(refused.returncode, 2, name)
            self.assertIn("--frobnicate", refused.stderr)

    def test_ci_runs_what_the_readme_says(self):
        """.ci/run in a folder whose README has other commands, with a test.sh that fails."""
        for name in ("scripts/lib", ".ci"):
            shutil.copytree(ROOT / name, self.folder / name)
        self.stub("scripts/one.sh", "echo first")
        self.stub("scripts/test.sh", 'echo "test.sh $*"; [ $# = 0 ]')
        begin = "# Name\n\n    ./scripts/no.sh   # not of that part\n\n## Two commands\n\n    ./scripts/one.sh     # builds\n"
        (self.folder / "README.md").write_text(begin + "    ./scripts/test.sh    # tests\n\n## Features\n")
        ran = run("bash", self.folder / ".ci/run")
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertEqual(re.findall(r"(?m)^(first|test.sh.*)$", ran.stdout), ["first", "test.sh ", "test.sh --rest"])
        self.assertRegex(ran.stdout, r"== minutes by part\n +0\.0  \./scripts/one\.sh\n")
        (self.folder / "README.md").write_text(begin)
        self.assertIn("README.md does not have two commands", run("bash", self.folder / ".ci/run").stderr)

    def test_a_full_disk_is_named(self):
        self.stub("df", "printf 'Avail\\n20480\\n'")
        refused = self.run_stubbed("bash", "-c", '. scripts/lib/parts.sh; need_space . 1000 "a build"')
        self.assertEqual(refused.returncode, 2)
        self.assertIn("a build needs about 1000 MiB", refused.stderr)
        self.assertIn("has 20 MiB free", refused.stderr)
        script = ". scripts/lib/parts.sh; part compiling sh -c 'exit 1'"
        failed = self.run_stubbed("bash", "-c", script, TRIREME_MINUTES="")
        self.assertEqual(failed.returncode, 2)
        self.assertIn("the disk is full", failed.stderr)
        self.stub("df", "printf 'Avail\\n99999999\\n'")
        failed = self.run_stubbed("bash", "-c", script, TRIREME_MINUTES="")
        self.assertEqual((failed.returncode, failed.stderr), (1, ""))

    @unittest.skipUnless(shutil.which("cmake"), "no cmake")
    def test_an_unknown_instruction_set_is_named(self):
        ran = run("cmake", "-G", "Ninja", "-S", ROOT, "-B", self.folder / "out", "-DTRIREME_ISA=sse9")
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("TRIREME_ISA=sse9: expected all, native, avx512, avx2 or portable", ran.stderr)
        self.stub("cmake", "exit 1")
        self.assertEqual(self.run_stubbed(ROOT / "scripts/build.sh", "--no-install", "-DTRIREME_ISA=sse9").returncode, 2)

    def test_packages_are_unpacked_without_dpkg(self):
        tool, package = ROOT / "scripts/lib/unpack_debs.py", self.folder / "a.deb"
        (self.folder / "in/usr/lib").mkdir(parents=True)
        (self.folder / "in/usr/lib/real").write_text("content\n")
        (self.folder / "in/usr/lib/link").symlink_to("/usr/lib/real")
        self.pack(package)
        self.assertEqual(run("python3", tool, self.folder / "out", package).returncode, 0)
        self.assertEqual((self.folder / "out/usr/lib/link").read_text(), "content\n")  # inside the folder
        package.write_bytes(b"!<arch>\n")
        self.assertIn("no data.tar", run("python3", tool, self.folder / "out", package).stderr)
        package.write_bytes(b"text")
        self.assertIn("no Debian package", run("python3", tool, self.folder / "out", package).stderr)

    def pack(self, package):
        """A .deb with what lies in self.folder/in."""
        subprocess.run(["tar", "-C", self.folder / "in", "-cJf", self.folder / "data.tar.xz", "."], check=True)
        raw = b"!<arch>\n"
        for name, data in (("debian-binary", b"2.0"), ("data.tar.xz", (self.folder / "data.tar.xz").read_bytes())):
            raw += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
            raw += data + b"\n" * (len(data) % 2)
        package.write_bytes(raw)

    def test_missing_packages_are_listed_for_both_families(self):
        self.stub("dpkg-query", "exit 1")
        for purpose, names in (("build", ["g++", "gcc-c++"]), ("test", ["libgtest-dev", "gtest-devel"]),
                               ("fuzz", ["g++", "libclang-rt-16-dev", "compiler-rt"])):
            refused = self.run_stubbed(ROOT / "scripts/install_deps.sh", purpose, "--no-install")
            self.assertEqual(refused.returncode, 2)
            for text in ["apt-get install", "dnf install", *names]:
                self.assertIn(text, refused.stderr)
        # A release that refers to some names without having them, as Debian 13 does.
        self.stub("apt-cache", """shift; for name in "$@"; do
            case "$name" in *1.81* | *-1[46]*) candidate='(none)' ;; *) candidate=1.0 ;; esac
            printf '%s:\\n  Installed: (none)\\n  Candidate: %s\\n' "$name" "$candidate"; done""")
        refused = self.run_stubbed(ROOT / "scripts/install_deps.sh", "test", "--no-install").stderr
        listed = re.search("apt-get install (.*)", refused)[1].split()
        self.assertIn("libboost-dev", listed)
        self.assertEqual([name for name in listed if "1.81" in name or "clang" in name or name == "-"], [])
        refused = self.run_stubbed(ROOT / "scripts/install_deps.sh", "fuzz", "--no-install").stderr
        self.assertIn("clang-19 libclang-rt-19-dev libomp-19-dev", refused)
        self.stub("dpkg-query", "printf installed")
        self.assertEqual(self.run_stubbed(ROOT / "scripts/install_deps.sh", "test", "--no-install").returncode, 0)

    def test_openais_client_is_installed_once_where_it_can_be(self):
        """In a copy of the scripts, by a python3 that makes what it is told to, or does not."""
        shutil.copytree(ROOT / "scripts", self.folder / "copy/scripts")
        install = self.folder / "copy/scripts/install_deps.sh"
        version = re.search(r"kOpenaiVersion=(\S+)", (ROOT / "scripts/lib/openai_client.sh").read_text())[1]
        self.stub("dpkg-query", "printf installed")
        self.stub("python3", "echo no index >&2; exit 1")
        for more, says in ((["--no-install"], "--no-install was given"), ([], "no index")):
            refused = self.run_stubbed(install, "test", *more)
            self.assertEqual(refused.returncode, 0)  # one test is skipped
            self.assertRegex(refused.stderr, rf"\A.*e2e/openai will be skipped.*{says}\n\Z")
        self.assertFalse((self.folder / "copy/build/openai-client").exists())
        self.stub("python3", f'echo "$@" >>"{self.folder}/made"; mkdir -p "$3/bin"\n'
                             f'printf "#!/bin/bash\necho {version}\n" >"$3/bin/python"; chmod +x "$3/bin/python"')
        for _ in range(2):
            made = self.run_stubbed(install, "test")
            self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertEqual((self.folder / "made").read_text(), "-m venv build/openai-client\n")
        self.assertEqual(self.run_stubbed(install, "build").stdout, "")

    def test_quickstart_refuses_before_it_works(self):
        for arguments, says in ((["--text", "/no/such/file"], "/no/such/file"), (["--text"], "needs a path"),
                                (["--output", str(ROOT)], "not empty"),
                                (["--text", str(self.short_text()), "--output", str(self.folder / "new")], "1000")):
            refused = run(ROOT / "scripts/quickstart.sh", "--no-install", *arguments)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(says, refused.stderr)

    def test_layouts_are_published_when_asked(self):
        scripts, sweep = self.folder / "copy/scripts", self.folder / "copy/build/release/tests/layout_sweep"
        scripts.mkdir(parents=True)
        sweep.parent.mkdir(parents=True)
        shutil.copy(ROOT / "scripts/test_layouts.sh", scripts)
        self.stub("copy/scripts/install_deps.sh", "")
        self.stub("cmake", "")
        self.stub("copy/build/release/tests/layout_sweep", 'printf "%s|" "$@"')
        for arguments in (["--only", "pp2 dp1"], ["--sample", "5", "--publish"]):
            ran = self.run_stubbed(scripts / "test_layouts.sh", *arguments)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertIn("|" + "|".join(arguments[:2]) + "|", ran.stdout)
            self.assertEqual("|--publish|docs/reference/layouts.md|" in ran.stdout, "--publish" in arguments, ran.stdout)
        self.assertIn("--command|scripts/test_layouts.sh --sample 5 --publish|", ran.stdout)

    def short_text(self):
        path = self.folder / "short.txt"
        path.write_text("too short\n")
        return path

    def cut(self, *texts):
        """The documents of some texts, {name: content}, in the order in which they are read."""
        folder = self.folder / "documents"
        subprocess.run(["rm", "-rf", folder], check=True)
        names = b"".join(bytes(text) + b"\0" for text in texts)
        subprocess.run(["bash", "-euc", '. scripts/lib/documents.sh; cut_into_documents "$1"', "cut", folder],
                       cwd=ROOT, input=names, check=True, timeout=60)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    def test_own_texts_are_texts(self):
        """Whatever else comes to the documents: JSON would be read as lines of it, and end the quickstart."""
        found = subprocess.run(["bash", "-euc", ". scripts/lib/documents.sh; find_own_texts"], cwd=ROOT, check=True,
                               capture_output=True, timeout=60).stdout
        paths = [Path(name.decode()) for name in found.split(b"\0")[:-1]]
        self.assertIn(Path("README.md"), paths)
        self.assertIn(Path("docs/guide/serving.md"), paths)
        self.assertEqual([path for path in paths if path.suffix in (".json", ".jsonl", ".gz", ".zst")], [])
        for path in paths:
            (ROOT / path).read_text(encoding="utf-8")

    def test_texts_become_documents(self):
        lines = "".join(f"line {i} of some length\n" for i in range(50))
        for content in (lines, lines * 100, "word " * 400 + "\n", "\u20ac\u00e4" * 500 + "\n", "a\n" + "b" * 3000 + "\n"):
            text = self.folder / "text.txt"
            text.write_text(content)
            documents = self.cut(text)
            self.assertTrue(7 <= len(documents) <= 21, len(documents))
            self.assertEqual(b"".join(documents.values()).decode(), content)
            for document in documents.values():
                document.decode()  # no character is cut
                self.assertTrue(" " not in content or document[-1:] in b"\n ", document)
        # Two texts of one name, and what is not cut.
        for name, content in (("a/same.txt", lines), ("b/same.txt", lines.upper()), ("c/x.jsonl", '{"text": "t"}\n')):
            (self.folder / name).parent.mkdir()
            (self.folder / name).write_text(content)
        documents = self.cut(*(self.folder / name for name in ("a/same.txt", "b/same.txt", "c/x.jsonl")))
        whole = b"".join(documents.values()).decode()
        self.assertEqual(len(whole), 2 * len(lines) + len('{"text": "t"}\n'))
        self.assertEqual(documents["00003-x.jsonl"], b'{"text": "t"}\n')
        held_out = "".join(name for name in list(documents)[-4:])
        self.assertIn("00001-same", held_out)
        self.assertIn("00002-same", held_out)

    def compare(self, script, *arguments):
        for name in ("trireme", "llama-server", "llama-bench"):
            (self.folder / name).write_text(STAND_IN)
            (self.folder / name).chmod(0o755)
        return run(ROOT / "scripts/bench" / script, "--trireme", self.folder / "trireme", *arguments)

    def test_servers_are_compared(self):
        def serve(*arguments):
            return self.compare("serve_vs_llama.py", "--llama-server", self.folder / "llama-server", "--rounds", "1", *arguments)

        ran = serve("--clients", "1,2", "--requests", "2")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for clients in (1, 2):
            self.assertIn(f"| llama-15m | bf16 | {clients} | 30.0 | 20.0 | 3.3 | 5.0 | 1.0 | 1.0 | 1.50 |\n", ran.stdout)
        self.assertIn("5 of 6 requests were completed", serve("--clients", "1", "--requests", "6").stderr)
        self.assertIn("llama-server does not serve", serve("--clients", "7").stderr)

    def test_programs_are_compared(self):
        ran = self.compare("decode_vs_llama.py", "--llama-bench", self.folder / "llama-bench", "--rounds", "1", "--kinds", "q8_0",
                           "--prompt", "1")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("| llama-15m | q8_0 | decode | 30.0 | 50 % | 25.0 | 1.20 |\n", ran.stdout)
        self.assertIn("| llama-15m | q8_0 | prompt of 1 | 100.0 |  | 25.0 | 4.00 |\n", ran.stdout)

    def slurm_job(self, codes, restarts=0, saves=False):
        """The job script with one rank for each code: its own exit code, and whether it requeued itself."""
        self.stub("scontrol", f'echo "$@" >>"{self.folder}/requeued"')
        self.stub("trireme", f'echo "$@" >"{self.folder}/command"\n'
                             f'{"echo saved run/checkpoints/step-00000010 >&2" if saves else ""}\n'
                             '[ "$CODE" -lt 128 ] || kill -KILL $$\nexit "$CODE"')
        # As srun does it: every rank runs the command, the highest exit code is the answer.
        self.stub("srun", 'while [[ $1 == --* ]]; do shift; done\nworst=0\n'
                          f'for code in {codes}; do\n  CODE=$code "$@"; ended=$?\n'
                          '  [ $ended -le $worst ] || worst=$ended\ndone\nexit $worst')
        (self.folder / "requeued").unlink(missing_ok=True)
        ran = self.run_stubbed("bash", ROOT / "scripts/trireme.sbatch", "run.json", "--set", "a=b",
                               TRIREME=str(self.folder / "trireme"), SLURM_SUBMIT_DIR=str(self.folder),
                               SLURM_JOB_ID="17", SLURM_CPUS_PER_TASK="2", SLURM_RESTART_COUNT=str(restarts))
        return ran.returncode, (self.folder / "requeued").exists()

    def test_slurm_job_requeues_what_a_restart_can_help(self):
        requeued = (0, True)
        for codes, restarts, outcome in (
                ("0 0", 0, (0, False)), ("3 3", 0, requeued), ("3 3", 100, (3, False)), ("1 1", 0, (1, False)),
                ("5 5", 7, requeued), ("137 5 5", 0, requeued), ("2 5 5", 0, (2, False)), ("5 137 2", 0, (2, False)),
                ("4 137", 0, (4, False))):
            self.assertEqual(self.slurm_job(codes, restarts, saves=True), outcome, codes)
            self.assertEqual((self.folder / "command").read_text(),
                             "pretrain --config run.json --resume auto --set a=b\n")
        self.assertNotEqual(self.run_stubbed("bash", ROOT / "scripts/trireme.sbatch").returncode, 0)

    def test_slurm_job_ends_where_restarts_save_nothing(self):
        for saves, outcome in ((False, (0, True)), (False, (0, True)), (True, (0, True)), (False, (0, True)),
                               (False, (0, True)), (False, (5, False)), (False, (0, True))):
            self.assertEqual(self.slurm_job("137 5", saves=saves), outcome)


class DrawnTexts(unittest.TestCase):
    setUp, stub = Scripts.setUp, Scripts.stub

    def test_the_seed_determines_what_is_drawn(self):
        texts = [(f"a/{i}.h", "before") for i in range(200)]
        places = lambda drawn: [place for place, _ in drawn]
        first = draw_texts.draw("one", texts, 40)
        self.assertEqual(len(set(first)), 40)
        self.assertEqual(draw_texts.draw("one", texts[::-1], 40), first)
        self.assertNotEqual(draw_texts.draw("two", texts, 40), first)
        self.assertEqual(places(draw_texts.draw("one", [(place, "after") for place, _ in texts], 40)), places(first))
        self.assertEqual(draw_texts.draw("one", texts, 500), sorted(texts))

    def test_drawn_from_the_tree(self):
        shown = lambda seed, *more: run(sys.executable, "-B", ROOT / "scripts/draw_texts.py", "--seed", seed, "--headers", 3,
                                        "--help-texts", 2, "--messages", 2, *more)
        first = shown("one")
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertEqual([first.stdout.count(f"=== {kind} ") for kind in ("header", "help text", "message")], [3, 2, 2])
        self.assertEqual(first.stdout.count("read twice?"), 7)
        self.assertEqual(shown("one").stdout, first.stdout)
        self.assertNotEqual(shown("two").stdout.splitlines()[1:], first.stdout.splitlines()[1:])
        refused = shown("one", "--binary", "no/program")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("no/program: no such file", refused.stderr)

    def test_help_texts_of_a_program(self):
        self.stub("program", """if [ "$1" = --help ]; then cat <<'END'
About all
Usage: program SUBCOMMAND

Options:
  -h,--help                   Print this help
  --one N:INT in [1 - 4096]=1 First

Subcommands:
  below                       About below
                              in two lines
END
else cat <<'END'
About below
Usage: program below

Positionals:
  model PATH REQUIRED         Model

Options:
  --one N:INT in [1 - 4096]=1 First
  --two INT:INT in [1 - 1000000]=8192
                              Second
                              with a second line

Exit codes: 0 done
END
fi""")
        self.assertEqual(draw_texts.help_texts(self.folder / "program"), [
            ("trireme ", "trireme \n    About all"), ("trireme --one", "trireme --one N:INT in [1 - 4096]=1\n    First"),
            ("trireme below ", "trireme below \n    About below"), ("trireme below model", "trireme below model PATH REQUIRED\n    Model"),
            ("trireme below --two", "trireme below --two INT:INT in [1 - 1000000]=8192\n    Second with a second line")])

    def test_messages_of_a_source(self):
        source = """void fail_at(const char* text) { throw Error(text); }
// fail_input("a comment is not one");
void f() {
  if (a) fail_input("no file at (", path,
                    ")");
  fail_input("word");
  log_info(g(1), " has two words");
}
"""
        self.assertEqual(list(draw_texts.calls("a/b.cpp", source, draw_texts.MESSAGE)), [
            ("a/b.cpp#001", 'a/b.cpp:4\nfail_input("no file at (", path,\n    ")")'),
            ("a/b.cpp#002", 'a/b.cpp:7\nlog_info(g(1), " has two words")')])


if __name__ == "__main__":
    unittest.main()
