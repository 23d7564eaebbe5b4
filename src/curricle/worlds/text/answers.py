"""Answers in words: find the answer in what an agent says, and compare it with gold.

The likeness is in [0, 1]. It is the token F1 of `similarity.py`, or the cosine of the embeddings of an offline sentence
model. Such a model cannot tell numbers apart, so gold that is one word or contains a number is always compared by F1.
Tool calls are compared exactly instead (`matching.py`). Both read the response only.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from curricle.errors import ModelError, UsageError
from curricle.text.similarity import f1, single
from curricle.worlds.text.tools.calls import without_thoughts

LONGEST = 20_000


def final_answer(text: str) -> str:
    """What stands in the last pair of <answer> and </answer>; empty where there is none."""
    # thoughts first: in a text that was cut, the beginning of a thought that never ends may be missing
    before, closed, _ = without_thoughts(text)[-LONGEST:].rpartition("</answer>")
    _, opened, answer = before.rpartition("<answer>")
    return answer.strip() if closed and opened else ""


def likeness(kind: str, model: str = "") -> Callable[[str, str], float]:
    """The measure of a name: `words`, or `embedding` with the sentence model in a folder."""
    if kind == "words":
        return f1
    if not model:
        raise UsageError("likeness = 'embedding' needs sentence_model, the folder of a sentence model")
    return functools.partial(_cosine, model)


def _cosine(folder: str, answer: str, gold: str) -> float:
    if single(gold) or any(map(str.isdecimal, gold)):
        return f1(answer, gold)
    if not answer.strip() or answer.strip() == gold.strip():
        return float(bool(answer.strip()))  # the dot product would be rounded
    one = _embedding(folder, answer[:LONGEST])
    other = _embedding(folder, gold[:LONGEST])
    return min(1.0, max(0.0, float(one @ other)))


@functools.lru_cache(maxsize=4096)
def _embedding(folder: str, text: str) -> Any:
    """Mean of the last layer over the words, of length 1."""
    import torch

    tokenizer, model = _sentence_model(folder)
    with torch.inference_mode():
        words = tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
        mean = model(**words).last_hidden_state[0].double().mean(0)
    return mean / mean.norm().clamp_min(1e-12)


@functools.cache
def _sentence_model(folder: str) -> tuple[Any, Any]:
    """A tokenizer and an encoder from a folder; nothing is ever downloaded."""
    if not Path(folder).is_dir():
        raise UsageError(f"sentence_model = {folder!r} is not a folder; name the folder of a sentence model")
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError:
        raise UsageError("likeness = 'embedding' needs transformers: pip install 'curricle[text]'") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return tokenizer, AutoModel.from_pretrained(folder, local_files_only=True).eval()
    except (OSError, ValueError) as error:
        raise ModelError(f"sentence_model = {folder!r} cannot be loaded: {error}") from None
