"""Pipeline schedules are drawn, written and refused before anything runs."""
import json
import xml.etree.ElementTree as xml

import harness


class ScheduleShow(harness.CommandTest):
    def test_timeline_and_table(self):
        text, _ = self.trireme("schedule", "show", "--schedule", "zb_h1", "--stages", 2, "--micro-batches", 3)
        self.assertIn("rank 0   F0--F1--....I0--W0--F2--I1--W1--I2--W2--\n", text)
        self.assertIn("rank 1   ....F0--I0--F1--I1--W0--F2--I2--W1--W2--\n", text)
        self.assertIn("bubble 10.0 % of the time, 11.1 % of the work; makespan 10", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_zero_bubble_is_stated_without_the_barrier(self):
        text, _ = self.trireme("schedule", "show", "-s", "zb_h2")
        self.assertIn("bubble 11.1 % of the time", text)
        self.assertIn("0.0 % when no rank waits for the others at the end", text)

    def test_pictures_and_files(self):
        text, _ = self.trireme("schedule", "show", "-s", "interleaved_1f1b", "--virtual", 2, "--svg", "a.svg",
                               "--json", "a.json")
        root = xml.parse(self.folder / "a.svg").getroot()
        work = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if "w " in rect.get("class")]
        self.assertEqual(len(work), 4 * 2 * 2 * 8)
        self.assertEqual(json.loads((self.folder / "a.json").read_text())["chunks"], 2)
        again, _ = self.trireme("schedule", "show", "--file", "a.json")
        self.assertEqual(again.splitlines()[1:], text.splitlines()[1:-2])

    def test_refused(self):
        self.assert_refused("schedule", "show", "-s", "interleaved_1f1b", "-m", 6,
                            says=["gradient_accumulation_steps (6)", "pipeline_model_parallel_size (4)"])
        self.assert_refused("schedule", "show", "-s", "zb_h3", says='"zb_h3" is not supported; supported: gpipe, 1f1b')
        self.assert_refused("schedule", "show", "--file", "a.json", "-p", 2, says="--file")
        self.assert_refused("schedule", "show", "--stages", 0, says="--stages")
        self.write("a.json", '{"version": 1, "stages": 1, "micro_batches": 1, "ranks": [["B0", "F0"]]}')
        self.assert_refused("schedule", "show", "--file", "a.json",
                            says="a.json: rank 0, instruction 0 (backward of chunk 0, micro-batch 0)")


if __name__ == "__main__":
    harness.main()
