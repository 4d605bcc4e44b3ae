"""Follows the advice of errors: a command is refused, one that does what the error says succeeds."""
import tiny_run


class AdviceTest(tiny_run.RunTest):
    def refused_with(self, advice, *command, expect=2, **options):
        """The error of a command, which gives this advice (a text or several)."""
        _, stderr = self.trireme(*command, expect=expect, **options)
        for text in [advice] if isinstance(advice, str) else advice:
            self.assertIn(text, stderr)
        return stderr

    def follow(self, advice, command, *followed, **options):
        """The command is refused with the advice; each of the others, which follow it, succeeds."""
        self.refused_with(advice, *command, **options)
        for other in followed:
            self.trireme(*other)
