#!/usr/bin/env python3
"""The shell scripts parse, explain themselves, refuse what they do not know, and act on exit codes."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from source import ROOT

USER_SCRIPTS = ["install_deps.sh", "build.sh", "test.sh", "quickstart.sh"]


def run(*command, **environment):
    return subprocess.run(list(map(str, command)), env={**os.environ, **environment}, cwd=ROOT, capture_output=True,
                          stdin=subprocess.DEVNULL, text=True, timeout=60, check=False)


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def stub(self, name, text):
        """A program of that name, found before the real one."""
        path = self.folder / name
        path.write_text("#!/bin/bash\n" + text + "\n")
        path.chmod(0o755)

    def run_stubbed(self, *command, **environment):
        return run(*command, PATH=f"{self.folder}:{os.environ['PATH']}", **environment)

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

    def test_missing_packages_are_listed_for_both_families(self):
        self.stub("dpkg-query", "exit 1")
        for purpose, names in (("build", ["g++", "gcc-c++"]), ("test", ["libgtest-dev", "gtest-devel"]),
                               ("fuzz", ["g++", "libclang-rt-16-dev", "compiler-rt"])):
            refused = self.run_stubbed(ROOT / "scripts/install_deps.sh", purpose, "--no-install")
            self.assertEqual(refused.returncode, 2)
            for text in ["apt-get install", "dnf install", *names]:
                self.assertIn(text, refused.stderr)
        self.stub("dpkg-query", "printf installed")
        self.assertEqual(self.run_stubbed(ROOT / "scripts/install_deps.sh", "test", "--no-install").returncode, 0)

    def test_quickstart_refuses_before_it_works(self):
        for arguments, says in ((["--text", "/no/such/file"], "/no/such/file"), (["--text"], "needs a path"),
                                (["--output", str(ROOT)], "not empty")):
            refused = run(ROOT / "scripts/quickstart.sh", "--no-install", *arguments)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(says, refused.stderr)

    def test_slurm_job_requeues_after_a_saved_stop(self):
        self.stub("scontrol", f'echo "$@" >>"{self.folder}/requeued"')
        cases = [(0, 0, 0, False), (3, 0, 0, True), (5, 7, 0, True), (3, 100, 3, False), (2, 0, 2, False), (1, 0, 1, False)]
        for code, restarts, ends_with, requeued in cases:
            self.stub("srun", f'echo "$@" >"{self.folder}/srun"; exit {code}')
            (self.folder / "requeued").unlink(missing_ok=True)
            ran = self.run_stubbed("bash", ROOT / "scripts/trireme.sbatch", "run.json", "--set", "a=b",
                                   SLURM_JOB_ID="17", SLURM_CPUS_PER_TASK="2", SLURM_RESTART_COUNT=str(restarts))
            self.assertEqual((ran.returncode, (self.folder / "requeued").exists()), (ends_with, requeued), code)
            command = (self.folder / "srun").read_text()
            self.assertIn("pretrain --config run.json --resume auto --set a=b", command)
        self.assertNotEqual(self.run_stubbed("bash", ROOT / "scripts/trireme.sbatch").returncode, 0)


if __name__ == "__main__":
    unittest.main()
