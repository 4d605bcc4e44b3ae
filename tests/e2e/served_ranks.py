"""`trireme serve` on several ranks: under mpirun, or started by a process that outlives them."""
import os
import time
from pathlib import Path

import harness
import served_run
import tiny_run

PROMPT = served_run.PROMPT
LENGTH = 512
LLAMA = {**tiny_run.config()["model"], "max_position_embeddings": LENGTH}
MIXTRAL = {"model_type": "mixtral", "vocab_size": 257, "max_position_embeddings": LENGTH, "hidden_size": 32,
           "intermediate_size": 45, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
           "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}


class ServedRanks(served_run.ServerTest):
    model, train_steps = LLAMA, 200

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
        before, began = spent(), time.monotonic()
        time.sleep(seconds)
        return (spent() - before) / (time.monotonic() - began)

    def came_anew(self, before, ranks=None):
        """Whether these ranks (all, but a front process) are others than they were, and all are there. It stays so, while the
        moment in which the server is not ready may be missed."""
        now = self.processes()
        ranks = before.keys() - {None} if ranks is None else ranks
        return now.keys() == before.keys() and all(now[rank] != before[rank] for rank in ranks)

    def expect_nobody_left(self, seconds=60 * harness.PATIENCE):
        end = time.monotonic() + seconds
        while self.processes() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.processes(), {})
