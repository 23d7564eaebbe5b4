"""A designer that learns which settings are just hard enough: `designer.py`, and what it stands on."""

from curricle.designers.policy.designer import Policy, PolicyOptions

__all__ = ["Policy", "PolicyOptions"]
