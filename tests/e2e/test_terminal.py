"""The progress bar: there on a terminal, with one rank or several, and never in a file."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading

import harness
import tiny_run

COLUMNS = 110


def screen(output):
    """The lines that a terminal shows in the end."""
    lines, line, column = [], "", 0
    for part in re.findall(r"\r|\n|\x1b\[K|[^\r\n\x1b]+", output):
        if part == "\n":
            lines.append(line)
            line, column = "", 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            line = line[:column]
        else:
            line = line[:column].ljust(column) + part + line[column + len(part):]
            column += len(part)
    return lines + [line] if line else lines


class Terminal(tiny_run.RunTest):
    def run_on_terminal(self, command, stdout=None, stderr=None):
        """What arrives on a terminal of COLUMNS columns that stdout and stderr are, unless given."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=stdout or slave,
                                   stderr=stderr or slave, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
                                   start_new_session=True)
        self.addCleanup(self._end, process)
        os.close(slave)
        received = []

        def read():
            try:
                while data := os.read(master, 1 << 16):
                    received.append(data)
            except OSError:  # the other side is closed
                pass

        reader = threading.Thread(target=read)
        reader.start()
        self.assertEqual(process.wait(timeout=120), 0)
        reader.join(timeout=30)
        os.close(master)
        return b"".join(received).decode()

    def command(self, *arguments):
        return [harness.TRIREME, "pretrain", "--config", "run.json", "--resume", "auto", *arguments]

    def assert_bar_and_whole_lines(self, output):
        bars = re.findall(r"pretrain  +\d+%[^\r\n\x1b]*ETA [^\r\n\x1b]*", output)
        self.assertGreaterEqual(len(bars), 2, output)
        self.assertLess(max(map(len, bars)), COLUMNS)
        lines = screen(output)
        self.assertFalse(any("ETA" in line for line in lines), lines)  # none is left, none is part of a line
        steps = [line for line in lines if "iteration " in line and "lm loss:" in line]
        self.assertEqual(len(steps), 30, lines)
        self.assertTrue(all(re.match(r"\[\d{4}-", line) for line in steps), steps)
        self.assertTrue(any("saved run/checkpoints/step-00000030" in line for line in lines), lines)

    def test_one_rank(self):
        self.assert_bar_and_whole_lines(self.run_on_terminal(self.command()))

    def test_several_ranks(self):
        self.assert_bar_and_whole_lines(self.run_on_terminal(self.command("--ranks", "2")))

    def test_ranks_of_another_launcher_draw_nothing(self):
        output = self.run_on_terminal([*harness.MPIRUN, "-n", "2", *self.command()])
        self.assertNotIn("ETA", output)
        self.assertIn("lm loss:", output)

    def test_nothing_is_drawn_in_a_file(self):
        for ranks in ([], ["--ranks", "2"]):
            with open(self.folder / "out.txt", "wb") as out:
                stderr = self.run_on_terminal(self.command(*ranks, "--set", f"output_dir=run{len(ranks)}"), stdout=out)
            text = (self.folder / "out.txt").read_text()
            self.assertEqual(text.count("lm loss:"), 30)
            self.assertNotIn("\x1b", text + stderr)
            self.assertNotIn("ETA", text + stderr)
            self.assertIn("saved run", stderr)  # messages stay on stderr

    def test_messages_stay_apart_where_stderr_is_a_file(self):
        with open(self.folder / "err.txt", "wb") as err:
            output = self.run_on_terminal(self.command("--ranks", "2"), stderr=err)
        self.assertIn("ETA", output)
        self.assertNotIn("saved run", output)
        text = (self.folder / "err.txt").read_text()
        self.assertIn("saved run", text)
        self.assertNotIn("\x1b", text)


if __name__ == "__main__":
    harness.main()
