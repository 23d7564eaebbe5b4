"""One step and one reset of an environment's record, exact to the last bit of every float32.

`reset(s, w)` begins the next episode; `step(s, action)` returns the reward. A player moves in at least four small
steps, along one axis after the other. Walls stop it; a closed door pushes it out, and where that pushes it into another
door, that one pushes as well. Sums are written with the types and in the order of Procgen's C++, for rounding is part
of the results.
"""

from typing import Any

import numpy as np

from curricle.worlds.heist.engine.compile import kernel
from curricle.worlds.heist.game import rules as r
from curricle.worlds.heist.game.rng import draw, seed_stream
from curricle.worlds.heist.game.state import PAD
from curricle.worlds.heist.levels.generate import generate


@kernel
def reset(s: Any, w: Any) -> None:
    """Begin the next episode."""
    s.knobs = s.upcoming
    if s.episode == 0:
        seed_stream(s.levels, s.seed)
    s.episode += 1
    s.level = s.first_level + draw(s.levels, s.level_count)
    s.step = 0
    s.vx = np.float32(0)
    s.vy = np.float32(0)
    s.facing = r.REST
    s.skills[:] = 0
    generate(s, w)
    for number in range(r.MOST_KEYS):
        s.held[number] = number < min(s.knobs.held, s.keys)


@kernel
def _is_in_wall(s: Any, x: np.float32, y: np.float32) -> bool:
    """Whether one of the player's corners is in a wall."""
    left = x - r.CORNER
    low = y - r.CORNER
    if left < 0 or low < 0:
        return True
    column = int(left) + PAD
    row = int(low) + PAD
    right = int(x + r.CORNER) + PAD
    high = int(y + r.CORNER) + PAD
    if s.cells[row, column] == r.WALL:
        return True
    if right != column and s.cells[row, right] == r.WALL:
        return True
    if high == row:
        return False
    return bool(s.cells[high, column] == r.WALL or s.cells[high, right] == r.WALL)


@kernel
def _walls_stop(s: Any, vx: np.float32, vy: np.float32) -> bool:
    """Move until a wall; returns whether there is one."""
    x = s.x + vx
    y = s.y + vy
    blocked = _is_in_wall(s, x, y)
    if blocked:
        if vx != 0:
            x = np.floor(x + r.RADIUS) - r.RADIUS if vx > 0 else np.ceil(x - r.RADIUS) + r.RADIUS
        else:
            y = np.floor(y + r.RADIUS) - r.RADIUS if vy > 0 else np.ceil(y - r.RADIUS) + r.RADIUS
    s.x = x
    s.y = y
    return blocked


@kernel
def _way_out(door: np.float32, player: np.float32) -> np.float32:
    """How far a door pushes a player along one axis."""
    side = np.sign(np.float64(player - door))
    apart = np.float64(r.DOOR_RADIUS + r.RADIUS)
    return np.float32(np.float64(door) + side * apart - np.float64(player))


@kernel
def _is_in_door(s: Any, i: int) -> bool:
    """Whether the player is inside of thing i, a closed door without its key."""
    if s.kind[i] != r.DOOR or s.gone[i] or s.held[s.number[i]]:
        return False
    near = (r.RADIUS + r.DOOR_RADIUS) + r.MARGIN
    return bool(abs(s.x - s.item_x[i]) < near and abs(s.y - s.item_y[i]) < near)


@kernel
def _stop(s: Any, across: bool) -> None:
    """End the player's motion along x, or along y."""
    if across:
        s.vx = np.float32(0)
    else:
        s.vy = np.float32(0)


@kernel
def _push_out(s: Any, across: bool) -> None:
    """Let doors push the player out, the last one first.

    In Procgen a push is a move of its own, after which all doors may push again, and so on; here the doors that are
    still to be asked are kept in a list, one entry for each push within a push.
    """
    waiting = np.empty(r.DEEPEST + 1, np.int64)
    along_x = np.empty(r.DEEPEST + 1, np.bool_)
    waiting[0] = s.items
    along_x[0] = across
    depth = 0
    while depth >= 0:
        waiting[depth] -= 1
        i = waiting[depth]
        if i < 0:
            depth -= 1
            if depth >= 0:
                _stop(s, along_x[depth])
        elif _is_in_door(s, i):
            if depth == r.DEEPEST:
                _stop(s, along_x[depth])
                continue
            vx = np.float32(0)
            vy = np.float32(0)
            if along_x[depth]:
                vx = _way_out(s.item_x[i], s.x)
            else:
                vy = _way_out(s.item_y[i], s.y)
            _walls_stop(s, vx, vy)
            depth += 1
            waiting[depth] = s.items
            along_x[depth] = vx != 0


@kernel
def _is_near_door(s: Any) -> bool:
    """Whether a closed door without its key is so near that this step may meet it."""
    for i in range(s.items):
        if s.kind[i] != r.DOOR or s.gone[i] or s.held[s.number[i]]:
            continue
        if abs(s.x - s.item_x[i]) < r.NEAR and abs(s.y - s.item_y[i]) < r.NEAR:
            return True
    return False


@kernel
def _move(s: Any, vx: np.float32, vy: np.float32, near_door: bool) -> bool:
    """Move along one axis; returns whether something is in the way."""
    blocked = _walls_stop(s, vx, vy)
    if near_door:
        for i in range(s.items):
            if _is_in_door(s, i):
                _push_out(s, vx != 0)
                return True
    return blocked


@kernel
def _x_is_first(s: Any, dx: int, dy: int) -> bool:
    """Whether a player moves along x first: its last push decides, else its velocity, else the step's random bit."""
    if dy != 0:
        return False
    if dx != 0:
        return True
    difference = abs(s.vx) - abs(s.vy)
    if difference == 0:
        tie = s.step - 1
        return bool((s.ties[tie // 8] >> (tie % 8)) & 1 == 0)
    return bool(difference > 0)


@kernel
def _walk(s: Any, dx: int, dy: int) -> None:
    """Move by the velocity, in small steps; what is blocked of them is lost to the velocity."""
    parts = max(4, int(4 * np.sqrt(s.vx * s.vx + s.vy * s.vy)))
    part = np.float32(1.0 / parts)
    x_first = _x_is_first(s, dx, dy)
    near_door = _is_near_door(s)
    none = np.float32(0)
    free_x = 0
    free_y = 0
    for _ in range(parts):
        if x_first:
            blocked_x = _move(s, s.vx * part, none, near_door)
            blocked_y = _move(s, none, s.vy * part, near_door)
        else:
            blocked_y = _move(s, none, s.vy * part, near_door)
            blocked_x = _move(s, s.vx * part, none, near_door)
        free_x += not blocked_x
        free_y += not blocked_y
        if blocked_x and blocked_y:
            break
    s.vx *= np.float32(free_x) / np.float32(parts)
    s.vy *= np.float32(free_y) / np.float32(parts)


@kernel
def _push(velocity: np.float32, push: np.float32, direction: int) -> np.float32:
    """The velocity after a push and the drag."""
    pushed = r.KEPT * velocity + push * np.float32(direction)
    return np.float32(r.DRAG * np.float64(pushed))


@kernel
def _touch(s: Any) -> float:
    """Take keys, open doors and reach the gem where the player touches them; returns the reward."""
    reward = 0.0
    for i in range(s.items - 1, -1, -1):
        if s.gone[i]:
            continue
        width = s.half_width[i] + r.RADIUS
        height = s.half_height[i] + r.RADIUS
        if not (abs(s.item_x[i] - s.x) < width and abs(s.item_y[i] - s.y) < height):
            continue
        number = s.number[i]
        if s.kind[i] == r.GEM:
            reward = r.REWARD
            s.skills[r.REACH] = 1
        elif s.kind[i] == r.KEY:
            s.held[number] = 1
            s.skills[r.COLLECT + number] = 1
            _clear(s, i)
        elif s.held[number]:
            s.skills[r.OPEN + number] = 1
            _clear(s, i)
    return reward


@kernel
def _clear(s: Any, i: int) -> None:
    """Take a thing away."""
    s.gone[i] = 1
    s.cells[int(s.item_y[i]) + PAD, int(s.item_x[i]) + PAD] = r.FREE


@kernel
def step(s: Any, action: int) -> float:
    """Play one step; returns the reward."""
    s.step += 1
    move = action if action < 9 else r.REST
    dx = move // 3 - 1
    dy = move % 3 - 1
    s.vx = _push(s.vx, s.knobs.push, dx)
    s.vy = _push(s.vy, s.knobs.push, dy)
    _walk(s, dx, dy)
    if move != r.REST:
        s.facing = move
    return _touch(s)


@kernel
def is_solved(s: Any) -> bool:
    """Whether the gem is reached."""
    return bool(s.skills[r.REACH])


@kernel
def is_over(s: Any) -> bool:
    """Whether the episode has reached its length."""
    return s.step >= s.knobs.length
