"""CausalModel: a causal language model that is trained, its conversations, its checkpoints and its initial model.

Conversations: the first prompt is rendered by the model's own chat template. Later turns are appended token by token
and never rendered again: what the agent said stays exactly what it said, so a loss over a conversation is a loss over
its tokens.

What is trained is either every weight or a LoRA adapter. The *initial model* stays at hand for KL terms: it is what
the files say, or what `make_initial` found after a warm-up. A checkpoint holds what is trained, the optimiser's state,
and the initial model where a warm-up changed it; the rest comes from the model's own files (`loading.py`).

Of several ranks each holds the whole model, or a part of every parameter: accelerate's FSDP2 makes each parameter a
`DTensor`. The functions at the end read and write such parameters as wholes, so a checkpoint is the same files for
both. All ranks must call them together.
"""

import copy
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from curricle.errors import ModelError, RunDamaged
from curricle.llm.models import loading
from curricle.llm.models.layers import fused_norms, use_safe_attention
from curricle.llm.models.loading import CausalOptions
from curricle.records import Message
from curricle.scale import ranks
from curricle.seeds import derive

REFERENCE = "ref"
"""The adapter that holds the initial model where that is not the base; TRL looks for this name."""
CHECKPOINT_WRAPPER = "_checkpoint_wrapped_module."
"""What accelerate's activation checkpointing puts into the names of parameters."""
DEFAULT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""The chat template of tokenizers that come without one."""
Arrays = dict[str, NDArray[Any]]


class CausalModel:
    """One model, its tokenizer, its optimiser and its initial model.

    Ranks may train one together (`shared`). Each then holds all of it, or a part (`sharded`: the trainer shards it).
    Otherwise it belongs to this process alone.
    """

    def __init__(
        self, options: CausalOptions, player: str, seed: int, *, shared: bool = False, sharded: bool = False
    ) -> None:
        self.options = options
        self.player = player
        self.device = loading.choose_device(options.device, player)
        self.shared = shared and ranks.count() > 1
        self.sharded = sharded and self.shared
        if options.lora and not options.spread_over_gpus and not self.sharded:  # shards cannot be shared with others
            self._base = loading.shared_base(options, player, self.device)
            self.tokenizer, model = self._base.copy_sharing_weights()
        else:
            self.tokenizer, model = loading.load_by_options(options, player, self.device)
        if not options.spread_over_gpus and not self.sharded:
            model = model.to(self.device)
        self.ends: list[int] = loading.end_tokens(model, self.tokenizer)
        use_safe_attention(model)
        self._initial_copy: Any = None
        self.initial_changed = False  # whether a warm-up made another initial model than that of the files
        if options.lora:
            self.model: Any = loading.add_adapter(model, options.lora, derive(seed, "lora"))
        else:
            self.model = model
            self._initial_copy = copy.deepcopy(model).requires_grad_(False).eval()
        self.model.eval()
        trained = [p for _, p in self.trained()]
        self.optimizer = torch.optim.AdamW(trained, lr=options.learning_rate, weight_decay=options.weight_decay)

    @property
    def initial_copy(self) -> Any:
        """The initial model as a module of its own; None with an adapter, because the base serves."""
        return self._initial_copy

    @property
    def context(self) -> int:
        """Most tokens of a sequence."""
        return int(getattr(self.model.config, "max_position_embeddings", 0) or 2048)

    def trained(self) -> Iterator[tuple[str, Any]]:
        """The parameters that are trained, by name."""
        return ((name, p) for name, p in named_parameters(self.model) if p.requires_grad)

    @contextmanager
    def initial(self) -> Iterator[Any]:
        """The initial model, for as long as the context lasts."""
        if self._initial_copy is not None:
            yield self._initial_copy
        elif self.initial_changed:
            self.model.set_adapter(REFERENCE, inference_mode=True)
            try:
                yield self.model
            finally:
                self.model.set_adapter("default")
        else:
            with self.model.disable_adapter():
                yield self.model

    def make_initial(self) -> None:
        """Take the model as it is now as the initial one: a warm-up belongs to the starting point.

        Otherwise a KL term would pull the model back to what it was before the warm-up. The optimiser starts anew, too:
        its moments come from gradients of another size.
        """
        with torch.no_grad():
            for _, p, initial in self._initial_parameters():
                assign(initial, whole(p))
        for _, p in self.trained():
            set_optimizer_state(self.optimizer, p, None, {})

    def _initial_parameters(self) -> Iterator[tuple[str, Any, Any]]:
        """What is trained, by name, with its counterpart of the initial model, which gets memory of its own here."""
        if self.options.lora and not self.initial_changed:
            with torch.random.fork_rng():
                self.model.add_adapter(REFERENCE, self.model.peft_config["default"])
            self.model.set_adapter("default")
        self.initial_changed = True
        for name, p in self.trained():
            if self.options.lora:
                yield name, p, self.model.get_parameter(name.replace(".default.", f".{REFERENCE}."))
            else:
                yield name, p, self._initial_copy.get_parameter(name)

    # -- conversations -------------------------------------------------------------------------------------------------

    def render_prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return a conversation's tokens, up to where the model is to answer."""
        return self._encode(self._render(messages, ask=True))

    def render_turn(self, message: Message) -> list[int]:
        """Return the tokens between the end of the model's turn and its next one, with `message` in between."""
        conversation = [Message(role="user", content="x"), Message(role="assistant", content="y")]
        before = self._render(conversation, ask=False)
        after = self._render([*conversation, message], ask=True)
        if not after.startswith(before):
            raise ModelError("this model's chat template rewrites earlier turns, so it cannot hold a conversation here")
        closing = before.rpartition("y")[2]
        closing = closing.replace(self.tokenizer.eos_token, "", 1)  # the model has said its end token itself
        return self._encode(closing + after[len(before) :])

    def decode_reply(self, ids: Sequence[int]) -> str:
        """Return the text of a reply, without the token that ended it."""
        body = list(ids[:-1]) if ids and ids[-1] in self.ends else list(ids)
        return str(self.tokenizer.decode(body, skip_special_tokens=False))

    def _render(self, messages: Sequence[Message], ask: bool) -> str:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        template = None if self.tokenizer.chat_template else DEFAULT_TEMPLATE
        arguments = {"chat_template": template, "tokenize": False, "add_generation_prompt": ask}
        return str(self.tokenizer.apply_chat_template(chat, **arguments))

    def _encode(self, text: str) -> list[int]:
        return [int(i) for i in self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """Return what is trained, the optimiser's state, and the initial model where it is not that of the files.

        All ranks must call this, because each may hold a part. The leader gets the arrays, the others nothing.
        """
        arrays: Arrays = {}
        initial = dict[str, Any]()
        if self.initial_changed:
            initial = {name: counterpart for name, _, counterpart in self._initial_parameters()}
        for name, p in self.trained():
            tensors = {"weight": whole(p), **optimizer_state(self.optimizer, p)}
            if initial:
                tensors["origin"] = whole(initial[name])
            if ranks.number() == 0:
                arrays |= {f"{key}/{name}": _to_numpy(tensor) for key, tensor in tensors.items()}
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Take over what `arrays` returned; all ranks must call this, and all take over what the leader has."""
        if ranks.number() == 0:  # refuse before the others wait
            self._check_fit(arrays, folder)
        steps = {name: arrays[f"step/{name}"] for name, _ in self.trained() if f"step/{name}" in arrays}
        if self.shared:
            steps = ranks.broadcast(steps)
        for name, p in self.trained():
            assign(p, self._whole_tensor(arrays.get(f"weight/{name}"), p))
            if name in steps:
                moments = {key: self._whole_tensor(arrays.get(f"{key}/{name}"), p) for key in ("exp_avg", "exp_avg_sq")}
                set_optimizer_state(self.optimizer, p, torch.from_numpy(steps[name]), moments)
            else:
                set_optimizer_state(self.optimizer, p, None, {})
        has_initial = any(key.startswith("origin/") for key in arrays)
        if self.shared:
            has_initial = ranks.broadcast(has_initial)
        if has_initial:
            for name, p, initial in self._initial_parameters():
                assign(initial, self._whole_tensor(arrays.get(f"origin/{name}"), p))

    def _check_fit(self, arrays: Mapping[str, NDArray[Any]], folder: Path) -> None:
        for name, p in self.trained():
            stored = arrays.get(f"weight/{name}")
            if stored is None or stored.shape != tuple(p.shape):
                raise RunDamaged(f"checkpoint {folder} does not fit {self.player} with model {self.options.model!r}")

    def _whole_tensor(self, stored: NDArray[Any] | None, like: Any) -> torch.Tensor:
        """Return an array as a tensor, shaped as the whole of another; ranks that share the model get the leader's."""
        tensor = torch.empty(tuple(like.shape), device=like.device, dtype=like.dtype)
        if stored is not None:
            tensor.copy_(torch.from_numpy(stored))
        if self.shared:
            ranks.broadcast_tensor(tensor)
        return tensor


def _to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Convert a tensor; numpy has no bfloat16, and float32 holds its values exactly."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.ascontiguousarray(tensor.numpy())


# -- training passes ---------------------------------------------------------------------------------------------------


@contextmanager
def fast_passes(model: Any) -> Iterator[None]:
    """Let an adapter on a bfloat16 base on a GPU compute in bfloat16, too, with norms in one kernel.

    Otherwise the input of each of its layers is cast to float32, kept so for the gradient, and cast back.
    """
    first = next(model.parameters())
    with ExitStack() as stack:
        if first.is_cuda and first.dtype == torch.bfloat16 and hasattr(model, "peft_config"):
            stack.enter_context(torch.autocast("cuda", torch.bfloat16))
            stack.enter_context(importlib.import_module("peft.helpers").disable_input_dtype_casting(model))
            if not _recomputes(model):
                stack.enter_context(fused_norms(model))
        yield


def _recomputes(model: Any) -> bool:
    """Whether passes are repeated for the gradient, after this context has ended: both must be the model's own."""
    wrapped = any(CHECKPOINT_WRAPPER in f"{name}." for name, _ in model.named_modules())
    return wrapped or bool(getattr(model, "is_gradient_checkpointing", False))


# -- parameters of which a rank may hold a part ------------------------------------------------------------------------


def named_parameters(model: Any, *, with_duplicates: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield a model's parameters by the names they had before it was sharded, tied ones by every name if asked for."""
    for module in model.modules():
        if hasattr(module, "reshard"):  # drop what the last pass gathered, so that parameters are parts again
            module.reshard()
    for name, p in model.named_parameters(remove_duplicate=not with_duplicates):
        yield name.replace(CHECKPOINT_WRAPPER, ""), p


def whole(tensor: Any) -> Any:
    """Return the whole of a tensor of which each rank may hold a part."""
    return tensor.full_tensor() if _is_part(tensor) else tensor


def assign(p: Any, full: torch.Tensor) -> None:
    """Set a parameter to a whole tensor, which every rank has."""
    with torch.no_grad():
        if _is_part(p):
            p.to_local().copy_(_part_of(full, p).to_local())
        else:
            p.copy_(full)


def optimizer_state(optimizer: Any, p: Any) -> dict[str, Any]:
    """Return an optimiser's state for a parameter as whole tensors; empty before its first step."""
    return {key: whole(torch.as_tensor(value)) for key, value in sorted(optimizer.state.get(p, {}).items())}


def set_optimizer_state(optimizer: Any, p: Any, step: torch.Tensor | None, moments: Mapping[str, torch.Tensor]) -> None:
    """Set an optimiser's state for a parameter from whole tensors; without a step the state is cleared."""
    optimizer.state.pop(p, None)
    if step is None:
        return
    own = dict(moments)
    if _is_part(p):
        own = {key: _part_of(full, p) for key, full in moments.items()}
    optimizer.state[p] = {"step": step.clone(), **own}


def _is_part(tensor: Any) -> bool:
    return hasattr(tensor, "full_tensor")


def _part_of(full: torch.Tensor, like: Any) -> Any:
    """Return this rank's part of a tensor that every rank has, split as another one is."""
    from torch.distributed.tensor import distribute_tensor

    part = distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)
    return part.to(like.device)
