"""Help, version, completion and refused command lines."""
import json
import shutil
import socket
import subprocess

import harness


class CommandLine(harness.CommandTest):
    def commands(self, *path):
        """The full name of every command at and below `path`, read from its help."""
        yield path
        text, _ = self.trireme(*path, "--help")
        self.assertIn("Exit codes:", text, path)
        self.assertIn("Usage: ", text, path)
        if "Subcommands:" in text:
            for line in text.split("Subcommands:\n")[1].split("\n\n")[0].splitlines():
                if line.startswith("  ") and line[2] != " ":
                    yield from self.commands(*path, line.split()[0])

    def test_help_at_every_level(self):
        self.assertGreaterEqual(len(list(self.commands())), 2)

    def test_every_option_is_explained(self):
        for path in self.commands():
            text, _ = self.trireme(*path, "--help")
            lines = text.splitlines()
            for at, line in enumerate(lines):
                if line.startswith("  -"):
                    continued = at + 1 < len(lines) and lines[at + 1].startswith(" " * 20)
                    self.assertTrue(continued or len(line.rstrip()) > 30, f"{path}: no help for {line}")

    def test_instruction_set_limit(self):
        self.assert_refused("--isa", "avx1024", "config", "docs", says='"avx1024" is not supported; supported: auto, avx512, avx2, portable')
        ran, _ = self.trireme("--isa", "portable", "bench", "gemm", "--help")
        self.assertIn("Usage: trireme bench gemm", ran)

    def test_version(self):
        text, _ = self.trireme("--version")
        version = (harness.SOURCE / "VERSION").read_text().strip()
        self.assertTrue(text.startswith(f"trireme {version} (commit "), text)
        for word in ("compiler:", "devices:", "oneDNN", "MPI", "SentencePiece", "features:", "kernels:"):
            self.assertIn(word, text)

    def test_refused(self):
        self.assert_refused(says="needs a command")
        self.assert_refused("completoin", says=['unknown command "completoin"', 'did you mean "completion"'])
        self.assert_refused("--verison", says=['unknown option "--verison"', 'did you mean "--version"'])
        self.assert_refused("bench", "gem", says=["trireme bench: ", 'did you mean "gemm"'])
        self.assert_refused("frobnicate", says='unknown command "frobnicate" (see trireme --help)')
        for words, means in ((["train", "--config", "x"], "trireme pretrain"), (["chat"], "trireme generate --chat"),
                             (["convert"], "trireme checkpoint convert"), (["chekpoint"], "checkpoint"),
                             (["bench", "serv"], "serve"), (["checkpoint", "tokenise"], "trireme tokenize")):
            self.assert_refused(*words, says=["unknown command", f'did you mean "{means}"?'])
        for words, means in ((["serve", "m", "--tp", "2"], "--tensor-parallel"), (["eval", "m", "--batch-sz=3"], "--micro-batch-size"),
                             (["generate", "--modle", "m"], "--model"), (["tokenize", "--tokeniser", "m"], "--tokenizer"),
                             (["checkpoint", "export", "a", "b", "--shard-size=1"], "--max-shard-size")):
            self.assert_refused(*words, says=["unknown option", f'did you mean "{means}"?'])
        self.assert_refused("completion", says="shell is required")
        self.assert_refused("completion", "csh", says="csh not in")
        self.assert_refused("completion", "bash", "zsh", says='unexpected argument "zsh"')

    def test_numbers(self):
        for value in ("0", "-1", "8G", "1.5"):
            self.assert_refused("serve", "m", f"--kv-cache-memory-bytes={value}",
                                says=f'serve: --kv-cache-memory-bytes: "{value}" is not a whole number of at least 1 (see')
        self.assert_refused("serve", "m", "--shutdown-timeout=-1", says='"-1" is not a whole number of at least 0')
        self.assert_refused("generate", "m", "--samples", "many", says='--samples: "many" is not a whole number')

    def test_addresses(self):
        self.assert_refused("serve", "m", "--host", "0.0.0.0", "--port", 0, says=["--api-key-file", "--insecure"])
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            self.assert_refused("route", "--server", "http://a:1", "--port", port, says=[f"port {port}: ", "another --port"])

    def test_options_in_a_file(self):
        self.write("all.json", json.dumps({"max_num_sequences": 4, "port": [1, 2], "insecure": 1, "api-key": ["a", {}],
                                           "config": "all.json", "host": None}))
        self.assert_refused("serve", "--model", "m", "--config", "all.json", says=[
            "max_num_sequences: not an option of this command; did you mean \"--max-num-seqs\"",
            "port: [1,2] is not a value of --port", "insecure: 1 is not a value of --insecure",
            'api-key: ["a",{}] is not a value of --api-key', "config: not an option of this command",
            "host: null is not a value of --host"])
        self.write("range.json", '{"model": "m", "port": 70000}')
        self.assert_refused("serve", "--config", "range.json", says="--port: Value 70000 not in range")
        self.write("name.json", '{"model": "of the file"}')
        self.assert_refused("serve", "--config", "name.json", says="of the file")
        self.assert_refused("serve", "--config", "name.json", "--model", "of the line", says="of the line")
        self.write("list.json", "[]")
        self.assert_refused("serve", "--model", "m", "--config", "list.json", says="list.json: expected an object of options")
        self.assert_refused("serve", "--model", "m", "--config", "absent.json", says="absent.json")

    def test_full_disk_behind_standard_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ran = subprocess.run([harness.TRIREME, "completion", "bash"], stdout=full, stderr=subprocess.PIPE,
                                 text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("cannot write to standard output", ran.stderr)


class Completion(harness.CommandTest):
    def complete(self, *words):
        """What bash offers for the last of `words`."""
        script, _ = self.trireme("completion", "bash")
        listed = " ".join(f"'{word}'" for word in ("trireme", *words))
        probe = f"{script}\nCOMP_WORDS=({listed}); COMP_CWORD={len(words)}; _trireme; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        ran = subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=True)
        return ran.stdout.split()

    def test_bash_offers_commands_and_options(self):
        self.assertIn("completion", self.complete(""))
        self.assertEqual(self.complete("compl"), ["completion"])
        self.assertEqual(self.complete("--vers"), ["--version"])
        self.assertIn("--help", self.complete("completion", "--"))
        self.assertNotIn("--version", self.complete("completion", "--"))

    def test_scripts_parse(self):
        for shell in ("bash", "zsh", "fish"):
            script, _ = self.trireme("completion", shell)
            self.assertTrue(script.endswith("\n"))
            if shutil.which(shell):
                path = self.write(f"completion.{shell}", script)
                subprocess.run([shell, "-n", str(path)], check=True)


if __name__ == "__main__":
    harness.main()
