"""EnvGen's designer: a language model that reads a brief and answers with designs."""

from curricle.designers.llm.designer import LLM

__all__ = ["LLM"]
