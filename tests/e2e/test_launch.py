#!/usr/bin/env python3
"""--ranks beside variables of another launch, and launches of which a part is missing: said, soon, and no process is left."""
import os
import signal
import subprocess
import time
from pathlib import Path

import harness
import tiny_run

SOON = 5 * harness.PATIENCE  # seconds within which a launch that cannot work has failed
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



if __name__ == "__main__":
    harness.main()
