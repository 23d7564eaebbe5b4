"""A language model as an agent, trained by GRPO: `agent.py`, and what it stands on."""

from curricle.agents.grpo.agent import GRPO, GRPOOptions

__all__ = ["GRPO", "GRPOOptions"]
