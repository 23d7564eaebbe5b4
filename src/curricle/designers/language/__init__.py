"""GenEnv's environment policy, a language model that is trained. Read `designer.py`."""

from curricle.designers.language.designer import Language
from curricle.designers.language.options import LanguageOptions

__all__ = ["Language", "LanguageOptions"]
