"""Copies, near copies and shared words."""

import random

import pytest

from curricle.text.similarity import Copies, distinct, f1, grams, jaccard, overlap, single, terms, words


def test_words_are_case_and_width_blind_and_keep_numbers_whole():
    assert words("Pay 1,250.50 to \uff21\uff2e\uff21, now!") == ["pay", "1,250.50", "to", "ana", "now"]
    assert words("") == [] and words("!?") == []


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        ("the red house", "the red house", 1.0),
        ("The RED house!", "the red house", 1.0),
        ("red", "the red house", 0.5),  # precision 1, recall 1/3
        ("red red red red", "red house", 2 / 6),  # a word counts as often as gold has it
        ("blue", "red", 0.0),
        ("", "red", 0.0),
        ("", "", 0.0),
    ],
)
def test_f1_by_hand(answer, gold, value):
    assert f1(answer, gold) == pytest.approx(value)


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        *(
            (said, gold, 1.0)
            for gold, all_ in {
                "2860": "2,860|2860.00|$2860|$ 2,860.0|+2860|2860.",
                "1": "1.0|01|1.",
                "3.5": "3.50|03.5|\uff13.5",
                "-5": "-5.0|-$5|$-5|(-5)|\u22125",
                "0.5": ".5|0.50",
                "1/2": "\u00bd|1/2.",
                "3 and -4.0": "3 and -4|3.0 and -4",
                "2019-2020": "2019\u20132020|2019\u20112020|2019 - 2020|2019 \u2013 2020",
                "2024-01-12": "2024\u201101\u201112",
                "10-12 people": "10\u201312 people",
                "-40 degrees": "\u201340 degrees",
                "1/2 ": "1 / 2|1 \u2044 2",
                "1, 2, 3": "1,2,3|1, 2,3",
                "3:30 pm": "3:30pm|3 : 30pm",
                "3:30pm": "3:30 pm",
                "5 km": "5km|_5 km_",
                "5km": "5 km",
                "Paris": "_Paris_|-Paris|Paris--|- Paris|__Paris__",
                "12": "12-|_12_",
                "-12": "_-12_",
                "C++": "_C++_",
                "1,000-2,000": "1000-2000",
                "1e3": "1e+3",
            }.items()
            for said in all_.split("|")
        ),
        *(
            (said, gold, 0.0)
            for said, gold in [
                ("5", "-5"),
                ("1/2", "1 2"),
                ("1 2", "1/2"),
                ("C", "C++"),
                ("C++", "C"),
                ("C#", "C"),
                ("A", "A-"),
                ("3 30", "3:30"),
                ("3:30", "3 30"),
                ("--5", "5"),
                ("28.60", "2860"),
                ("2860 or 2861", "2860"),
                ("1,2,3", "123"),
                ("3 4", "3 -4"),
                ("<5", "5"),
                ("", "5"),
                ("5-3", "5 -3"),
                ("1e+3", "1e-3"),
                ("42", "0042"),
                ("0042", "42"),
                ("7", "007"),
                ("17 km", "5 km"),
                ("at 4:30 pm", "at 3:30 pm"),
                ("5", "5km"),
                ("3", "3D"),
                ("AB+", "AB-"),
                ("12+", "12"),
                ("1 23", "1,2,3"),
                ("Monday Tuesday Wednesday Thursday Friday", "Monday"),
                ("Monday or Friday", "Monday"),
            ]
        ),
    ],
)
def test_numbers_and_single_words_are_compared_exactly(answer, gold, value):
    assert f1(answer, gold) == value


def test_terms_of_any_text_are_found_in_time():
    assert terms("C++, not C: 3:30 on 2024-01-12, x-5, v1.10 and well-known") == [
        *("c++", "not", "c", "3:30", "on", "2024-01-12", "x", "5", "v1.10", "and", "well", "known")
    ]
    assert terms("-0.0") == terms("0") and terms("9" * 400) != terms("9" * 399 + "8")
    assert single("2,860.50") and single("5kg") and not any(map(single, ("5 kg", "3, -4", "", "?")))
    for odd in (
        "-",
        "+-",
        "1.",
        "a",
        "1",
        "a#",
        ",111",
        "1,111",
        "$ ",
        "-a",
        "_",
        "a_",
        "1 ",
        "1 - ",
        "1e",
        "1e-",
        "a-",
    ):
        assert f1(odd * 100_000, "5 apples") < 0.5


def test_a_word_that_underscores_join_is_one():
    assert terms("_a_ __b__ c__d ___") == ["a", "b", "c__d"]
    assert f1("_" * 100_000 + "a" + "_" * 100_000 + "b", "eight cats") == 0


def test_overlap_is_soft_where_f1_is_not():
    assert overlap("yes or no", "yes") == 0.5 and f1("yes or no", "yes") == 0
    assert overlap("the red house", "red house") == f1("the red house", "red house") == 0.8


def test_jaccard_by_hand():
    assert jaccard("a b c d", "a b c d") == 1
    assert jaccard("a b c d", "a b c e") == pytest.approx(1 / 3)  # abc of abc, bcd, bce
    assert jaccard("a b", "a b") == 1 and jaccard("a b", "a c") == 0
    assert grams("a b") == {("a", "b")}


def test_copies_are_found_among_many():
    copies = Copies(near=0.7, texts=[f"book a table for {i} in the city of number {i}" for i in range(300)])
    assert "a copy" in copies.refusal("Book a table for 7 in the city of number 7!")
    assert copies.refusal("please book a table for 7 in the city of number 7").startswith("a near copy (0.9")
    assert copies.refusal("transfer ten from savings to rent") == ""
    copies.add("transfer ten from savings to rent")
    assert copies.refusal("transfer ten from savings to rent")


def test_nearest_is_the_exact_maximum():
    texts = ["a b c d e", "a b c d f", "x y z a b", "q"]
    copies = Copies(texts=texts)
    for text in ("a b c d e f", "x y z", "q", "nothing like it"):
        best = max(jaccard(text, other) for other in texts)
        assert copies.nearest(text)[0] == pytest.approx(best)


def test_nothing_above_the_threshold_is_overlooked():
    """Most texts share their beginning, so that the rare runs have to find the copies."""
    rng = random.Random(0)
    texts = [" ".join(["please", "do", "this", "for", "me", *rng.choices("abcdefgh", k=9)]) for _ in range(200)]
    for near in (0.3, 0.5, 0.8, 1.0):
        copies = Copies(near, texts=texts[:150])
        for text in [*texts[150:], *(t.replace("a", "b", 1) for t in texts[:50])]:
            best = max(jaccard(text, other) for other in texts[:150])
            assert copies.nearest(text, near)[0] == pytest.approx(best if best >= near else 0.0)
            assert bool(copies.refusal(text)) == (best >= near)


def test_distinct_counts_runs_of_words():
    assert distinct(["a b c", "a b c"]) == pytest.approx(0.5)
    assert distinct(["a b c", "d e f"]) == 1
    assert distinct([]) == distinct(["word"]) == 0
