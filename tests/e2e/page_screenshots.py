"""Takes the pictures of the page that docs/guide/serving.md shows: page_screenshots.py FOLDER, with TRIREME as for the tests."""
import sys
import unittest
from pathlib import Path

import harness
import test_page
import tiny_run

SIZES = {"page": (1280, 760, False, False), "page-dark": (1280, 760, False, True), "page-phone": (390, 760, True, False)}


class Screenshots(test_page.Page):
    def setUp(self):
        """A model that can spell what it has read, also in long answers."""
        harness.CommandTest.setUp(self)
        for name in ("train", "valid"):
            self.write(f"{name}.txt", tiny_run.text(20000, 1))
            self.trireme("data", "prepare", "--input", f"{name}.txt", "--output", name)
        model = {**tiny_run.config()["model"], "max_position_embeddings": 4096, "hidden_size": 64, "intermediate_size": 128}
        self.configure(model=model, train_steps=400, sequence_length=512, train_batch_size=2, checkpoint={},
                       evaluation={"eval_iters": 0})
        self.pretrain(timeout=600)

    def test_them(self):
        page = self.open("--chat-template", "chat.jinja")
        self.set(page, temperature=0.3, max_tokens=110, seed=5)
        self.say(page, "the oar of a ship with three ranks")
        self.say(page, "over a quiet sea")
        page.wait("document.getElementById('g-rate').textContent !== '–'")
        self.set(page, max_tokens=3200)
        page.type("#input", "rowing as one")
        page.press_enter()
        page.wait("poll().then(() => document.getElementById('g-running').textContent === '1')")
        for name, (width, height, phone, dark) in SIZES.items():
            page.show(width, height, phone=phone, dark=dark)
            page.run(f"document.getElementById('settings').open = {'false' if phone else 'true'}; "
                     "document.getElementById('log').scrollTop = 0")
            page.wait(f"innerWidth === {width}")
            (Path(sys.argv[1]) / f"{name}.png").write_bytes(page.screenshot())
        self.stop(self.server)


if __name__ == "__main__":
    unittest.main(argv=["page_screenshots", "Screenshots.test_them"])
