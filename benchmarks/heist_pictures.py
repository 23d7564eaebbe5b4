"""How far our frames of Heist are from Procgen's: the mean difference of a byte, 0 to 255, over recorded frames.

    python benchmarks/heist_pictures.py --pictures own
    python benchmarks/heist_pictures.py --pictures procgen --data ../shared/data/heist

`--data` is a folder with `frames.npz` and `traces.jsonl.xz`. The recorded frames were drawn with Qt 5.9.
"""

import argparse
import json
import lzma
from pathlib import Path

import numpy as np

from curricle.worlds.heist.observe.fetch import stock
from curricle.worlds.heist.observe.frames import draw
from curricle.worlds.heist.observe.images import own_pictures, pictures_from
from curricle.worlds.heist.trace import trace_player


def main(pictures: str, data: Path) -> None:
    """Draw every recorded frame again and print the means by mode."""
    drawn_with = own_pictures() if pictures == "own" else pictures_from(stock())
    actions = {}
    with lzma.open(data / "traces.jsonl.xz", "rt") as file:
        for line in file:
            level = json.loads(line)
            actions[level["mode"], level["level_seed"]] = level["actions"]
    recorded = np.load(data / "frames.npz")
    found: dict[str, list[float]] = {}
    columns = [recorded[name] for name in ("frames", "mode", "level_seed", "step")]
    for frame, mode, seed, step in zip(*columns, strict=True):
        player = trace_player(str(mode))  # type: ignore[arg-type]
        player.reset(int(seed))
        for action in actions[str(mode), int(seed)][:step]:
            player.step(action)
        ours = np.zeros_like(frame)
        draw(player.state, ours, drawn_with, False)
        found.setdefault(str(mode), []).append(float(np.abs(ours.astype(int) - frame).mean()))
    for mode, values in found.items():
        equal = sum(value == 0 for value in values)
        print(f"{mode}: mean difference {np.mean(values):.4f}, {equal} of {len(values)} frames equal")
    print(f"all: mean difference {np.mean([value for values in found.values() for value in values]):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", choices=["own", "procgen"], default="own")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "heist")
    options = parser.parse_args()
    main(options.pictures, options.data)
