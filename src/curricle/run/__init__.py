"""The folder of one experiment, and the only package that knows names on disk.

    config.toml          resolved config; itself runnable, written first: it makes a folder a run
    journal.jsonl        one line a finished step: the marker, written last
    designs.jsonl  outcomes.jsonl  scores.jsonl  metrics.jsonl      records, one a line, in the order they were made
    exchanges.jsonl      every exchange with a language model, kept the moment it is over: also the ledger of its cost
    by_hand/             prompts that a person is to answer, and the answers
    checkpoints/         agent and designer as of the last marker (safetensors and JSON)
    lost+found/          what was cut off when the run was resumed; nothing reads it
    environment.jsonl  timings.jsonl  tensorboard/      when, where and how fast; not part of the result

`folder.py` is the loop's side, `reading.py` is for everyone else, `checking.py` says whether a folder is whole,
`trust.py` which code its config may name.
"""

from curricle.run.checking import Fingerprint, Marker, read_checkpoint, read_steps, verify
from curricle.run.folder import Run, Saved, take_up
from curricle.run.names import (
    BY_HAND,
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    EXCHANGES,
    FILES,
    JOURNAL,
    LOCK,
    LOST,
    METRICS,
    TENSORBOARD,
    TIMINGS,
    Step,
)
from curricle.run.reading import (
    is_run,
    parse_config,
    read_config,
    read_environment,
    read_exchanges,
    read_metrics,
    read_records,
    read_timings,
    shown,
)

__all__ = [
    "BY_HAND",
    "CHECKPOINTS",
    "CONFIG",
    "ENVIRONMENT",
    "EXCHANGES",
    "FILES",
    "JOURNAL",
    "LOCK",
    "LOST",
    "METRICS",
    "TENSORBOARD",
    "TIMINGS",
    "Fingerprint",
    "Marker",
    "Run",
    "Saved",
    "Step",
    "is_run",
    "parse_config",
    "read_checkpoint",
    "read_config",
    "read_environment",
    "read_exchanges",
    "read_metrics",
    "read_records",
    "read_steps",
    "read_timings",
    "shown",
    "take_up",
    "verify",
]
