"""Options of PPO (`ppo.py`), to which distillation adds its own."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from curricle.agents.cuda.hardware import Device
from curricle.records import Options


class PPOOptions(Options):
    """Options of PPO; the defaults are the papers' for pixels."""

    removed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "ahead": (0.0, "leave it out, and each rollout is played by the policy that the update before it made")
    }

    environments: int = Field(8, ge=1, description="Sub-environments it learns in at a time.")
    steps: int = Field(512, ge=1, description="Steps of each sub-environment between two updates.")
    epochs: int = Field(3, ge=1, description="Passes over a rollout.")
    minibatches: int = Field(8, ge=1, description="Minibatches a pass.")
    rate: float = Field(3e-4, gt=0, description="Learning rate of Adam.")
    gamma: float = Field(0.95, ge=0, le=1, description="Discount of later reward.")
    trace: float = Field(0.65, ge=0, le=1, description="Decay of the advantage trace (lambda of GAE).")
    clip: float = Field(0.2, gt=0, description="How far a policy may move from the one that played, as a ratio.")
    entropy: float = Field(0.01, ge=0, description="Weight of the policy's entropy.")
    value: float = Field(0.5, ge=0, description="Weight of the value loss.")
    gradient: float = Field(0.5, gt=0, description="Longest gradient; longer ones are shortened to it.")
    keep: float = Field(0.99, ge=0, lt=1, description="What the value normaliser keeps at each minibatch (EWMA).")
    channels: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (64, 128, 128), min_length=1, strict=False, description="Channels of each stage (images)."
    )
    blocks: int = Field(2, ge=0, description="Residual blocks a stage, for images.")
    width: int = Field(256, ge=1, description="Width of the layer below the last.")
    hidden: int = Field(0, ge=0, description="Width of the last layer; 0: 1024 with images, 256 without.")
    greedy: bool = Field(False, description="Test with the likeliest action instead of drawing from the policy.")
    lanes: int = Field(
        2, ge=1, description="Parts that work at once, beside a GPU by turns; moves results by its value, not by cores."
    )
    device: Device = Field("auto", description="Where the network runs: auto (a GPU if there is one), cpu or cuda.")
    bf16: bool = Field(True, description="On a GPU: products in bfloat16.")
    graphs: bool = Field(True, description="On a GPU: replay rollout and update as CUDA graphs.")
