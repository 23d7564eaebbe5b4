"""Checkpoints: arrays as safetensors, the rest as JSON. Loading one executes nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import JsonValue

from curricle.errors import RunDamaged

ARRAYS = "arrays.safetensors"
STATE = "state.json"


def write(folder: Path, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, JsonValue]) -> None:
    """Write a checkpoint; equal content gives equal bytes."""
    packed = {name: np.asarray(array, order="C") for name, array in sorted(arrays.items())}
    (folder / ARRAYS).write_bytes(safetensors.numpy.save(packed))
    (folder / STATE).write_text(json.dumps(state, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def read(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read a checkpoint back: arrays and state."""
    try:
        arrays = safetensors.numpy.load((folder / ARRAYS).read_bytes())
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        what = " ".join(str(error).split())[:200]
        raise RunDamaged(f"checkpoint {folder} cannot be read: {what}") from error
    if not isinstance(state, dict):
        raise RunDamaged(f"checkpoint {folder} cannot be read: {STATE} holds no object")
    return arrays, state
