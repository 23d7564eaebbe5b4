"""PPO with Achievement Distillation."""

from curricle.agents.distill.agent import Distill

__all__ = ["Distill"]
