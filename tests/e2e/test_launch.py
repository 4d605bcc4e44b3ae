#!/usr/bin/env python3
"""Launches that cannot work fail soon, with the way out, and leave no process; --ranks wins over stale variables."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import harness
import served_ranks
import tiny_run

SOON = 30 * harness.PATIENCE  # seconds within which a launch that cannot work has failed
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
STALE = {"torchrun": TORCHRUN,
         "half of it": {"WORLD_SIZE": "2"},
         "junk": {**TORCHRUN, "RANK": "first"},
         "mpirun": {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                    "PMIX_RANK": "1", "PMIX_NAMESPACE": "4711", "OMPI_MCA_ess_base_jobid": "4711"},
         "hydra": {"PMI_SIZE": "2", "PMI_RANK": "1"},
         "srun": {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}}


class LaunchTest(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.configure(train_steps=6, checkpoint={"save_interval": 0}, evaluation={"eval_interval": 0})

    def launch(self, *arguments, timeout=120, **options):
        """Runs to the end; exit code, standard error, seconds. Whatever it started has ended with it."""
        begin = time.monotonic()
        process = self.start(*arguments, **options)
        try:
            _, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.fail(f"trireme {arguments} hangs")
        seconds = time.monotonic() - begin
        self.assertEqual(self.left_behind(process.pid), [], stderr)
        return process.returncode, stderr, seconds

    def left_behind(self, session):
        """Command lines of processes of this session, or in this test's folder, that are still there after ten seconds:
        a process that has been killed takes its time."""
        end = time.monotonic() + 10
        while True:
            found = []
            for entry in Path("/proc").iterdir():
                try:
                    if not entry.name.isdigit():
                        continue
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                    here = Path(os.readlink(entry / "cwd")) == self.folder.resolve()
                    if fields[0] != "Z" and (int(fields[3]) == session or here):
                        found.append((int(entry.name), (entry / "cmdline").read_bytes()))
                except OSError:
                    continue
            if not found or time.monotonic() > end:
                break
            time.sleep(0.02)
        for pid, _ in found:  # the next test begins with none
            os.kill(pid, signal.SIGKILL)
        return [line for _, line in found]


class StaleVariables(LaunchTest):
    def test_ranks_wins(self):
        for name, variables in STALE.items():
            with self.subTest(name):
                code, stderr, _ = self.launch("pretrain", "--config", "run.json", "--ranks", 2, "--set",
                                              f"output_dir={name.replace(' ', '_')}", environment=variables)
                self.assertEqual(code, 0, stderr)
                lines = [line for line in stderr.splitlines() if "starts its own ranks: ignoring" in line]
                self.assertEqual(len(lines), 1, stderr)
                for variable, value in variables.items():
                    decides = variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK",
                                           "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS",
                                           "SLURM_PROCID")
                    self.assertEqual(f" {variable}={value}" in lines[0], decides, lines[0])
                self.assertIn("2 ranks over mpi", stderr)

    def test_one_rank_wins_too(self):
        code, stderr, _ = self.launch("pretrain", "--config", "run.json", "--ranks", 1, environment=TORCHRUN)
        self.assertEqual(code, 0, stderr)
        self.assertIn("--ranks 1 starts its own ranks: ignoring WORLD_SIZE=2, RANK=0, LOCAL_RANK=0", stderr)

    def test_a_half_launch_is_named(self):
        for changes, says in (({"WORLD_SIZE": None}, "RANK=0 is set without WORLD_SIZE"),
                              ({"RANK": None}, "WORLD_SIZE=2 is set without RANK"),
                              ({"RANK": "2"}, "RANK=2 and WORLD_SIZE=2: ranks are numbered from 0 to 1"),
                              ({"RANK": "one"}, 'RANK="one" is not a number'),
                              ({"WORLD_SIZE": "2.0"}, 'WORLD_SIZE="2.0" is not a number'),
                              ({"MASTER_ADDR": None}, "MASTER_ADDR, where rank 0 listens, is not set"),
                              ({"MASTER_PORT": None}, 'MASTER_PORT="" is not a number'),
                              ({"MASTER_PORT": "99999"}, 'MASTER_PORT="99999" is not a number')):
            for command in (("pretrain", "--config", "run.json"), ("eval", "run"), ("serve", "run", "--port", 0)):
                with self.subTest(command=command, changes=changes):
                    variables = {k: v for k, v in {**TORCHRUN, **changes}.items() if v is not None}
                    code, stderr, seconds = self.launch(*command, environment=variables)
                    self.assertEqual(code, 2, stderr)
                    self.assertIn(says, stderr)
                    self.assertIn("--ranks N", stderr)
                    self.assertLess(seconds, SOON)



class StaleVariablesOfAServer(served_ranks.ServedRanks):
    def test_ranks_wins(self):
        for name, variables in STALE.items():
            with self.subTest(name):
                server = self.serve("--ranks", 2, "--tensor", 2, environment=variables)
                self.complete(max_tokens=2)
                server.terminate()
                _, stderr = server.communicate(timeout=60 * harness.PATIENCE)
                self.assertEqual(server.returncode, 0, stderr)
                self.assertEqual(stderr.count("--ranks 2 starts its own ranks: ignoring "), 1, stderr)
                self.assertIn("2 ranks are ready: 2 ranks over tcp", stderr)
                self.expect_nobody_left()


def limited(command):
    """A prefix: what a shell does before it becomes the program."""
    return ["bash", "-c", command + '; exec "$@"', "bash"]


PRETRAIN = ("pretrain", "--config", "run.json", "--ranks", 2)
# Without a model, and by the other way of starting mpirun.
BENCH = ("bench", "comm", "--ranks", 2, "--min", 8, "--max", 8, "--iterations", 1, "--operation", "all_reduce")


class Scarce(LaunchTest):
    def refused(self, *arguments, says, codes=(2,), seconds=SOON, **options):
        code, stderr, took = self.launch(*arguments, **options)
        self.assertIn(code, codes, stderr)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, stderr)
        self.assertEqual(stderr.count("trireme: error: "), 1, stderr)
        self.assertLess(took, seconds, stderr)
        self.assertFalse((self.folder / "run").exists())

    def test_few_descriptors(self):
        for limit in (12, 16, 20, 32, 48):
            for command in (PRETRAIN, BENCH):
                with self.subTest(limit=limit, command=command):
                    self.refused(*command, prefix=limited(f"ulimit -n {limit}"),
                                 says=["--ranks 2 needs", f"the limit is {limit}", "ulimit -n 1024"])

    def test_as_many_descriptors_as_are_asked_for_are_enough(self):
        for ranks in (2, 8):
            _, stderr, _ = self.launch("bench", "comm", "--ranks", ranks, prefix=limited("ulimit -n 16"))
            needed = stderr.split(" needs ")[1].split()[0]
            for limit in (f"ulimit -n {needed}", f"ulimit -Hn {needed}; ulimit -Sn 16"):
                code, stderr, _ = self.launch(*BENCH[:3], ranks, *BENCH[4:], prefix=limited(limit))
                self.assertEqual(code, 0, stderr)

    def test_no_folder_for_the_session(self):
        (self.folder / "file").write_text("not a folder")
        for folder in (self.folder / "file", self.folder / "file/below"):
            for command in (PRETRAIN, BENCH):
                self.refused(*command, environment={"TMPDIR": str(folder)},
                             says=[f"mpirun keeps the files of its session in {folder}", "set TMPDIR"])
        # One that is not there yet is made.
        code, stderr, _ = self.launch(*BENCH, environment={"TMPDIR": str(self.folder / "made/for/mpirun")})
        self.assertEqual(code, 0, stderr)

    @unittest.skipUnless(os.geteuid() == 0 and harness.can_mount_tmpfs(), "mounting needs root")
    def test_read_only_and_full_folders(self):
        (self.folder / "disk").mkdir()
        fill = "head -c 1M /dev/zero > disk/full 2> /dev/null"
        for mount, reason in (("mount -t tmpfs -o ro tmpfs disk", "Read-only file system"),
                              (f"mount -t tmpfs -o size=4k tmpfs disk; {fill}", "No space left on device")):
            for command in (PRETRAIN, BENCH):
                self.refused(*command, environment={"TMPDIR": str(self.folder / "disk")}, says=["/disk, where", reason],
                             prefix=["unshare", "--mount", *limited(mount)])
        # This test's own folder stays as it is below a /tmp that can only be read.
        here, tmp = self.folder.resolve(), Path(tempfile.gettempdir()).resolve()
        read_only = (f"mount --bind {here} {here} && mount --rbind {tmp} {tmp} && mount -o remount,bind,ro {tmp} && "
                     f"cd {here}")
        for command in (PRETRAIN, BENCH):
            self.refused(*command, prefix=["unshare", "--mount", *limited(read_only)],
                         says=[f"in {tmp}, where", "Read-only file system"])
            code, stderr, _ = self.launch(*command, prefix=["unshare", "--mount", *limited(read_only)],
                                          environment={"TMPDIR": str(here)})
            self.assertEqual(code, 0, stderr)
            shutil.rmtree(self.folder / "run", ignore_errors=True)

    def test_search_paths_without_mpirun(self):
        for command in (PRETRAIN, BENCH):
            self.refused(*command, environment={"PATH": "/nonexistent"},
                         says=["mpirun was not found on the search path", "openmpi-bin"], prefix=["/usr/bin/env"])

    def test_search_paths_with_little_else(self):
        (self.folder / "bin").mkdir()
        (self.folder / "bin/mpirun").symlink_to(shutil.which("mpirun"))
        for prefix in (["/usr/bin/env", "-u", "PATH"], ["/usr/bin/env", "PATH="], ["/usr/bin/env", "PATH=bin"],
                       ["/usr/bin/env", "-u", "HOME"]):
            with self.subTest(prefix):
                code, stderr, _ = self.launch(*PRETRAIN, prefix=prefix)
                self.assertEqual(code, 0, stderr)
                shutil.rmtree(self.folder / "run")

    def test_broken_mpiruns(self):
        version = '[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit 0\n'
        alone = 'while [ "$1" != -n ]; do shift; done\nshift 2\nexec "$@"\n'
        for name, text, says in (
                ("fails", "#!/bin/sh\necho it is broken\nexit 3\n", "--version ended with exit code 3 (it is broken)"),
                ("silent", "#!/bin/sh\nexit 1\n", "--version ended with exit code 1 (no output)"),
                ("dies", "#!/bin/sh\nkill -9 $$\n", "--version was ended by signal 9"),
                ("hangs", "#!/bin/sh\nsleep 600\n", "--version did not end within"),
                ("detaches", "#!/bin/sh\nsleep 600 &\nexit 0\n", "does not name Open MPI (no output)"),
                ("other", "#!/bin/sh\necho HYDRA build details:\n", "does not name Open MPI (HYDRA build details:)"),
                ("garbage", "\x7fELF", "Exec format error"),
                ("interpreter", "#!/no/such/shell\n", "No such file or directory"),
                ("alone", "#!/bin/sh\n" + version + alone, "started a rank without the variables of Open MPI")):
            with self.subTest(name):
                self.write(f"{name}/mpirun", text).chmod(0o755)
                path = f"{self.folder}/{name}:{os.environ['PATH']}"
                for command in (PRETRAIN, BENCH):
                    self.refused(*command, environment={"PATH": path}, says=[says, f"{name}/mpirun", "search path"])
        with self.subTest("without a word"):
            self.write("mute/mpirun", "#!/bin/sh\n" + version + "exit 7\n").chmod(0o755)
            path = f"{self.folder}/mute:{os.environ['PATH']}"
            self.refused(*PRETRAIN, environment={"PATH": path}, codes=(7,),
                         says=["mute/mpirun ended with exit code 7 and printed nothing"])

    def test_closed_descriptors(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            for ranks in ((), ("--ranks", 2)):
                with self.subTest(closed=closed, ranks=ranks):
                    self.launch("pretrain", "--config", "run.json", *ranks,
                                prefix=["bash", "-c", f'exec "$@" {closed}', "bash"])
                    # Nothing that was opened later became an output: what was written is whole.
                    self.assertEqual([record["step"] for record in self.records()], [1, 2, 3, 4, 5, 6])
                    log = (self.folder / "run/train.log").read_text()
                    self.assertIn("2 ranks over mpi" if ranks else "1 rank over single", log)
                    shutil.rmtree(self.folder / "run")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "running as another user needs root")
    def test_few_processes(self):
        self.folder.chmod(0o777)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        # Through a shell: setpriv itself may still read what the user cannot.
        if subprocess.run([*user, *limited("true"), harness.TRIREME, "--version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("another user cannot read the program")
        for limit in (0, 1, 2, 4, 8):
            with self.subTest(limit):
                code, stderr, took = self.launch(*PRETRAIN, prefix=[*user, *limited(f"ulimit -u {limit}")])
                self.assertNotEqual(code, 0, stderr)
                self.assertIn("ulimit -u", stderr)
                self.assertLess(took, SOON)

    @unittest.skipUnless(os.geteuid() == 0 and harness.can_mount_tmpfs(), "mounting needs root")
    def test_no_shared_memory_folder(self):
        for mount in ("mount -t tmpfs -o ro tmpfs /dev/shm",
                      "mount -t tmpfs -o size=4k tmpfs /dev/shm; head -c 1M /dev/zero > /dev/shm/full 2> /dev/null"):
            with self.subTest(mount):
                code, stderr, _ = self.launch(*PRETRAIN, prefix=["unshare", "--mount", *limited(mount)])
                self.assertEqual(code, 0, stderr)
                shutil.rmtree(self.folder / "run")


if __name__ == "__main__":
    harness.main()
