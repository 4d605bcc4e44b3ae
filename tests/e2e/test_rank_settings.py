#!/usr/bin/env python3
"""Ranks that were started with different settings are refused before they compute anything."""
import json
import shutil
import socket

import harness
import tiny_run


class RankSettings(tiny_run.RunTest):
    def setUp(self):
        super().setUp()
        self.configure(train_steps=6)

    def start_ranks(self, *commands):
        """A process for each command line, connected over TCP; its exit codes and what they said."""
        probe = socket.socket()  # held until the end, so that nobody else has the port
        self.addCleanup(probe.close)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        ranks = [self.start(*command, environment={
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1]),
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(commands))})
            for rank, command in enumerate(commands)]
        said = [rank.communicate(timeout=300) for rank in ranks]
        return [rank.returncode for rank in ranks], "".join(out + err for out, err in said)

    def refused(self, common, more, says):
        with self.subTest(more=more):
            codes, said = self.start_ranks(common, [*common, *more])
            self.assertEqual(codes, [2, 2], said)
            self.assertEqual(said.count("started with different settings or files"), 1, said)
            self.assertIn("start all of them with the same ones", said)
            for text in says:
                self.assertIn(text, said)

    def test_training(self):
        common = ["pretrain", "--config", "run.json"]
        codes, said = self.start_ranks(common, common)
        self.assertEqual(codes, [0, 0], said)
        shutil.rmtree(self.folder / "run")
        for setting, says in {
                "optimizer.params.lr=0.1": "optimizer.params.lr: 0.005 on rank 0; 0.1 on rank 1",
                "seed=8": "seed: 7 on rank 0; 8 on rank 1",
                "train_batch_size=4": "train_batch_size: 8 on rank 0; 4 on rank 1",
                "model.intermediate_size=96": "model.intermediate_size: 64 on rank 0; 96 on rank 1",
                "zero_optimization.stage=2": "zero_optimization.stage: 0 on rank 0; 2 on rank 1",
                "checkpoint.save_interval=2": "checkpoint.save_interval: 10 on rank 0; 2 on rank 1",
                "data.train_data_path=valid": 'data.train_data_path: [1.0,"train"] on rank 0; [1.0,"valid"] on rank 1'}.items():
            self.refused(common, ["--set", setting], [says])
        self.refused(common, ["--resume", "auto"], ["--resume: not given on rank 0; auto on rank 1"])
        self.assertFalse((self.folder / "run/metrics.jsonl").exists())

    def test_what_a_rank_has_for_itself(self):
        shutil.copytree(self.folder, self.folder / "copy")
        common = ["pretrain", "--config", "run.json"]
        own = ["--set", "cpu.threads_per_rank=2", "--set", "data.train_data_path=copy/train"]
        codes, said = self.start_ranks(common, [*common, *own])
        self.assertEqual(codes, [0, 0], said)

    def test_a_file_of_the_same_name(self):
        (self.folder / "other").mkdir()
        for end in ("bin", "idx"):
            shutil.copy(self.folder / f"valid.{end}", self.folder / f"other/train.{end}")
        self.refused(["pretrain", "--config", "run.json"], ["--set", "data.train_data_path=other/train"],
                     ["data.train_data_path (file 1, train): ", " bytes, checksum "])

    def test_other_commands(self):
        self.pretrain()
        self.write("ids.jsonl", json.dumps([1, 2, 3]) + "\n")
        tensor_parallel = ["--tensor-parallel", "2"]
        self.refused(["eval", "run"], ["--max-samples", "1"], ["--max-samples: not given on rank 0; 1 on rank 1"])
        self.refused(["logits", "run", "--tokens", "ids.jsonl", "--output", "out", *tensor_parallel],
                     ["--dtype", "bf16"], ["--dtype: not given on rank 0; bf16 on rank 1"])
        self.refused(["generate", "run", *tensor_parallel], ["--seed", "3"], ["--seed: not given on rank 0; 3 on rank 1"])
        for option, value in (("--dtype", "bf16"), ("--max-model-len", "16"), ("--kv-cache-dtype", "fp8")):
            self.refused(["serve", "run", "--port", "0", "--api-key", "secret-of-both", *tensor_parallel], [option, value],
                         [f"{option}: not given on rank 0; {value} on rank 1"])


if __name__ == "__main__":
    harness.main()
