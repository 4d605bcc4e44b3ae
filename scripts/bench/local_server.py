"""A server of OpenAI's API on a port of this machine, as long as it is asked."""
import contextlib
import ctypes
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

PR_SET_PDEATHSIG = 1
# What this machine has set for the way out is no way to itself.
open_here = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class NotServing(SystemExit):
    """Why a server does not answer; where nobody catches it, the script ends with these words."""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def end_with_parent():
    """However a script ends, its server does not go on: the memory of a GPU would stay taken."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def ready(url):
    with contextlib.suppress(urllib.error.URLError, OSError), open_here(url + "/health", timeout=5) as response:
        return response.status == 200
    return False


@contextlib.contextmanager
def served(command, port, log, seconds=120, environment=None):
    """Seconds until it answered. It is ended behind the block, by force after 20 s."""
    begin = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                               preexec_fn=end_with_parent)
    try:
        while not ready(f"http://127.0.0.1:{port}"):
            if process.poll() is not None:
                raise NotServing(f"{command[0]} does not serve, exit code {process.returncode}: see {log.name}")
            if time.monotonic() - begin > seconds:
                raise NotServing(f"{command[0]} does not serve after {seconds:.0f} s: see {log.name}")
            time.sleep(0.1)
        yield time.monotonic() - begin
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
