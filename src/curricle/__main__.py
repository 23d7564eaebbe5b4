"""`python -m curricle` and the command `curricle`: signals are taken before anything else is imported."""

import sys
import traceback
from types import TracebackType

from curricle import signals


def main() -> None:
    """Run the command line."""
    signals.listen()
    from curricle.cli import main as run

    sys.excepthook = _tell_bug
    try:
        run()
    finally:
        signals.end()


def _tell_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A traceback means a bug; the data in it may come from anybody."""
    from curricle.text.terminal import clean

    sys.stderr.write(clean("".join(traceback.format_exception(kind, error, trace))))


if __name__ == "__main__":
    main()
