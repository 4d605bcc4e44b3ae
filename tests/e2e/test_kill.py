"""SIGKILL at random moments of training and of saving: the resumed run ends with the same bits."""
import os
import random
import signal
import time

import harness
import tiny_run

KILLS = 10
SEED = 20240229


class Kill(tiny_run.RunTest):
    def kill_until_done(self, seconds, **changes):
        """Kills the run KILLS times at random moments of its life, then lets it end."""
        moments = random.Random(SEED)
        self.configure(**changes)
        for kill in range(KILLS):
            process = self.start("pretrain", "--config", "run.json", "--resume", "auto")
            time.sleep(moments.uniform(0.05, seconds))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            out = process.communicate()
            self.assertIn(process.returncode, (0, -signal.SIGKILL), f"kill {kill} (seed {SEED}): {out}")
        self.pretrain("--resume", "auto")

    def compare(self, **changes):
        self.configure(**{**changes, "output_dir": "whole"})
        begin = time.monotonic()
        self.pretrain()
        seconds = time.monotonic() - begin
        self.kill_until_done(seconds, **changes)
        self.assertEqual(self.losses(), self.losses("whole"))
        self.assertEqual(self.weights(changes["train_steps"]), self.weights(changes["train_steps"], "whole"))
        leftovers = [p.name for p in (self.folder / "run/checkpoints").iterdir() if p.name.endswith(".tmp")]
        self.assertEqual(leftovers, [])

    def test_during_training(self):
        self.compare(train_steps=60, checkpoint={"save_interval": 10, "keep_last": 2})

    def test_during_saves(self):
        # A save after every step: most of the time is spent in one.
        self.compare(train_steps=25, checkpoint={"save_interval": 1, "keep_last": 2})


if __name__ == "__main__":
    harness.main()
