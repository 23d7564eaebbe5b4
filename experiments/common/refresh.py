"""Make the tables of all pages again from the data.

    python experiments/common/refresh.py

A generated table stands between two comments. The first one names the command that prints it:

    <!-- made by: python experiments/ppo-crafter/study.py table -->
    <!-- end -->

The commands run in the root of the repository. A test compares every table with what its command prints.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?<=<!-- made by: python )(.+?)( -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """All pages that may hold a generated table."""
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("experiments/**/*.md"))]


def blocks(page: Path) -> Iterator[tuple[list[str], str]]:
    """The words of each command of a page, and the table that stands there."""
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield shlex.split(found[1]), found[3].strip()


def printed(block: re.Match[str]) -> str:
    """A block as it should be."""
    command = [sys.executable, *shlex.split(block[1])]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return f"{block[1]}{block[2]}{done.stdout.strip()}\n"


def main() -> None:
    """Write every page whose tables have changed."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        fresh = BLOCK.sub(printed, text)
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} has changed")


if __name__ == "__main__":
    main()
