"""A designer that learns which settings are just hard enough; start with `designer.py`."""

from curricle.designers.policy.designer import Policy, PolicyOptions

__all__ = ["Policy", "PolicyOptions"]
