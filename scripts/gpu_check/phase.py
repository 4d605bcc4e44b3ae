"""What the calls of gpu_check.sh share: rows on disk, time limits, programs that are run."""
import json
import os
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

import clocks

ROOT = Path(__file__).resolve().parents[2]
MAX_LOG_BYTES = 1 << 20


class Failure(Exception):
    """Why a row could not be made."""


class OutOfTime(Exception):
    """The call's time is over; the rows that are missing are made by another one."""


class Stop(Exception):
    """Why nothing that follows would be worth its time."""


class Call:
    """Rows of one call of gpu_check.sh: lines of JSON in OUT/rows.jsonl, each written as soon as it is known.

    A row has a phase and an id. Rows without a failure that `seen` files have are not made again; with `only`, a regular
    expression, just those of whose "PHASE ID" a part matches are made.
    """

    def __init__(self, options):
        self.options = options
        self.out = Path(options.out)
        self.path = self.out / "rows.jsonl"
        self.out.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self.rows = {}
        for path in options.seen:
            self.rows.update(read_rows(path))
        self.loader_path = []  # folders of libraries for our own programs
        self.commit = None  # theirs, by their own account: the sources may be a copy with another history, or none
        self.end = time.monotonic() + options.seconds
        self.failed = 0
        self.chosen = False  # some row by `only`
        self.clocks = None if options.rehearse else clocks.Clocks()
        self.logs = tempfile.TemporaryDirectory(prefix="trireme-gpu-check-")

    @property
    def left(self):
        return self.end - time.monotonic()

    def write(self, row):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def pack_logs(self):
        """OUT/logs.tar.gz, of each log its end."""
        folder = Path(self.logs.name)
        for path in folder.iterdir():
            if path.stat().st_size > MAX_LOG_BYTES:
                path.write_bytes(path.read_bytes()[-MAX_LOG_BYTES:])
        with tarfile.open(self.out / "logs.tar.gz", "w:gz") as packed:
            packed.add(folder, arcname="logs")

    def environment(self, program):
        """Our own programs find libraries where others do not look: Debian's would break Python and the tools."""
        own = Path(program).is_relative_to(self.options.build) and self.loader_path
        return self.loader_environment() if own else {}

    def loader_environment(self, *first):
        """That of our own programs, with other folders before."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        return {"LD_LIBRARY_PATH": ":".join([*first, *self.loader_path, *([inherited] if inherited else [])])}


class Phase:
    """The rows of one phase of a call."""

    def __init__(self, call, name):
        self.call, self.name, self.options = call, name, call.options

    @property
    def left(self):
        return self.call.left

    @property
    def rows(self):
        return {identity: row for (phase, identity), row in self.call.rows.items() if phase == self.name}

    def has(self, identity):
        """Whether a row need not be made."""
        if self.options.only:
            if not self.options.only.search(f"{self.name} {identity}"):
                return True
            self.call.chosen = True
        return "failure" not in self.call.rows.get((self.name, identity), {"failure": ""})

    def add(self, identity, row):
        row = {"phase": self.name, "id": identity, "call": self.options.call, "commit": self.call.commit, **row}
        self.call.rows[self.name, identity] = row
        self.call.failed += "failure" in row or row.get("ok") is False
        self.call.write(row)
        shown = {k: v for k, v in row.items() if k not in ("phase", "id", "call", "commit") and not isinstance(v, (dict, list))}
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
        end, sampled = time.monotonic(), self.call.clocks
        self.add(identity, {**made, **(sampled.between(begin, end) if sampled else {}), "took_s": round(end - begin, 2)})

    def log(self, name):
        """Where a program writes what is kept of it."""
        return Path(self.call.logs.name) / name

    def run(self, *command, timeout=300, ok=(0,), environment=None):
        """Standard output of a program. Failure where its exit code is not in `ok` (None: any), or it takes too long."""
        command = list(map(str, command))
        limit = min(timeout, max(1, self.left))
        own = self.call.environment(command[0])
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False,
                                 stdin=subprocess.DEVNULL, env={**os.environ, **own, **(environment or {})})
        except subprocess.TimeoutExpired as late:
            said = b"".join(part for part in (late.stdout, late.stderr) if part).decode(errors="replace")
            self.keep(command, f"{said}\n(cut off after {limit:.0f} s)")
            if limit < timeout:
                raise OutOfTime from late
            raise Failure(f"{' '.join(command)}: took more than {timeout} s") from late
        except OSError as missing:
            raise Failure(f"{command[0]}: {missing.strerror}") from missing
        if ran.stderr:
            self.keep(command, ran.stderr)
        if ok is not None and ran.returncode not in ok:
            raise Failure(f"{' '.join(command)}: exit code {ran.returncode}: {ran.stderr.strip()[-1500:]}")
        return ran.stdout

    def keep(self, command, said):
        with open(self.log("stderr.log"), "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{said[-20000:]}\n")

    def program(self, name):
        """A program of the build."""
        for folder in (".", "tests/cuda"):
            path = Path(self.options.build) / folder / name
            if path.exists():
                return path
        raise Failure(f"{name} is not in {self.options.build}")

    def under(self, tool, *arguments):
        """The words that run one of our programs under a tool which follows children."""
        program, *rest = arguments
        words = [f"{name}={value}" for name, value in self.call.environment(program).items()]
        return [*tool, "env", *words, program, *rest]

    def trireme(self, *arguments, **options):
        device = "cpu" if self.options.rehearse else "cuda"
        return self.run(self.program("trireme"), *arguments, "--device", device, **options)


def read_rows(path):
    """{(phase, id): row} of a file of rows; a later line replaces an earlier one, but a failure no result. A torn last
    line is left out."""
    rows = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        add_row(rows, row)
    return rows


def add_row(rows, row):
    key = row.get("phase"), row.get("id")
    if "failure" in row and "failure" not in rows.get(key, row):
        return
    rows[key] = row
