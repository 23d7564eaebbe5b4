"""GenEnv's environment policy, a language model that is trained: `designer.py`, and what it stands on."""

from curricle.designers.language.designer import Language
from curricle.designers.language.options import LanguageOptions

__all__ = ["Language", "LanguageOptions"]
