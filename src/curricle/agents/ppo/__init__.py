"""PPO: rollouts, advantages and updates; `agent.py` is the page to read first."""

from curricle.agents.ppo.agent import PPO

__all__ = ["PPO"]
