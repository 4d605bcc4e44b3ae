"""Ways out that data, runs and fine-tuning name, followed."""
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import time

import advice
import harness
import manifest
import tiny_run

PRETRAIN = ("pretrain", "--config", "run.json")
SHORT = (*PRETRAIN, "--set", "train_steps=20")


class Text(advice.AdviceTest):
    """data prepare and data train-tokenizer."""

    def prepare(self, text, *arguments, name="text.txt"):
        self.write(name, text)
        return ["data", "prepare", "--input", name, "--output", "out", *arguments]

    def test_an_output_that_exists(self):
        command = ["data", "prepare", "--input", "train.txt", "--output"]
        self.follow("exists already: choose another output or pass --overwrite", [*command, "train"],
                    [*command, "other"], [*command, "train", "--overwrite"])

    def test_a_folder_without_text(self):
        (self.folder / "empty").mkdir()
        command = ["data", "prepare", "--output", "out", "--input"]
        self.follow("holds no text: give another one", [*command, "empty"], [*command, "train.txt"])

    def test_a_file_that_is_not_there(self):
        command = ["data", "prepare", "--output", "out", "--input"]
        self.follow("no such file or folder: trian.txt; check the path", [*command, "trian.txt"], [*command, "train.txt"])

    def test_text_of_another_encoding(self):
        text = "Ruder über Wasser\n"
        self.refused_with("convert it, for example with iconv", *self.prepare(text.encode("latin-1")))
        self.trireme(*self.prepare(text.encode("latin-1").decode("latin-1")))

    def test_bytes_that_are_no_text(self):
        self.refused_with("give text files only", *self.prepare(b"a\0b"))
        self.trireme(*self.prepare("ab"))

    def test_a_key_of_another_name(self):
        command = self.prepare('{"content": "a text"}\n', name="text.jsonl")
        self.follow("choose the key of the text with --json-key", command, [*command, "--json-key", "content"])

    def test_end_of_documents_of_a_tokenizer_without_one(self):
        words = {chr(33 + i): i for i in range(61)}
        self.write("tokenizer.json", json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": words, "merges": []}}))
        command = self.prepare("ABC", "--tokenizer", "tokenizer.json")
        self.follow("leave out --append-eod", [*command, "--append-eod"], command)

    def test_sizes_of_a_vocabulary(self):
        command = ["data", "train-tokenizer", "--input", "train.txt", "--output", "out.model", "--vocab-size"]
        self.follow("give more than 259 (3 control ids and 256 bytes) and at most 16777216", [*command, "100"],
                    [*command, "290"])

    def test_a_tokenizer_that_is_none(self):
        (self.folder / "empty").mkdir()
        self.trireme("data", "train-tokenizer", "--input", "train.txt", "--output", "own.model", "--vocab-size", "290")
        command = self.prepare("the oar", "--overwrite", "--tokenizer")
        followed = [[*command, tokenizer] for tokenizer in ("byte", "own.model")]
        self.follow('give "byte", or the path of one of these', [*command, "empty"], *followed)
        self.follow('give "byte", the path of a tokenizer.json or of a SentencePiece model', [*command, "own"], *followed)


class Files(advice.AdviceTest):
    """What lies where a file is to be written, or read."""

    PREPARE = ("data", "prepare", "--input", "train.txt", "--overwrite", "--output")

    def test_a_file_that_another_process_writes(self):
        with open(self.folder / "out.bin.tmp", "wb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.follow("another process is writing it now; wait for it or choose another output directory",
                        [*self.PREPARE, "out"], [*self.PREPARE, "elsewhere/out"])
        self.trireme(*self.PREPARE, "out")

    def test_what_lies_in_the_way_of_a_file(self):
        place = self.folder / "out.bin.tmp"
        for make, remove, text in (
                (lambda: os.mkfifo(place), place.unlink, "it exists and is not a regular file; remove it"),
                (lambda: place.symlink_to("train.txt"), place.unlink, "it is a symbolic link: remove it"),
                ((self.folder / "out.bin").mkdir, (self.folder / "out.bin").rmdir,
                 "it is a directory: give the path of a file")):
            make()
            self.follow(text, [*self.PREPARE, "out"], [*self.PREPARE, "other"])
            remove()
            self.trireme(*self.PREPARE, "out")
            for path in self.folder.glob("out.*"):
                path.unlink()
        self.follow("a part of the path is a file: choose another directory", [*self.PREPARE, "train.txt/out"],
                    [*self.PREPARE, "folder/out"])
        show = ["schedule", "show", "--json"]
        self.follow("check the path", [*show, "missing/schedule.json"], [*show, "schedule.json"])

    def test_limits_of_the_process(self):
        if shutil.which("prlimit") is None:
            self.skipTest("no prlimit")
        self.refused_with("the file size limit of this process is reached: raise it (ulimit -f)", *self.PREPARE, "out",
                          prefix=["prlimit", "--fsize=4096"])
        self.trireme(*self.PREPARE, "out", prefix=["prlimit", "--fsize=1000000"])

    def test_token_files_of_another_format(self):
        index = self.folder / "train.idx"
        index.write_bytes(b"TNTIDX\0\0" + bytes(200))
        self.follow("it has DeepSpeed's old TNTIDX format; convert the text again with `trireme data prepare`",
                    [*PRETRAIN, "--validate"], [*self.PREPARE, "train"], [*PRETRAIN, "--validate"])


class Ranks(advice.AdviceTest):
    """What ranks are started with."""

    def variables(self, **changes):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **changes}

    def refused(self, advice_text, *settings, **changes):
        command = [*PRETRAIN, "--validate", *settings]
        self.refused_with(advice_text, *command, environment=self.variables(**changes))

    def started(self, environments):
        """A rank for each environment; all end well."""
        ranks = [self.start(*PRETRAIN, "--validate", environment={**environment, "RANK": str(rank)})
                 for rank, environment in enumerate(environments)]
        for process in ranks:
            _, stderr = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, stderr)

    def test_ranks_of_a_launcher(self):
        command = [*PRETRAIN, "--validate"]
        self.refused_with("leave --ranks out or make them equal", *command, "--ranks", 3, ranks=2)
        self.trireme(*command, ranks=2)
        self.trireme(*command, "--ranks", 2, ranks=2)

    def test_a_secret(self):
        self.refused(" characters; give it 16 to ", WORLD_SIZE="2", TRIREME_COMM_SECRET="short")
        self.started([self.variables(WORLD_SIZE="2", TRIREME_COMM_SECRET="0123456789abcdef" * 4)] * 2)

    def test_ranks_that_disagree(self):
        """Rank 0 waits for one that has the same variables."""
        common = self.variables(WORLD_SIZE="2", TRIREME_COMM_SECRET="0123456789abcdef" * 4)
        zero = self.start(*PRETRAIN, "--validate", environment={**common, "RANK": "0"})
        one = {**common, "RANK": "1"}
        for text, other in (("it has another WORLD_SIZE; give all ranks the same", {"WORLD_SIZE": "4"}),
                            ("give all ranks the same TRIREME_COMM_SECRET or TRIREME_COMM_SECRET_FILE",
                             {"TRIREME_COMM_SECRET": "another secret of a run"})):
            self.refused_with(text, *PRETRAIN, "--validate", environment={**one, **other})
        self.trireme(*PRETRAIN, "--validate", environment=one)
        _, stderr = zero.communicate(timeout=120)
        self.assertEqual(zero.returncode, 0, stderr)

    def test_where_rank_0_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            self.refused("; choose a free port", WORLD_SIZE="2", MASTER_PORT=str(other.getsockname()[1]))
        self.started([self.variables(WORLD_SIZE="2")] * 2)
        self.refused("set TRIREME_LISTEN_ADDRESS to one, or to * for all", WORLD_SIZE="2", MASTER_ADDR="203.0.113.1")
        for address in ("127.0.0.1", "*"):
            common = self.variables(WORLD_SIZE="2")
            self.started([{**common, "MASTER_ADDR": "203.0.113.1", "TRIREME_LISTEN_ADDRESS": address}, common])

    def test_a_backend_that_sees_other_ranks(self):
        self.refused("use the launcher of the MPI library this program is linked with (mpirun; Slurm: srun --mpi=pmix), or "
                     "comm.backend auto", "--set", "comm.backend=mpi", WORLD_SIZE="2")
        self.trireme(*PRETRAIN, "--validate", "--set", "comm.backend=mpi", ranks=2)
        self.started([self.variables(WORLD_SIZE="2")] * 2)
        self.refused_with("; use comm.backend auto", *PRETRAIN, "--validate", "--set", "comm.backend=tcp", ranks=2,
                          environment=self.variables())
        self.trireme(*PRETRAIN, "--validate", "--set", "comm.backend=auto", ranks=2)


class Runs(advice.AdviceTest):
    """What a run is refused with that finds something in its way."""

    def test_a_directory_that_another_run_has(self):
        endless = [*PRETRAIN, "--set", "train_steps=100000", "--set", "scheduler.type=constant"]
        first = self.start(*endless)
        while not (self.folder / "run/metrics.jsonl").exists():
            self.assertIsNone(first.poll())
            time.sleep(0.02)
        self.follow("wait until it ends, or use another output_dir", [*endless, "--resume", "auto"],
                    [*SHORT, "--set", "output_dir=other"])
        first.send_signal(signal.SIGUSR2)
        _, stderr = first.communicate(timeout=120)
        self.assertEqual(first.returncode, 3, stderr)
        self.trireme(*endless, "--resume", "auto", "--validate")

    def test_another_run(self):
        self.trireme(*SHORT)
        self.follow("holds another run; continue it with --resume auto, or choose another output_dir", SHORT,
                    [*SHORT, "--resume", "auto"], [*SHORT, "--set", "output_dir=other"])

    def test_records_that_are_another_runs(self):
        self.trireme(*SHORT)
        self.trireme(*SHORT, "--set", "seed=8", "--set", "output_dir=other")
        command = [*SHORT, "--resume", "run", "--set"]
        self.follow("holds the records of another run (seed 8 -> 7); use another output_dir",
                    [*command, "output_dir=other"], [*command, "output_dir=third"])
        (self.folder / "other/resolved_config.json").unlink()
        self.follow("so the run is unknown; use another output_dir", [*command, "output_dir=other"],
                    [*command, "output_dir=fourth"])

    def test_a_configuration_that_is_none(self):
        self.trireme(*SHORT)
        resolved = self.folder / "run/resolved_config.json"
        resolved.write_text(resolved.read_text().replace('"seed"', '"seeed"'))
        text = "is not a configuration of this version"
        self.follow([text, "; remove it or use another output_dir"], [*SHORT, "--resume", "auto"],
                    [*SHORT, "--set", "output_dir=other"])
        self.refused_with(text, *SHORT, "--resume", "auto")
        resolved.unlink()
        self.trireme(*SHORT, "--resume", "auto")

    def test_records_that_are_none(self):
        self.trireme(*SHORT)
        path = self.folder / "run/metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines[:3], "x\n", *lines[3:]]))
        self.refused_with("remove the line, or move the file away", "report", "run", "--output", "page.html")
        path.write_text("".join(lines))
        self.trireme("report", "run", "--output", "page.html")
        path.write_text("".join([*lines[:3], "x\n", *lines[3:]]))
        longer = [*PRETRAIN, "--set", "train_steps=25", "--set", "scheduler.params.decay_steps=20", "--resume", "auto"]
        self.refused_with("remove the line, or move the file away", *longer)
        path.rename(self.folder / "moved")
        self.trireme(*longer)

    def test_a_report_of_nothing(self):
        self.trireme(*SHORT)
        command = ["report", "--output", "page.html"]
        self.follow("give the output_dir of a run, or its metrics.jsonl", [*command, "run/checkpoints"], [*command, "run"],
                    [*command, "run/metrics.jsonl"])

    def test_checkpoints_that_are_not_whole(self):
        self.trireme(*SHORT)
        steps = sorted((self.folder / "run/checkpoints").glob("step-*"))
        self.assertEqual(len(steps), 2)
        kept = {}
        for step in steps:
            shard = next(step.glob("*.safetensors"))
            kept[shard] = shard.read_bytes()
            shard.write_bytes(kept[shard][:-7])
        auto = [*SHORT, "--resume", "auto"]
        text = "repair one, or move them away with their records, or start a new run in another output_dir"
        self.follow(text, auto, [*SHORT, "--set", "output_dir=other"])
        shutil.copytree(self.folder / "run", self.folder / "away")
        shutil.rmtree(self.folder / "run")
        self.trireme(*auto)
        shutil.rmtree(self.folder / "run")
        (self.folder / "away").rename(self.folder / "run")
        self.refused_with(text, *auto)
        shard = next(steps[0].glob("*.safetensors"))
        shard.write_bytes(kept[shard])
        self.trireme(*auto)

    def test_a_damaged_checkpoint_by_its_name(self):
        self.trireme(*SHORT)
        newest = self.folder / "run/checkpoints/step-00000020"
        shard = next(newest.glob("*.safetensors"))
        data = shard.read_bytes()
        for spoiled, text in ((data[:-7], "; use another checkpoint"),
                              (data[:-1] + bytes([data[-1] ^ 1]),
                               "; use another checkpoint, or the run directory, where the newest whole one is found")):
            shard.write_bytes(spoiled)
            self.follow(text, ["eval", newest], ["eval", newest.parent / "step-00000010"], ["eval", "run"])

    def test_checkpoints_that_are_elsewhere(self):
        """All three marks by which a run knows that it had some."""
        disk = ("--set", "checkpoint.save=disk")
        self.trireme(*SHORT, *disk)
        (self.folder / "disk").rename(self.folder / "unmounted")
        text = "put it back (is its file system mounted?), or start a new run in another output_dir"
        self.follow(text, [*SHORT, *disk, "--resume", "auto"],
                    [*SHORT, "--set", "checkpoint.save=new", "--set", "output_dir=other"])
        (self.folder / "run/last_checkpoint").unlink()
        self.refused_with(text, *SHORT, *disk, "--resume", "auto")
        (self.folder / "disk").mkdir(exist_ok=True)
        shutil.copy(self.folder / "unmounted/latest", self.folder / "disk/latest")
        self.refused_with(text, *SHORT, *disk, "--resume", "auto")
        shutil.rmtree(self.folder / "disk")
        (self.folder / "unmounted").rename(self.folder / "disk")
        self.trireme(*SHORT, *disk, "--resume", "auto")

    def test_a_path_without_checkpoints(self):
        self.trireme(*SHORT)
        (self.folder / "empty").mkdir()
        self.follow("give a run directory, its checkpoints/ folder or one step-NNNNNNNN folder", ["eval", "empty"],
                    ["eval", "run"], ["eval", "run/checkpoints"], ["eval", "run/checkpoints/step-00000010"])
        self.follow("give a step directory or the directory that holds `latest`", ["checkpoint", "verify", "empty"],
                    ["checkpoint", "verify", "run/checkpoints/step-00000010"], ["checkpoint", "verify", "run/checkpoints"])

    def test_a_checkpoint_of_a_later_format(self):
        self.trireme(*SHORT)
        path = self.folder / "run/checkpoints/step-00000020/manifest.json"
        version = re.search(r'"version": (\d+)', path.read_text())[0]
        manifest.edit(path, version, '"version": 99')
        self.refused_with("use the one that wrote it (", "checkpoint", "verify", path.parent)
        manifest.edit(path, '"version": 99', version)
        self.trireme("checkpoint", "verify", path.parent)

    def test_nothing_left_to_train(self):
        constant = ("--set", "scheduler.type=constant")
        self.trireme(*SHORT, *constant)
        _, stderr = self.trireme(*PRETRAIN, *constant, "--set", "train_steps=10", "--resume", "auto")
        self.assertIn("nothing is left to train; raise train_steps", stderr)
        _, stderr = self.trireme(*PRETRAIN, *constant, "--set", "train_steps=25", "--resume", "auto")
        self.assertEqual(self.records()[-1]["step"], 25)

    def test_resuming_a_third_party_model(self):
        self.trireme(*SHORT)
        self.trireme("checkpoint", "convert", "run", "weights", "--to", "hf")
        other = [*SHORT, "--set", "output_dir=other"]
        self.follow("has weights but no run to continue; set checkpoint.load to it", [*other, "--resume", "weights"],
                    [*other, "--set", "checkpoint.load=weights"])

    def test_a_head_of_its_own(self):
        """Weights of a model whose head is not the embedding, for one that is said to have no head."""
        untied = {**tiny_run.config()["model"], "tie_word_embeddings": False}
        self.configure(model=untied, output_dir="untied")
        self.trireme(*SHORT)
        self.trireme("checkpoint", "convert", "untied", "weights", "--to", "hf")
        self.configure(checkpoint={"load": "weights"})
        self.refused_with("a model with a head of its own: set tie_word_embeddings to false to keep it", *SHORT)
        self.configure(checkpoint={"load": "weights"}, model=untied)
        self.trireme(*SHORT)

    def test_rates_of_the_past(self):
        """Each way out of a changed schedule."""
        self.trireme(*SHORT, "--set", "scheduler.params.decay_steps=20")
        longer = [*PRETRAIN, "--resume", "auto", "--set", "scheduler.params.warmup_steps=6"]
        _, stderr = self.trireme(*longer, expect=2)
        self.assertIn("set scheduler.params.warmup_steps to 5 and scheduler.params.decay_steps to 20; or set them back, or "
                      "use another output_dir", stderr)
        self.trireme(*PRETRAIN, "--resume", "auto", "--set", "scheduler.params.warmup_steps=5", "--set",
                     "scheduler.params.decay_steps=20")
        self.trireme(*PRETRAIN, "--set", "scheduler.params.warmup_steps=6", "--set", "output_dir=other")

    def test_a_model_that_has_no_data(self):
        self.trireme(*SHORT)
        self.trireme("checkpoint", "convert", "run", "weights", "--to", "hf")
        self.follow("has no validation data of its own; give --data PREFIX", ["eval", "weights"],
                    ["eval", "weights", "--data", "valid"])

    def test_a_run_that_has_no_validation_data(self):
        self.trireme(*SHORT, "--set", "data.valid_data_path=null", "--set", "evaluation.eval_interval=0")
        self.follow("); give --data PREFIX", ["eval", "run"], ["eval", "run", "--data", "valid"])

    def test_layouts_of_a_model(self):
        """eval, generate and logits: the ranks that a layout needs."""
        self.trireme(*SHORT)
        generate = ["generate", "run", "--max-new-tokens", "2"]
        self.follow("does not divide the 3 ranks; give --ranks 2", [*generate, "--tensor-parallel", 2, "--ranks", 3],
                    [*generate, "--tensor-parallel", 2, "--ranks", 2])
        self.follow("start that many, or divide it further", [*generate, "--ranks", 2], generate,
                    [*generate, "--ranks", 2, "--tensor-parallel", 2])
        self.follow(": use p2p, or another --context-parallel",
                    ["eval", "run", "--ranks", 8, "--context-parallel", 8, "--cp-comm-type", "a2a"],
                    ["eval", "run", "--ranks", 2, "--context-parallel", 2, "--cp-comm-type", "a2a"],
                    ["eval", "run", "--ranks", 2, "--context-parallel", 2, "--cp-comm-type", "p2p"])
        self.write("ids", "[1, 2, 3]\n")
        logits = ["logits", "run", "--tokens", "ids", "--output", "out.safetensors", "--ranks", 2]
        self.follow("logits supports tensor-parallel ranks only: start as many ranks as --tensor-parallel",
                    [*logits, "--pipeline-parallel", 2], [*logits, "--tensor-parallel", 2])


# Name: the records that are refused, the advice, records that follow it. Of conversations unless they have other members.
ASKED = {"role": "user", "content": "the oar"}
SAID = {"role": "assistant", "content": "of a ship"}
RECORDS = {
    "no_content": ({"messages": [ASKED, {"role": "assistant"}]}, "give it one, or leave the record out",
                   {"messages": [ASKED, SAID]}),
    "content_of_a_number": ({"messages": [ASKED, {**SAID, "content": 5}]},
                            'give a string, or a list of parts, such as {"type": "text", "text": ...}',
                            {"messages": [ASKED, {**SAID, "content": "5"}]},
                            {"messages": [ASKED, {**SAID, "content": [{"type": "text", "text": "5"}]}]}),
    "role": ({"messages": [{**ASKED, "role": "rower"}, SAID]}, "roles that the chat template names; rename it",
             {"messages": [ASKED, SAID]}),
    "unread_tools": ({"messages": [ASKED, SAID], "tools": [{"type": "function", "function": {"name": "f"}}]},
                     "leave them out, or use a template that renders them", {"messages": [ASKED, SAID]}),
    "turn_without_value": ({"conversations": [{"from": "human"}, {"from": "gpt", "value": "b"}]},
                           'turn 1 of "conversations" has no "value"; give it one, or leave the record out',
                           {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}),
    "two_systems": ({"system": "s", "conversations": [{"from": "system", "value": "t"}, {"from": "human", "value": "a"},
                                                      {"from": "gpt", "value": "b"}]},
                    "begins with one too; keep one",
                    {"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
                    {"conversations": [{"from": "system", "value": "t"}, {"from": "human", "value": "a"},
                                       {"from": "gpt", "value": "b"}]}),
}
PAIRS = {
    "equal_answers": ({"prompt": "a", "chosen": "b", "rejected": "b"}, "leave the record out",
                      {"prompt": "a", "chosen": "b", "rejected": "c"}),
    "empty_answer": ({"prompt": "a", "chosen": "", "rejected": "b"}, "give a response, or leave the record out",
                     {"prompt": "a", "chosen": "c", "rejected": "b"}),
    "no_prompt": ({"chosen": "b", "rejected": "c"}, ': give the "prompt"', {"prompt": "a", "chosen": "b", "rejected": "c"}),
}
TEMPLATES = {
    "chat.jinja": "{{ m.role }} {{ m.content if m.content is string else m.content[0].text }}{{ eos_token }}",
    "forgets.jinja": "<{{ m.role }}>{% if loop.last %}{{ m.content }}{% endif %}",
    "ends.jinja": "{{ m.content }}{% if loop.last %} the end{% else %} and{% endif %}",
    "marked.jinja": "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
                    "{% else %}{{ m.content }}{% endif %}",
}
LORA = {"rank": 4}
NF4 = {"finetune": {"quantization": "nf4", "lora": LORA}}
TURNS = {"train_file": "turns.jsonl", "valid_file": "turns.jsonl"}
TUNE = {"train_file": "tune.jsonl", "valid_file": "tune.jsonl", "chat_template": "chat.jinja"}
# Name: changes that are refused, the advice, changes for each way out; "finetune" is merged into TUNE.
FINETUNE = {
    "bits_without_adapters": ({"finetune": {"quantization": "nf4"}}, "set finetune.lora.rank to train adapters, "
                              'or finetune.quantization to "none" to train all weights',
                              NF4, {"finetune": {"quantization": "none"}}),
    "load_in_4bit": ({"load_in_4bit": True}, 'write finetune.quantization: "nf4"', NF4),
    "quantized_frozen_weights": ({"zero_optimization": {"zero_quantized_nontrainable_weights": True}},
                                 'to store frozen weights in fewer bits, write finetune.quantization: "nf4"', NF4),
    "quantization_bit": ({"quantization_bit": 4}, 'write finetune.quantization: "nf4"', NF4),
    "held_out_twice": ({"finetune": {"val_size": 1}}, "finetune.valid_file is set too; keep one", {},
                       {"finetune": {"val_size": 1, "valid_file": None}}),
    "steps_and_epochs": ({"train_steps": 7, "finetune": {"num_train_epochs": 2}},
                         "set train_steps to auto, or num_train_epochs to null",
                         {"train_steps": "auto", "finetune": {"num_train_epochs": 2}},
                         {"train_steps": 7, "finetune": {"num_train_epochs": None}}),
    "nothing_held_out": ({"finetune": {"valid_file": None}, "evaluation": {"eval_interval": 1}},
                         "neither finetune.valid_file nor finetune.val_size is set; give one; or set "
                         "evaluation.eval_interval to 0",
                         {"evaluation": {"eval_interval": 1}},
                         {"finetune": {"valid_file": None, "val_size": 1}, "evaluation": {"eval_interval": 1}},
                         {"finetune": {"valid_file": None}, "evaluation": {"eval_interval": 0}}),
    "no_template": ({"finetune": {"chat_template": None}}, "has none: give finetune.chat_template", {}),
    "template_that_forgets": ({"finetune": {**TURNS, "chat_template": "forgets.jinja"}},
                              "cannot find where the chat template renders message 2: mark the assistant's text in the "
                              "template with {% generation %} and {% endgeneration %}",
                              {"finetune": {**TURNS, "chat_template": "marked.jinja"}}),
    "template_with_another_end": ({"finetune": {**TURNS, "chat_template": "ends.jinja"}},
                                  "differently when it is the last one: mark the assistant's text in the template with "
                                  "{% generation %} and {% endgeneration %} tags",
                                  {"finetune": {**TURNS, "chat_template": "marked.jinja"}}),
}


class Finetuning(advice.AdviceTest):
    def setUp(self):
        super().setUp()
        self.trireme("pretrain", "--config", "run.json", "--set", "train_steps=2", "--set", "output_dir=base", "--set",
                     "scheduler.params.warmup_steps=0")
        for name, template in TEMPLATES.items():
            self.write(name, "{% for m in messages %}" + template + "{% endfor %}")
        self.examples({"messages": [ASKED, SAID]})
        self.write("turns.jsonl", json.dumps({"messages": [ASKED, SAID, ASKED, SAID]}) + "\n")

    def examples(self, record, others=({"messages": [ASKED, SAID]},) * 3):
        self.write("tune.jsonl", "".join(json.dumps(one) + "\n" for one in (record, *others)))

    def document(self, finetune=None, **changes):
        whole = {"output_dir": "tuned", "checkpoint": {"load": "base"}, "train_batch_size": 2, "sequence_length": 32,
                 "train_steps": 2, "data": {"tokenizer": "byte"}, "cpu": {"threads_per_rank": 1}, **changes,
                 "finetune": {key: value for key, value in {**TUNE, **(finetune or {})}.items() if value is not None}}
        self.write("tune.json", json.dumps(whole))

    def finetune(self, *arguments, **options):
        return self.trireme("finetune", "--config", "tune.json", *arguments, **options)

    def test_configurations(self):
        for name, (refused, text, *ways_out) in FINETUNE.items():
            with self.subTest(name):
                self.document(**refused)
                self.assertIn(text, self.finetune("--validate", expect=2)[1])
                for followed in ways_out:
                    self.document(**followed)
                    self.finetune("--validate")

    def test_records(self):
        self.document()
        for name, (refused, text, *ways_out) in RECORDS.items():
            with self.subTest(name):
                self.examples(refused)
                self.assertIn(text, self.finetune("--validate", expect=2)[1])
                for record in ways_out:
                    self.examples(record)
                    self.finetune("--validate")
        self.write("tune.jsonl", json.dumps({"messages": [ASKED, SAID]}) + "\n")  # the record is left out
        self.finetune("--validate")

    def test_pairs(self):
        good = {"prompt": "a", "chosen": "d", "rejected": "e"}
        self.document(finetune={"method": "dpo", "chat_template": None})
        for name, (refused, text, *ways_out) in PAIRS.items():
            with self.subTest(name):
                self.examples(refused, (good,) * 3)
                self.assertIn(text, self.finetune("--validate", expect=2)[1])
                for record in ways_out:
                    self.examples(record, (good,) * 3)
                    self.finetune("--validate")
        self.examples(good, ())
        self.finetune("--validate")

    def test_bits_of_divided_weights(self):
        divided = {"parallel": {"tensor_model_parallel_size": 2}}
        of_nf4 = {"quantization": "nf4", "lora": LORA}
        self.document(finetune=of_nf4, **divided)
        self.assertIn('; lower parallel.tensor_model_parallel_size, or set finetune.quantization to "none"',
                      self.finetune("--validate", "--ranks", 2, expect=2)[1])
        self.document(finetune=of_nf4)
        self.finetune("--validate", "--ranks", 2)
        self.document(finetune={**of_nf4, "quantization": "none"}, **divided)
        self.finetune("--validate", "--ranks", 2)

    def test_bits_of_odd_weights(self):
        self.configure(model={**tiny_run.config()["model"], "intermediate_size": 63}, output_dir="odd", train_steps=2, scheduler={})
        self.pretrain()
        self.document(finetune={"quantization": "nf4", "lora": LORA}, checkpoint={"load": "odd"})
        self.assertIn('a byte holds two 4-bit codes; set finetune.quantization to "none"', self.finetune("--validate", expect=2)[1])
        self.document(finetune={"quantization": "none", "lora": LORA}, checkpoint={"load": "odd"})
        self.finetune("--validate")

    def test_a_template_that_writes_tools(self):
        self.examples(RECORDS["unread_tools"][0])
        self.write("tools.jinja", "{% if tools %}{{ tools | length }}{% endif %}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
        self.document(finetune={"chat_template": "tools.jinja"})
        self.finetune("--validate")

    def test_steps_of_a_configuration_alone(self):
        """config resolve counts the examples where it can."""
        self.document(train_steps="auto", finetune={"num_train_epochs": 2})
        out, _ = self.trireme("config", "resolve", "--config", "tune.json")
        self.assertEqual(json.loads(out)["train_steps"], 4)

    def test_other_examples(self):
        """Both kinds of training, and each way by which a checkpoint is found."""
        for lora in (None, LORA):
            with self.subTest(lora=lora):
                shutil.rmtree(self.folder / "tuned", ignore_errors=True)
                self.examples({"messages": [ASKED, SAID]})
                self.document(finetune={"lora": lora}, checkpoint={"load": "base", "save_interval": 1})
                self.finetune()
                changed = {"messages": [ASKED, {**SAID, "content": "of a sea"}]}
                self.examples(changed)
                text = "put the files, the tokenizer and the chat template back as they were, or "
                _, stderr = self.finetune("--resume", "auto", expect=2)
                self.assertIn(text + "use another output_dir\n", stderr)
                self.finetune("--set", f"output_dir=own{lora is None}")
                step = "tuned/checkpoints/step-00000001"
                _, stderr = self.finetune("--resume", step, expect=2)
                self.assertIn(text + f"start a new run with checkpoint.load {step} without --resume and another output_dir\n",
                              stderr)
                _, log = self.finetune("--set", f"checkpoint.load={step}", "--set", f"output_dir=from{lora is None}")
                self.assertRegex(log, "starting at step 0 with the weights of \\S*" + step)
                self.examples({"messages": [ASKED, SAID]})
                self.finetune("--resume", "auto")

    def test_evaluation(self):
        data = ["--data", "valid"]
        self.write("task.jsonl", json.dumps({"context": "the oar", "choices": [" of", " by"], "label": 0}) + "\n")
        task = ["--task", "task.jsonl"]
        self.document(finetune={"valid_file": None, "val_size": 1}, output_dir="part")
        self.finetune()
        self.examples({"messages": [ASKED, {**SAID, "content": "of a sea"}]})
        self.follow("so the held-out examples cannot be determined; give --data PREFIX", ["eval", "part"],
                    ["eval", "part", *data])
        self.document(finetune={"valid_file": None}, output_dir="none")
        self.finetune()
        self.follow("finetune.val_size); give --data PREFIX or --task FILE", ["eval", "none"], ["eval", "none", *data],
                    ["eval", "none", *task])
        self.examples({"prompt": "a", "chosen": "d", "rejected": "e"}, ())
        self.document(finetune={"method": "dpo", "chat_template": None}, output_dir="pairs")
        self.finetune()
        self.follow("whose loss eval does not compute; give --data PREFIX or --task FILE", ["eval", "pairs"],
                    ["eval", "pairs", *data], ["eval", "pairs", *task])

    def test_a_run_that_diverged(self):
        """Adapters and weights: the good checkpoint's weights are where a run with a lower rate starts."""
        for lora in (None, LORA):
            with self.subTest(lora=lora):
                of = f"of{lora is None}"
                self.document(finetune={"lora": lora}, output_dir=of, train_steps=4,
                              checkpoint={"load": "base", "save_interval": 1}, gradient_clipping=0,
                              scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 4}},
                              optimizer={"type": "SGD", "params": {"lr": 1e35}})
                self.finetune(expect=4)
                for path in (self.folder / of / "checkpoints").glob("step-0000000[23]"):
                    shutil.rmtree(path)
                _, stderr = self.finetune("--resume", f"{of}/checkpoints/step-00000004", expect=4)
                load = re.search(r"in another output_dir, and start a new run with checkpoint.load (\S+)\n", stderr)
                self.assertIsNotNone(load, stderr)
                self.finetune("--set", "optimizer.params.lr=1e-3", "--set", f"output_dir=lower{of}", "--set",
                              f"checkpoint.load={load[1]}")


if __name__ == "__main__":
    harness.main()
