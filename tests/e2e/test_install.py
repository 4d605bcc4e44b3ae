"""What cmake --install and cpack make: files in their places, and a Debian package that names the libraries it needs."""
import re
import shutil
import subprocess
from pathlib import Path

import harness

BUILD = Path(harness.TRIREME).parent
FILES = ["bin/trireme", "share/man/man1/trireme.1", "share/bash-completion/completions/trireme",
         "share/zsh/site-functions/_trireme", "share/fish/vendor_completions.d/trireme.fish",
         "share/doc/trireme/copyright", "share/trireme/configs/quickstart.json"]


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


class Install(harness.CommandTest):
    def test_manual_page_has_every_command_and_option(self):
        page, _ = self.trireme("man")
        everything, _ = self.trireme("--help-all")
        options = set(re.findall(r"(?m)^ +(?:-\w,)?(--[\w-]+)", everything)) - {"--help", "--help-all"}
        self.assertGreater(len(options), 80)
        shown = page.replace("\\-", "-")
        self.assertEqual([option for option in sorted(options) if f"\\fB{option}\\fR" not in shown], [])
        sections = re.findall(r"(?m)^\.SS (.+)$", shown)
        for command in ("pretrain", "serve", "checkpoint convert", "bench train"):
            self.assertIn(command, sections)
        # Every line that begins with a dot is a macro that is used on purpose.
        self.assertEqual(set(re.findall(r"(?m)^\.(\w*)", page)), {"TH", "SH", "SS", "TP", "PP", "B", "nf", "fi", "nh", "ad"})
        self.assertEqual(page.count("\n.nf\n"), page.count("\n.fi\n"))
        if shutil.which("groff"):
            said = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-rLL=200n"], input=page, text=True,
                                  capture_output=True, check=True).stderr
            self.assertEqual(said, "")

    def test_everything_is_in_its_place(self):
        run("cmake", "--install", BUILD, "--prefix", self.folder / "prefix")
        for name in FILES:
            self.assertGreater((self.folder / "prefix" / name).stat().st_size, 0, name)
        installed = self.folder / "prefix/bin/trireme"
        self.assertEqual(run(installed, "--version"), self.trireme("--version")[0])
        self.assertNotIn(str(BUILD), run("readelf", "-d", installed))  # no path of this machine

    def test_debian_package_depends_on_what_it_is_linked_with(self):
        if harness.SANITIZED:
            self.skipTest("the package is the release build's")
        if not shutil.which("dpkg-shlibdeps"):
            self.skipTest("dpkg-shlibdeps is not installed (package dpkg-dev)")
        run("cpack", "-G", "DEB", "-B", self.folder, "--config", BUILD / "CPackConfig.cmake")
        [package] = self.folder.glob("trireme_*.deb")
        names = [line.split()[-1] for line in run("dpkg-deb", "-c", package).splitlines()]
        for name in FILES:
            self.assertIn(f"./usr/{name}", names)
        depends = {one.split()[0] for one in run("dpkg-deb", "-f", package, "Depends").split(", ")}
        needed = run(harness.SOURCE / "scripts/runtime_packages.sh", harness.TRIREME).split()
        for one in needed:  # by its name or one that it provides: libspdlog1.10 is libspdlog1.10-fmt9 too
            provided = re.findall(r"[\w.+-]+", run("dpkg-query", "-W", "-f", "${Package} ${Provides}", one))
            self.assertTrue(depends & set(provided), one)


if __name__ == "__main__":
    harness.main()
