"""Client: a designer that works on proposals of another one, its maker."""

from pathlib import Path

from curricle.designer import Designer, OfOptions
from curricle.registry import named
from curricle.setting import Setting

MAKER = "of"


class Client(Designer):
    """Has a maker, asks whether it is ready, and saves what it saves: what it dropped, for instance, and why."""

    Options = OfOptions
    options: OfOptions

    def __init__(self, setting: type[Setting], options: OfOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        self.maker = named(self.options, "of", setting, seed)

    def ready(self) -> None:
        """Ask whether the other one is."""
        self.maker.ready()

    def save(self, folder: Path) -> None:
        """Write the maker's state into a folder of its own, if it has any."""
        (folder / MAKER).mkdir()
        self.maker.save(folder / MAKER)
        if not any((folder / MAKER).iterdir()):
            (folder / MAKER).rmdir()

    def load(self, folder: Path) -> None:
        """Let the maker take up its state."""
        if (folder / MAKER).is_dir():
            self.maker.load(folder / MAKER)
