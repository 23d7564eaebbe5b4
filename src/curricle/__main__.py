"""`python -m curricle` and the command `curricle`: signals are taken before anything else is imported."""

from curricle import signals


def main() -> None:
    """Run the command line."""
    signals.listen()
    from curricle.cli import main as run

    try:
        run()
    finally:
        signals.end()


if __name__ == "__main__":
    main()
