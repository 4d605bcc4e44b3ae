"""`trireme serve` on several ranks: under mpirun, or started by a process that outlives them."""
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import harness
import test_serve
import tiny_run

PROMPT = test_serve.PROMPT
LENGTH = 512
LLAMA = {**tiny_run.config()["model"], "max_position_embeddings": LENGTH}
MIXTRAL = {"model_type": "mixtral", "vocab_size": 257, "max_position_embeddings": LENGTH, "hidden_size": 32,
           "intermediate_size": 45, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
           "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}


class ServedRanks(tiny_run.RunTest):
    """Every test has a folder `run` of a model that was trained once."""
    model, train_steps = LLAMA, 200

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trireme-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.trained = Path(folder.name) / "run"

    def setUp(self):
        if self.trained.exists():
            harness.CommandTest.setUp(self)
            shutil.copytree(self.trained, self.folder / "run")
            return
        super().setUp()
        self.configure(model=self.model, train_steps=self.train_steps, checkpoint={}, evaluation={"eval_iters": 0})
        self.pretrain()
        shutil.copytree(self.folder / "run", self.trained)

    def serve(self, *arguments, **options):
        """The process that was started; self.port is where the server listens. ranks=N: under mpirun."""
        server = self.start("serve", "--model", "run", "--port", 0, "--served-model-name", "tiny", "--threads", 1,
                            "--max-num-seqs", 8, *arguments, **options)
        line = server.stdout.readline()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line)
        self.assertTrue(found, line + (server.stderr.read() if server.poll() is not None else ""))
        self.port = int(found[1])
        return server

    connect, ask = test_serve.Server.connect, test_serve.Server.ask
    complete, stream = test_serve.Server.complete, test_serve.Server.stream
    events = staticmethod(test_serve.Server.events)
    metric, stop = test_serve.Server.metric, test_serve.Server.stop

    def processes(self):
        """Processes of this program that run for this test, which is to say in its folder: {rank: number}; a front
        process has the rank None. The ranks of replicas count on from one to the next."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or Path(os.readlink(entry / "cwd")) != self.folder.resolve():
                    continue
                if Path(os.readlink(entry / "exe")).name != Path(harness.TRIREME).name:
                    continue
                variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
                rank = variables.get("OMPI_COMM_WORLD_RANK", variables.get("RANK"))
                before = int(variables.get("TRIREME_MACHINE_RANKS", "0/").split("/")[0])
                found[None if rank is None else before + int(rank)] = int(entry.name)
            except OSError:
                continue
        return found

    def cores_used(self, seconds):
        """Of all of these processes together, as a share of one core."""
        def spent():
            threads = [thread for process in self.processes().values()
                       for thread in Path(f"/proc/{process}/task").iterdir()]
            return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
        before = spent()
        time.sleep(seconds)
        return (spent() - before) / seconds

    def expect_nobody_left(self, seconds=10):
        end = time.monotonic() + seconds
        while self.processes() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.processes(), {})
