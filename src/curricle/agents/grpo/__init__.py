"""A language model as an agent, trained by GRPO. Read `agent.py`, then `trainer.py`."""

from curricle.agents.grpo.agent import GRPO, GRPOOptions

__all__ = ["GRPO", "GRPOOptions"]
