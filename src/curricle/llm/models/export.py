"""Publish: a player's model in the form that Hugging Face's libraries, and all that read it, take."""

from pathlib import Path

from curricle.llm.generate.sampling import merged
from curricle.llm.models.model import CausalModel


def publish(causal: CausalModel, folder: Path, whole: bool) -> None:
    """Write an adapter by itself, which needs the model under it, or all weights; with the tokenizer."""
    if causal.options.lora and not whole:
        causal.model.save_pretrained(folder, selected_adapters=["default"])
    else:
        merged(causal).save_pretrained(folder)
    causal.tokenizer.save_pretrained(folder)
