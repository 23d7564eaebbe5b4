"""Writing held to a form: what does not fit, and what is no token."""

import pytest
import torch
from helpers.tiny_model import Pick, tiny

from curricle.designers.language.form import Form, _TokenSampler, write
from curricle.llm.generate.sampling import Sampler
from curricle.llm.models.loading import CausalOptions
from curricle.llm.models.model import CausalModel


@pytest.fixture(scope="module")
def causal():
    return CausalModel(CausalOptions(model=tiny(), device="cpu"), "test", 0)


@pytest.mark.parametrize("kind", ["static", "plain"])
def test_a_request_that_does_not_fit_is_given_up_and_the_others_are_written(causal, kind):
    form = Form(Pick.Setting.knobs(), causal.tokenizer, causal.ends)
    fits, over = [5] * (causal.context - form.longest(8)), [5] * (causal.context + 1)
    written = write(Sampler(causal, kind, 2), form, [[5, 6, 7], over, [5], [8], fits], 8, 1.0, 0)
    assert [writer.fault == "too_long" for writer in written] == [False, True, False, False, False]
    assert all(writer.done for writer in written)


def test_numbers_that_are_no_token_are_never_drawn(causal):
    """A model may have more of them than its tokenizer, and a tokenizer gaps between."""
    form = Form(Pick.Setting.knobs(), causal.tokenizer, causal.ends)
    form.vocabulary = frozenset(form.vocabulary) - {7}
    scores = torch.zeros(1, len(causal.tokenizer) + 9)
    banned = _TokenSampler(form, 1.0, torch.Generator()).banned((None, True), scores)
    assert banned[7] and banned[len(causal.tokenizer) :].all() and not banned[causal.ends[0]]
