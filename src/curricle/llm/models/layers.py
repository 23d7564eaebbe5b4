"""Layers: where Curricle replaces what a Hugging Face model does inside its own layers.

- `use_safe_attention`: torch's attention, with masks in which every token sees something. For good.
- `fused_norms`: RMSNorm in one kernel. For as long as a context lasts.
- `fused_rotary`: rotary embeddings in one kernel, on a GPU. For as long as a context lasts.

Why attention needs it: batches are padded at the left, so the first tokens of a short row are padding that sees
nothing. What a softmax over nothing gives, and its gradient, differs between attention kernels. On an H200 cuDNN gave
gradients that were no number, for a batch with which torch's other kernels had finite ones. Nobody reads the output at
padding, so padding may see everything.

cuDNN is not used here at all. It makes a new plan for every shape, and conversations hardly ever have the shape of
earlier ones. In a profile of a small model on an H200 attention calls took 37 % of the time of all passes, 1.4 ms of
the host each, while the GPU was idle for most of it.
"""

import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from curricle.errors import needed

SAFE_ATTENTION = "curricle-sdpa"
SDPA_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
ROTARY = "apply_rotary_pos_emb"
"""The function of a model's module that rotates queries and keys."""
Pair = tuple[Tensor, Tensor]
LOG = logging.getLogger("curricle")


@functools.cache
def kernels() -> Any:
    """Return the module of our own kernels; None where Triton is missing or cannot compile them."""
    try:
        module = importlib.import_module("curricle.llm.generate.kernels")
        module.try_build()
    except Exception as error:  # compilers fail in many ways, and decoding works without
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        LOG.warning("Triton builds no kernels here, so decoding goes without: %s", why)
        return None
    return module


# -- attention ---------------------------------------------------------------------------------------------------------


def use_safe_attention(model: Any) -> None:
    """Let a model that uses torch's attention use it with `SDPA_BACKENDS` and with masks without empty rows."""
    if model.config._attn_implementation != "sdpa":
        return
    transformers = needed("transformers")
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def make_mask(*args: Any, **kwargs: Any) -> Tensor | None:
        mask: Tensor | None = sdpa_mask(*args, **kwargs)
        return None if mask is None else fill_empty_rows(mask)

    def attend(*args: Any, **kwargs: Any) -> Any:
        with sdpa_kernel(SDPA_BACKENDS):
            return sdpa_attention_forward(*args, **kwargs)

    transformers.AttentionInterface.register(SAFE_ATTENTION, attend)
    transformers.AttentionMaskInterface.register(SAFE_ATTENTION, make_mask)
    model.set_attn_implementation(SAFE_ATTENTION)


@contextmanager
def original_attention(model: Any) -> Iterator[None]:
    """Give a model torch's attention back for a while: continuous batching in transformers asks for it by name."""
    before = model.config._attn_implementation
    if before == SAFE_ATTENTION:
        model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def fill_empty_rows(mask: Tensor) -> Tensor:
    """Return a mask, True where a token may look, in which rows without any True are all True."""
    return mask | ~mask.any(-1, keepdim=True)


# -- RMSNorm -----------------------------------------------------------------------------------------------------------


@contextmanager
def fused_norms(model: Any) -> Iterator[None]:
    """Compute a model's RMSNorms in one kernel instead of six, which also keeps less for the gradient."""
    norms = [module for module in model.modules() if _is_rms_norm(module) and "forward" not in vars(module)]
    for norm in norms:  # those whose `forward` somebody else has replaced stay as they are
        norm.forward = functools.partial(_rms_norm, norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _is_rms_norm(module: Any) -> bool:
    """Whether a module is RMSNorm as Llama has it; variants that add 1 to their weights, or take a gate, are not."""
    return type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon")


def _rms_norm(norm: Any, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):  # autocast would compute it in float32
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


# -- rotary embeddings -------------------------------------------------------------------------------------------------


@contextmanager
def fused_rotary(model: Any) -> Iterator[None]:
    """Rotate a model's queries and keys in one kernel instead of ten, on a GPU and where no gradient is needed.

    Models of transformers call a function of their own module for it. Many have the same function; some have another
    one of the same name. So ours replaces it only where both gave the same result for an example.
    """
    modules = {sys.modules[type(module).__module__] for module in model.modules()}
    originals = {module: getattr(module, ROTARY) for module in modules if hasattr(module, ROTARY)}
    if not next(model.parameters()).is_cuda or kernels() is None:
        originals = {}
    for module, original in originals.items():
        if same_rotary(original, kernels().rotate, "cuda"):
            setattr(module, ROTARY, functools.partial(_rotate, original))
    try:
        yield
    finally:
        for module, original in originals.items():
            setattr(module, ROTARY, original)


@functools.cache
def same_rotary(original: Callable[..., Pair], ours: Callable[..., Pair], device: str) -> bool:
    """Whether two functions give the same result, as far as one example shows."""
    noise = torch.Generator(device).manual_seed(0)
    shapes = [(2, 4, 3, 16), (2, 2, 3, 16), (2, 3, 16), (2, 3, 16)]
    example = [torch.randn(shape, generator=noise, device=device) for shape in shapes]
    try:
        pairs = list(zip(original(*example), ours(*example), strict=True))
    except (LookupError, RuntimeError, TypeError, ValueError):  # another function that happens to have this name
        return False
    return all(a.shape == b.shape and torch.allclose(a, b, atol=1e-4) for a, b in pairs)


def _rotate(
    original: Callable[..., Pair], query: Tensor, keys: Tensor, cosine: Tensor, sine: Tensor, *more: Any, **named: Any
) -> Pair:
    """Use our kernel if it is called as in the example; some models rotate only a part of each head."""
    usual_call = query.is_cuda and not torch.is_grad_enabled() and not more and not named
    if not usual_call or cosine.ndim != 3 or cosine.shape[-1] != query.shape[-1]:
        return original(query, keys, cosine, sine, *more, **named)
    rotated: Pair = kernels().rotate(query, keys, cosine, sine)
    return rotated
