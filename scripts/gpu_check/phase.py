"""What the phases of gpu_check.sh share: rows on disk, time limits, programs that are run."""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Failure(Exception):
    """Why a row could not be made."""


class OutOfTime(Exception):
    """The phase's time is over; the rows that are missing come with the next call."""


class Phase:
    """Rows of one phase: a line of JSON each, written as soon as it is known, so that a cut-off leaves what was done.

    A row has an id. A phase that is called again goes on where it stopped: rows that are there are not made again,
    those that failed are. The last line of a phase that has nothing left to do is {"phase_done": true}.
    """

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.path = Path(options.out) / f"{name}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if options.again:
            self.path.unlink(missing_ok=True)
        self.rows = read_rows(self.path)
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):  # a torn last line stays alone
            with open(self.path, "a", encoding="utf-8") as file:
                file.write("\n")
        self.end = time.monotonic() + options.seconds
        self.failed = 0

    @property
    def left(self):
        return self.end - time.monotonic()

    def write(self, row):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def has(self, identity):
        return identity in self.rows and "failure" not in self.rows[identity]

    def add(self, identity, row):
        row = {"phase": self.name, "id": identity, **row}
        self.rows[identity] = row
        self.failed += "failure" in row or row.get("ok") is False
        self.write(row)
        shown = {k: v for k, v in row.items() if k not in ("phase", "id") and not isinstance(v, (dict, list))}
        print(f"{self.name}: {identity}: {json.dumps(shown)[:400]}", flush=True)

    def row(self, identity, make):
        """Adds what make() returns, a dict, unless the row is there."""
        if self.has(identity):
            return
        if self.left < 5:
            raise OutOfTime
        begin = time.monotonic()
        try:
            made = make()
        except Failure as failure:
            made = {"failure": str(failure)[-2000:]}
        self.add(identity, {**made, "took_s": round(time.monotonic() - begin, 2)})

    def run(self, *command, timeout=300, ok=(0,), environment=None):
        """Standard output of a program. Failure where its exit code is not in `ok`, or it takes too long."""
        command = list(map(str, command))
        limit = min(timeout, max(1, self.left))
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False,
                                 stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
        except subprocess.TimeoutExpired as late:
            if limit < timeout:
                raise OutOfTime from late
            raise Failure(f"{' '.join(command)}: took more than {timeout} s") from late
        except OSError as missing:
            raise Failure(f"{command[0]}: {missing.strerror}") from missing
        if ran.returncode not in ok:
            raise Failure(f"{' '.join(command)}: exit code {ran.returncode}: {ran.stderr.strip()[-1500:]}")
        return ran.stdout

    def program(self, name):
        """A program of the build."""
        for folder in (".", "tests/cuda"):
            path = Path(self.options.build) / folder / name
            if path.exists():
                return path
        raise Failure(f"{name} is not in {self.options.build}")

    def trireme(self, *arguments, **options):
        device = "cpu" if self.options.rehearse else "cuda"
        return self.run(self.program("trireme"), *arguments, "--device", device, **options)


def read_rows(path):
    """{id: row} of a phase's file; a later line replaces an earlier one. A torn last line is left out."""
    rows = {}
    if not Path(path).exists():
        return rows
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[row.get("id", "phase_done")] = row
    return rows


def main(name, work):
    """Runs work(phase) in a phase's script. Exit codes: 0 all done, 1 done with failures, 3 to be continued."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--again", action="store_true")
    phase = Phase(name, parser.parse_args())
    if "phase_done" in phase.rows and not any("failure" in row for row in phase.rows.values()):
        print(f"{name}: done before; --again does it again")
        sys.exit(1 if any(row.get("ok") is False for row in phase.rows.values()) else 0)
    try:
        work(phase)
    except OutOfTime:
        print(f"{name}: out of time; call it again to go on")
        sys.exit(3)
    except Failure as failure:  # before the first row
        phase.add(name, {"failure": str(failure)})
        sys.exit(1)
    phase.write({"phase": name, "phase_done": True, "rehearsal": phase.options.rehearse})
    sys.exit(1 if phase.failed else 0)
