"""Text: what the player sees, in sentences that a language model can read.

`describe(s)` takes one record and names the nearest of everything in the 9 x 7 view with its offset, what is ahead,
vitals, inventory and what was achieved. It says no more than the pixels show.
"""

from typing import Any, Final

from curricle.worlds.crafter.game import rules as r

LONGEST: Final = 2000
"""More characters than any description has."""
_WAYS: Final = {(-1, 0): "left", (1, 0): "right", (0, -1): "up", (0, 1): "down"}


def describe(s: Any) -> str:
    """Describe what one environment's player sees."""
    facing = (int(s["face_x"]), int(s["face_y"]))
    ahead = _thing(s, int(s["x"][0]) + facing[0], int(s["y"][0]) + facing[1])
    state = "asleep" if s["sleeping"] else "awake"
    light = "day" if s["daylight"] >= 0.5 else "night"
    vitals = ", ".join(f"{r.ITEMS[i]} {s['inventory'][i]}" for i in range(r.ENERGY + 1))
    held = [f"{_plain(r.ITEMS[i])} {s['inventory'][i]}" for i in range(r.SAPLING, len(r.ITEMS)) if s["inventory"][i]]
    done = [name for name, yes in zip(r.ACHIEVEMENTS, s["unlocked"] | s["knobs"]["done"], strict=True) if yes]
    lines = [
        f"Step {s['step']}, {light}. You are {state}, facing {_WAYS[facing]}: {ahead}.",
        f"You see: {'; '.join(_nearest(s)) or 'nothing'}.",
        f"Vitals: {vitals}.",
        f"Inventory: {', '.join(held) or 'empty'}.",
        f"Achieved: {', '.join(done) or 'nothing yet'}.",
    ]
    return "\n".join(lines)


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _thing(s: Any, x: int, y: int) -> str:
    """Name what is on a cell: the object there, or the material."""
    if not (0 <= x < s["area"] and 0 <= y < s["area"]):
        return "the edge of the world"
    who = int(s["who"][x, y])
    if not who:
        return r.MATERIALS[s["material"][x, y]]
    kind = s["kind"][who - 1]
    return "ripe plant" if kind == r.PLANT and s["grown"][who - 1] > r.RIPE_AFTER else r.KINDS[kind]


def _nearest(s: Any) -> list[str]:
    """The nearest of each thing in view, the closest thing first."""
    found: dict[str, tuple[int, int, int]] = {}
    for dx in range(-(r.VIEW_X // 2), r.VIEW_X // 2 + 1):
        for dy in range(-(r.VIEW_Y // 2), r.VIEW_Y // 2 + 1):
            if dx or dy:
                thing = _thing(s, int(s["x"][0]) + dx, int(s["y"][0]) + dy)
                found[thing] = min(found.get(thing, (99, 0, 0)), (abs(dx) + abs(dy), dx, dy))
    return [f"{thing} {_offset(dx, dy)}" for thing, (_, dx, dy) in sorted(found.items(), key=lambda item: item[1])]


def _offset(dx: int, dy: int) -> str:
    """An offset in words, such as '2 left 1 up'."""
    parts = [f"{abs(dx)} {'left' if dx < 0 else 'right'}"] if dx else []
    parts += [f"{abs(dy)} {'up' if dy < 0 else 'down'}"] if dy else []
    return " ".join(parts)
