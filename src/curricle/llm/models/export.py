"""Export: a player's model in the files that Hugging Face's libraries read."""

from pathlib import Path

from curricle.llm.generate.sampling import inference_copy
from curricle.llm.models.model import CausalModel


def publish(causal: CausalModel, folder: Path, merged: bool) -> None:
    """Write the tokenizer, and an adapter by itself, which needs its base, or all weights with the adapter `merged`."""
    if causal.options.lora and not merged:
        causal.model.save_pretrained(folder, selected_adapters=["default"])
    else:
        inference_copy(causal).save_pretrained(folder)
    causal.tokenizer.save_pretrained(folder)
