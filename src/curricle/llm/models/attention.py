"""Attention: torch's own, with masks in which every token sees something.

Batches are padded at the left, so the first tokens of a short row are padding that may look at nothing, and what comes
of a softmax over nothing, and of its gradient, is each kernel's own affair. On an H200 cuDNN's gave gradients that were
no number, for the same batch that torch's other kernels had finite ones for. Nobody reads what padding makes of itself,
so it may look at everything.

Nor is cuDNN's asked here: it plans anew for every shape, and conversations hardly ever have the shape of the ones
before. In a profile of a small model on an H200 attention's calls were 37 % of the time of all passes, 1.4 ms of the
host each, while the GPU was idle for most of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from curricle.llm.extras import needed

NAME = "curricle-sdpa"
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def mend(model: Any) -> None:
    """Let a model that uses torch's attention use it with such masks and kernels."""
    if model.config._attn_implementation != "sdpa":
        return
    transformers = needed("transformers")
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def mask(*args: Any, **kwargs: Any) -> Tensor | None:
        found: Tensor | None = sdpa_mask(*args, **kwargs)
        return found if found is None else opened(found)

    def attend(*args: Any, **kwargs: Any) -> Any:
        with sdpa_kernel(KERNELS):
            return sdpa_attention_forward(*args, **kwargs)

    transformers.AttentionInterface.register(NAME, attend)
    transformers.AttentionMaskInterface.register(NAME, mask)
    model.set_attn_implementation(NAME)


@contextmanager
def unmended(model: Any) -> Iterator[None]:
    """Give a model torch's attention back for a while, under the name that parts of transformers ask for."""
    before = model.config._attn_implementation
    if before == NAME:
        model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def opened(mask: Tensor) -> Tensor:
    """A mask, True where a token may look, whose empty rows are full instead."""
    return mask | ~mask.any(-1, keepdim=True)
