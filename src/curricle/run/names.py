"""The names of everything in a run folder, and how a step is named in its lines."""

import re

from curricle.records import Design, Outcome, Record, Scores

CONFIG = "config.toml"
JOURNAL = "journal.jsonl"
METRICS = "metrics.jsonl"
EXCHANGES = "exchanges.jsonl"
ENVIRONMENT = "environment.jsonl"
TIMINGS = "timings.jsonl"
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
LOCK = "lock"
BY_HAND = "by_hand"
LOST = "lost+found"
FILES: dict[type[Record], str] = {Design: "designs.jsonl", Outcome: "outcomes.jsonl", Scores: "scores.jsonl"}
TRIMMED = (*FILES.values(), METRICS)
"""Cut back to the last marker when a run is resumed."""
FINGERPRINTED = (*TRIMMED, EXCHANGES, JOURNAL)
"""A marker holds the fingerprints of these."""
BESIDE = (ENVIRONMENT, TIMINGS)
"""Not part of the result."""
RENAMED_METRICS = {
    "practice/even": "practice/no_signal",
    "practice/warmed": "practice/imitation_updates",
    "practice/warm_loss": "practice/imitation_loss",
    "practice/unjudged": "practice/unverified",
    "design/warmed": "design/imitation_passes",
    "design/warm_loss": "design/imitation_loss",
}
"""Old name of a metric -> its name now; run folders with old names are read as if they had the new ones."""
FOLDERS = (CHECKPOINTS, BY_HAND, LOST)
CHECKPOINT_NAME = re.compile("([0-9]{5}|[1-9][0-9]{5,7})-(agent|designer)")
"""What the run itself may have written into its folder of checkpoints; nothing else there is touched."""


class Step(Record):
    """Where in the loop something happened; long practice has several parts."""

    cycle: int
    phase: str
    part: int = 0
