"""Every kind of damage to files of a run folder: a refusal in one line or the same bytes, and nothing is lost.

Each kind meets a few files here, other ones for each base; `make siege` goes through all of them many times.
"""

import random

import pytest
from helpers.damage import KINDS, faults, targets

from curricle.run import JOURNAL


@pytest.mark.parametrize("base", ["whole", "half"])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_refused_or_repaired(kind, base, bases, tmp_path):
    wrong = {}
    known = targets(bases[base])
    rng = random.Random(f"{kind} {base}")
    for target in {JOURNAL, *rng.sample(known, 4)}:
        if found := faults(bases[base], bases["whole"], tmp_path, kind, target, seed=1):
            wrong[target] = found
    assert not wrong


def test_bytes_flipped_at_random(bases, tmp_path):
    rng = random.Random(0)
    names = targets(bases["whole"])
    wrong = []
    for seed in range(20):
        target = rng.choice(names)
        wrong += faults(bases["whole"], bases["whole"], tmp_path, "flip_bit", target, seed)
    assert not wrong
