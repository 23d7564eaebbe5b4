"""`python -m curricle` is the command line."""

from curricle.cli import main

main()
