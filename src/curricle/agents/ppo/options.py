"""Options of PPO. Achievement distillation inherits them and adds its own."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from curricle.agents.device import Device
from curricle.records import Options


class PPOOptions(Options):
    """Options of PPO. The defaults are those of the papers for Crafter from pixels."""

    renamed: ClassVar[Mapping[str, str]] = {
        "rate": "learning_rate",
        "trace": "gae_lambda",
        "entropy": "entropy_coef",
        "value": "value_coef",
        "gradient": "max_grad_norm",
        "keep": "value_norm_decay",
        "lanes": "workers",
    }
    removed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "ahead": (0.0, "leave it out, and each rollout is played by the policy that the update before it made")
    }

    environments: int = Field(8, ge=1, description="Number of sub-environments that are stepped in parallel.")
    steps: int = Field(512, ge=1, description="Steps per sub-environment in each rollout, before an update.")
    epochs: int = Field(3, ge=1, description="Passes over each rollout.")
    minibatches: int = Field(8, ge=1, description="Minibatches per pass.")
    learning_rate: float = Field(3e-4, gt=0, description="Learning rate of Adam.")
    gamma: float = Field(0.95, ge=0, le=1, description="Discount factor.")
    gae_lambda: float = Field(0.65, ge=0, le=1, description="Lambda of generalised advantage estimation.")
    clip: float = Field(0.2, gt=0, description="Clip range of the probability ratio.")
    entropy_coef: float = Field(0.01, ge=0, description="Weight of the entropy bonus.")
    value_coef: float = Field(0.5, ge=0, description="Weight of the value loss.")
    max_grad_norm: float = Field(0.5, gt=0, description="Gradients with a larger norm are scaled down to it.")
    value_norm_decay: float = Field(
        0.99, ge=0, lt=1, description="Decay per minibatch of the running mean and variance that normalise returns."
    )
    channels: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (64, 128, 128), min_length=1, strict=False, description="Channels of each convolutional stage, for images."
    )
    blocks: int = Field(2, ge=0, description="Residual blocks per convolutional stage, for images.")
    width: int = Field(256, ge=1, description="Width of the layer before the last.")
    hidden: int = Field(0, ge=0, description="Width of the last layer; 0 means 1024 with images and 256 without.")
    greedy: bool = Field(False, description="Test with the most likely action instead of a sampled one.")
    workers: int = Field(
        2,
        ge=1,
        description="Workers that share environments and minibatches. The results depend on this number, but not on "
        "how many cores there are. Beside a GPU one process plays the environments of all workers in turn.",
    )
    device: Device = Field("auto", description="Where the network runs: auto (a GPU if there is one), cpu or cuda.")
    bf16: bool = Field(True, description="On a GPU: compute matrix products in bfloat16.")
    graphs: bool = Field(True, description="On a GPU: run rollout steps and updates as CUDA graphs.")
