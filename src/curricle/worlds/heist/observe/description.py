"""Text: what the player sees, in sentences that a language model can read.

`describe(s)` takes one record and says which ways are open, what is in sight and where, and what is held. It says no
more than the pixels show.
"""

from typing import Any, Final

from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.state import PAD
from curricle.worlds.heist.observe.symbols import in_sight

LONGEST: Final = 1500
"""More characters than any description has."""
_WAYS: Final = (("left", -1, 0), ("right", 1, 0), ("up", 0, 1), ("down", 0, -1))


def describe(s: Any) -> str:
    """Describe what one environment's player sees."""
    x = int(s["x"])
    y = int(s["y"])
    held = [r.COLOURS[number] for number in range(r.MOST_KEYS) if s["held"][number]]
    open_ways = [name for name, dx, dy in _WAYS if _is_open(s, x + dx, y + dy)]
    lines = [
        f"Step {s['step']} of {s['knobs']['length']}. You are in a maze of corridors.",
        f"Open ways: {', '.join(open_ways) or 'none'}.",
        f"You see: {'; '.join(_things(s, x, y)) or 'nothing'}.",
        f"Keys held: {', '.join(held) or 'none'}.",
    ]
    return "\n".join(lines)


def _is_open(s: Any, x: int, y: int) -> bool:
    """Whether the player may go to a cell: a door is open to who has its key."""
    inside = int(s["cells"][y + PAD, x + PAD])
    if r.FIRST_DOOR <= inside < r.FIRST_KEY:
        return bool(s["held"][inside - r.FIRST_DOOR])
    return inside != r.WALL


def _things(s: Any, x: int, y: int) -> list[str]:
    """What is in sight, the nearest thing first, with its offset."""
    found = list[tuple[int, str]]()
    for i in range(int(s["items"])):
        at_x = int(s["item_x"][i])
        at_y = int(s["item_y"][i])
        if s["gone"][i] or (s["knobs"]["centred"] and not in_sight(s, at_x, at_y)):
            continue
        dx = at_x - x
        dy = at_y - y
        colour = r.COLOURS[s["number"][i]]
        names = {r.DOOR: f"{colour} door (closed)", r.KEY: f"{colour} key", r.GEM: "the gem"}
        found.append((abs(dx) + abs(dy), f"{names[int(s['kind'][i])]} {_offset(dx, dy)}"))
    return [words for _, words in sorted(found)]


def _offset(dx: int, dy: int) -> str:
    """An offset in words, such as '2 left 1 up'."""
    words = list[str]()
    if dx:
        words.append(f"{abs(dx)} {'left' if dx < 0 else 'right'}")
    if dy:
        words.append(f"{abs(dy)} {'down' if dy < 0 else 'up'}")
    return " ".join(words) or "here"
