"""A player that knows the map: it fetches the next key by the shortest way, and then takes the gem.

`next_action(s)` looks at one environment's record. It shows that levels can be solved, and takes parity checks and
tests to the end of episodes that a random player never reaches.
"""

from collections import deque
from typing import Any, Final

from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import PAD

_NEAR: Final = 0.1
"""Cells from the middle of a corridor that do not matter."""
_WAYS: Final = ((1, 0), (-1, 0), (0, 1), (0, -1))


def next_action(s: Any, lingers: bool = False) -> int:
    """The action towards the next key, or the gem; one that lingers leaves the gem alone."""
    target = _target(s, lingers)
    home = (int(s["x"]), int(s["y"]))
    cell = home if target is None else _first_cell(s, home, target)
    dx = _direction(cell[0] + 0.5 - float(s["x"]))
    dy = _direction(cell[1] + 0.5 - float(s["y"]))
    return 3 * (dx + 1) + dy + 1


def _target(s: Any, lingers: bool) -> tuple[int, int] | None:
    """The cell of the key with the lowest number, or of the gem where no key is left that opens anything."""
    best: tuple[int, int] | None = None
    lowest = r.MOST_KEYS
    for i in range(int(s["items"])):
        cell = (int(s["item_x"][i]), int(s["item_y"][i]))
        if s["kind"][i] == r.KEY and not s["gone"][i] and s["number"][i] < lowest:
            lowest = int(s["number"][i])
            best = cell
        if s["kind"][i] == r.GEM and lowest == r.MOST_KEYS and not lingers:
            best = cell
    return best


def _first_cell(s: Any, home: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """The first cell on the way from home to a target; home where there is no way."""
    came = {target: target}
    queue = deque([target])
    while queue:
        here = queue.popleft()
        if here == home:
            return came[here]
        for dx, dy in _WAYS:
            cell = (here[0] + dx, here[1] + dy)
            if cell not in came and _is_open(s, cell):
                came[cell] = here
                queue.append(cell)
    return home


def _is_open(s: Any, cell: tuple[int, int]) -> bool:
    """Whether the player can walk there: no wall, and no closed door without its key."""
    inside = s["cells"][cell[1] + PAD, cell[0] + PAD]
    if r.FIRST_DOOR <= inside < r.FIRST_KEY:
        return bool(s["held"][inside - r.FIRST_DOOR])
    return bool(inside != r.WALL)


def _direction(way: float) -> int:
    return (way > _NEAR) - (way < -_NEAR)
