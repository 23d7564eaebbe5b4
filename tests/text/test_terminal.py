"""What a terminal may show."""

import pytest

from curricle.text.terminal import clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with\ttabs\nand lines", "plain, with\ttabs\nand lines"),
        ("\u00fcn\u00efc\u00f6de \u4e16\u754c \u00b1", "\u00fcn\u00efc\u00f6de \u4e16\u754c \u00b1"),
        ("\x1b[31mred\x1b[0m", "\ufffd[31mred\ufffd[0m"),
        ("\x1b]52;c;cm0=\x07", "\ufffd]52;c;cm0=\ufffd"),
        ("\x9b2J\r\x08\x7f", "\ufffd2J\ufffd\ufffd\ufffd"),
        ("\u202egnp.exe\u2066\u2069\u200f", "\ufffdgnp.exe\ufffd\ufffd\ufffd"),
        ("a\u200bb\u2028c\ud800", "a\ufffdb\ufffdc\ufffd"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("a\u200db", "a\ufffdb"),
        (":warning: [red]a:b:c[/red]", ":warning: [red]a:b:c[/red]"),
    ],
)
def test_nothing_acts_on_a_terminal(text, shown):
    assert clean(text) == shown
