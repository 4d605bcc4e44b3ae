#!/usr/bin/env python3
"""A run of sites that leave and join, and the same run without changes: the rounds and losses of both.

    scripts/bench/changing_sites.py [--sites 8] [--changes 10] [--steps 2000] [--data DIR] [--out DIR]

Trains configs/shakespeare-small.json with sites that are jobs of one thread each, and a rendezvous.
At equal distances a site leaves, in turn by SIGTERM and by SIGKILL, and a new one joins in its
place two rounds later; site 0 stays, and its validation loss is that of the run. The data is that of
the configuration, or train and valid (.bin, .idx) in the folder --data. Prints a Markdown table.
"""
import argparse
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from local_server import end_with_parent
from slow_link_losses import ROOT, data_paths, program_version, read_records, steps_of
from slow_link_rows import CONFIG

SEQUENCES = 2  # of each site in a batch
ABSENT = 2     # rounds between a leave and a join


class Run:
    """A rendezvous and its sites, with logs in a folder."""

    def __init__(self, options, name):
        self.options, self.folder = options, options.out.resolve() / name
        self.folder.mkdir(parents=True)
        self.secret, self.rounds = self.folder / "secret", self.folder / "rounds.jsonl"
        self.secret.write_text(secrets.token_hex(32))
        self.secret.chmod(0o600)
        self.started = 0
        self.hub = self.start("rendezvous", "rendezvous", "--listen", "127.0.0.1:0", "--secret-file",
                              self.secret, "--records", self.rounds)
        self.address = self.listening()
        self.sites = [self.start_site(site) for site in range(options.sites)]

    def start(self, name, *arguments):
        with (self.folder / f"{name}.log").open("w") as log:
            return subprocess.Popen([self.options.trireme, *map(str, arguments)], cwd=ROOT, stdout=log,
                                    stderr=subprocess.STDOUT, preexec_fn=end_with_parent)

    def listening(self):
        log = self.folder / "rendezvous.log"
        while not (line := re.search(r"rendezvous of sites at (\S+)\n", log.read_text())):
            if self.hub.poll() is not None:
                sys.exit(f"the rendezvous has ended, see {log}")
            time.sleep(0.05)
        return line[1]

    def start_site(self, site):
        options, self.started = self.options, self.started + 1
        train, valid = data_paths(options.data)
        settings = {
            "output_dir": self.folder / f"{self.started}-site-{site}", "cpu.threads_per_rank": 1,
            "data.train_data_path": train, "data.valid_data_path": valid,
            "train_batch_size": SEQUENCES * options.sites, "train_steps": options.steps,
            "scheduler.params.warmup_steps": min(100, options.steps // 2),
            "evaluation.eval_interval": 0, "checkpoint.save_interval": 0, "logging.log_interval": 100,
            "outer.sites": options.sites, "outer.site": site, "outer.rendezvous": self.address,
            "outer.secret_file": self.secret, "outer.period": options.period,
            "outer.timeout_s": options.timeout_s}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return self.start(f"{self.started}-site-{site}", "pretrain", "--config", CONFIG, *words)

    def await_round(self, number):
        """Waits until so many rounds have ended."""
        while steps_of(self.rounds) < number:
            if self.sites[0].poll() is not None or self.hub.poll() is not None:
                sys.exit(f"the run has ended early, see the logs in {self.folder}")
            time.sleep(0.02)

    def change(self, number):
        """The change of this number, from 0: a site leaves, and another one joins in its place."""
        site = 1 + number % (self.options.sites - 1)
        self.sites[site].send_signal((signal.SIGTERM, signal.SIGKILL)[number % 2])
        self.sites[site].wait()
        self.await_round(steps_of(self.rounds) + ABSENT)
        self.sites[site] = self.start_site(site)

    def end(self):
        for process in (*self.sites, self.hub):
            if process.wait() != 0:
                sys.exit(f"{process.args[1]} has ended with exit code {process.returncode}, see the "
                         f"logs in {self.folder}")
        records = read_records(next(self.folder.glob("1-site-0/metrics.jsonl")))
        return read_records(self.rounds), records[-1]["validation_loss"]


def row(name, changes, rounds, loss):
    updates = [len(one["sites"]) for one in rounds]
    return (f"| {name} | {changes} | {len(rounds)} | {min(updates)} to {max(updates)} | "
            f"{max(one['seconds'] for one in rounds):.2f} | {loss:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=ROOT / "build/release/trireme", type=Path)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--changes", type=int, default=10, help="sites that leave, and that join")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--period", type=int, default=10, help="steps between rounds")
    parser.add_argument("--timeout-s", type=float, default=10, help="outer.timeout_s")
    parser.add_argument("--data", type=Path, help="folder of train and valid")
    parser.add_argument("--out", type=Path, default=Path("runs/changing-sites"))
    options = parser.parse_args()
    options.trireme = options.trireme.resolve()
    if options.sites < 2 or options.changes < 1:
        parser.error("--sites must be at least 2, and --changes at least 1")
    all_rounds = options.steps // options.period
    apart = all_rounds // (options.changes + 1)
    if apart <= ABSENT:
        parser.error(f"{options.changes} changes need more than {(options.changes + 1) * ABSENT} rounds, "
                     f"these are {all_rounds}")
    if options.out.exists():
        parser.error(f"--out {options.out} exists: give a new folder")
    commit, processor = program_version(options.trireme)
    print(f"{options.steps} steps, a round every {options.period}, {options.sites} sites, "
          f"timeout {options.timeout_s:g} s, at {commit} on {processor}:\n")
    print("| run | leave and join | rounds | updates of a round | longest, s | validation loss |")
    print("|---|---|---|---|---|---|", flush=True)
    still = Run(options, "without-changes")
    print(row("without changes", 0, *still.end()), flush=True)
    moving = Run(options, "with-changes")
    for number in range(options.changes):
        moving.await_round((number + 1) * apart - ABSENT)
        moving.change(number)
    print(row("with changes", options.changes, *moving.end()))


if __name__ == "__main__":
    main()
