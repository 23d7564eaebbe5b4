"""Environment policies with a tiny model, and ways to decide what they write."""

from typing import Any

from helpers.sweep import Bench
from helpers.tiny_model import Pick, tiny

from curricle.designers.language import Language, LanguageOptions
from curricle.designers.language.form import Writer


class Told(Bench):
    def __init__(self, world):
        super().__init__(world)
        self.figures: Any = {}

    def report(self, figures):
        self.figures |= figures


def policy(**options):
    return Language(
        Pick.Setting, LanguageOptions(model=tiny(), device="cpu", **{"max_text_tokens": 12, **options}), seed=1
    )


def writing(designer, values):
    """A writer that has said some values; a text stands for a fault."""
    writer = Writer(designer.form, 8)
    writer.fault, writer.values = (values, {}) if isinstance(values, str) else ("", values)
    return writer


def script(designer, *settings):
    """Let the policy write given settings, in turn; a text stands for a fault."""
    todo = list(settings)

    def _write(asked, seed):
        writers = []
        for _ in asked:
            values = todo.pop(0)
            todo.append(values)
            whole = values if isinstance(values, str) else {"letter": "a", "most": 3, "note": "", **values}
            writers.append(writing(designer, whole))
        return writers

    designer._write = _write
