"""CausalModel: any Hugging Face causal model as a player: loading, adapter or all weights, reference, checkpoints.

In: a folder, a hub id or `embedded` (the model that `curricle model` puts into the user's cache). What is trained is
either every weight or a LoRA adapter; the model it began as stays at hand for KL terms. It begins as its files say, or
after a warm-up (`begin`). A checkpoint holds what is trained, its optimiser, and what a warm-up made of it; the rest
comes from the model's own files. Players with adapters on the same model share its weights in memory.
"""

import copy
import importlib
import io
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from curricle.errors import ModelError, RunDamaged
from curricle.llm.embedded.unpack import unpacked
from curricle.llm.extras import needed
from curricle.llm.models import scratch, sharding
from curricle.llm.models.attention import mend
from curricle.llm.models.rms_norm import fused
from curricle.records import Options
from curricle.scale import ranks
from curricle.seeds import derive

EMBEDDED = "embedded"
REFERENCE = "ref"
"""The adapter that holds what the model began as, where it did not begin as its base; TRL looks for this name."""
Arrays = dict[str, NDArray[Any]]


class CausalOptions(Options):
    """Which model, and how much of it is trained."""

    renamed: ClassVar[Mapping[str, str]] = {
        "spread": "spread_over_gpus",
        "rate": "learning_rate",
        "decay": "weight_decay",
    }

    model: str = Field(
        EMBEDDED,
        min_length=1,
        description="Folder, GGUF file or hub id of a causal model; embedded; or scratch: a small one with random weights.",
    )
    lora: int = Field(0, ge=0, description="Rank of a LoRA adapter that is trained instead of all weights; 0: all.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where it runs; auto takes a GPU if there is one."
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Type of the weights: bfloat16 rounds small steps of training away; auto takes it on a GPU for a "
        "base under an adapter, which is not trained.",
    )
    spread_over_gpus: bool = Field(
        False, description="Lay the layers over all GPUs of this machine, for models one cannot hold."
    )
    learning_rate: float = Field(1e-6, ge=0, description="Learning rate of AdamW.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay.")


class CausalModel:
    """One model, its tokenizer, its optimiser, and the model it began as.

    Ranks may train one together (`shared`), each holding all of it or a part (`sharded`: whoever trains it takes it
    apart, `sharding.py`); then they save and load it together, too. Otherwise it is this process's own.
    """

    def __init__(
        self, options: CausalOptions, who: str, seed: int, *, shared: bool = False, sharded: bool = False
    ) -> None:
        self.options = options
        self.who = who
        self.device = _device(options.device, who)
        self.shared = shared and ranks.count() > 1
        self.sharded = sharded and self.shared
        if options.lora and not options.spread_over_gpus and not self.sharded:  # what is taken apart is nobody else's
            self._base = _base(options, who, self.device)
            self.tokenizer, model = self._base.twin()
        else:
            self.tokenizer, model = _loaded(options, who, self.device, derive(seed, "weights"))
        model = model if options.spread_over_gpus or self.sharded else model.to(self.device)
        self.ends: list[int] = _ends(model, self.tokenizer)
        mend(model)
        self._origin: Any = None
        self.begun = False  # whether it began elsewhere than its files say
        if options.lora:
            self.model: Any = _adapted(model, options.lora, derive(seed, "lora"))
        else:
            self.model = model
            self._origin = copy.deepcopy(model).requires_grad_(False).eval()
        self.model.eval()
        trained = [p for _, p in self.trained()]
        self.optimizer = torch.optim.AdamW(trained, lr=options.learning_rate, weight_decay=options.weight_decay)

    @property
    def frozen(self) -> Any:
        """The model it began as, where that is one of its own; with an adapter it is the base underneath."""
        return self._origin

    @property
    def context(self) -> int:
        """Tokens it can look at."""
        return int(getattr(self.model.config, "max_position_embeddings", 0) or 2048)

    def trained(self) -> Iterator[tuple[str, Any]]:
        """The parameters that are trained, by name."""
        return ((name, p) for name, p in sharding.named(self.model) if p.requires_grad)

    @contextmanager
    def origin(self) -> Iterator[Any]:
        """The model as it began."""
        if self._origin is not None:
            yield self._origin
        elif self.begun:
            self.model.set_adapter(REFERENCE, inference_mode=True)
            try:
                yield self.model
            finally:
                self.model.set_adapter("default")
        else:
            with self.model.disable_adapter():
                yield self.model

    def begin(self) -> None:
        """Take the model as it is now for the one it began as: a warm-up is part of where it starts.

        Otherwise a KL term would pull it back to what it was before, and unlearn what the warm-up taught. Its optimiser
        begins anew, too: it would go on as the warm-up went, and measure steps by gradients of another size.
        """
        with torch.no_grad():
            for _, p, began in self._beginnings():
                sharding.take(began, sharding.whole(p))
        for _, p in self.trained():
            sharding.remember(self.optimizer, p, None, {})

    def _beginnings(self) -> Iterator[tuple[str, Any, Any]]:
        """What is trained, by name, beside what it began as, which from now on lies in a place of its own."""
        if self.options.lora and not self.begun:
            with torch.random.fork_rng():
                self.model.add_adapter(REFERENCE, self.model.peft_config["default"])
            self.model.set_adapter("default")
        self.begun = True
        for name, p in self.trained():
            if self.options.lora:
                yield name, p, self.model.get_parameter(name.replace(".default.", f".{REFERENCE}."))
            else:
                yield name, p, self._origin.get_parameter(name)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """What is trained, its optimiser's memory, and what it began as, where that is not in its files.

        Of several ranks all ask, for each may hold a part; one gets it.
        """
        found: Arrays = {}
        begun = {name: began for name, _, began in self._beginnings()} if self.begun else {}
        for name, p in self.trained():
            held = {"weight": sharding.whole(p), **sharding.memory(self.optimizer, p)}
            if begun:
                held["origin"] = sharding.whole(begun[name])
            if ranks.number() == 0:
                found |= {f"{key}/{name}": _plain(tensor) for key, tensor in held.items()}
        return found

    def restore(self, arrays: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Take up what `arrays` gave; of several ranks all ask, and take up what the leader has."""
        for name, p in self.trained() if ranks.number() == 0 else ():  # whatever is refused is so before others wait
            stored = arrays.get(f"weight/{name}")
            if stored is None or stored.shape != tuple(p.shape):
                raise RunDamaged(f"checkpoint {folder} does not fit {self.who} with model {self.options.model!r}")
        steps = {name: arrays[f"step/{name}"] for name, _ in self.trained() if f"step/{name}" in arrays}
        steps = ranks.told(steps) if self.shared else steps
        for name, p in self.trained():
            sharding.take(p, self._handed(arrays.get(f"weight/{name}"), p))
            keys = ("exp_avg", "exp_avg_sq") if name in steps else ()
            moments = {key: self._handed(arrays.get(f"{key}/{name}"), p) for key in keys}
            sharding.remember(self.optimizer, p, torch.from_numpy(steps[name]) if keys else None, moments)
        begun = any(key.startswith("origin/") for key in arrays)
        if ranks.told(begun) if self.shared else begun:
            for name, p, began in self._beginnings():
                sharding.take(began, self._handed(arrays.get(f"origin/{name}"), p))

    def _handed(self, stored: NDArray[Any] | None, like: Any) -> torch.Tensor:
        """An array as a tensor, the whole of another one; ranks that share the model are all handed the leader's."""
        full = sharding.blank(like)
        if stored is not None:
            full.copy_(torch.from_numpy(stored))
        if self.shared:
            ranks.agreed(full)
        return full


@contextmanager
def lightly(model: Any) -> Iterator[None]:
    """For as long as it lasts, an adapter on a halved base on a GPU computes as that does, and norms are one kernel.

    Otherwise what goes into each of its layers is cast to float32, and kept so for the gradient, and back again.
    """
    first = next(model.parameters())
    with ExitStack() as stack:
        if first.is_cuda and first.dtype == torch.bfloat16 and hasattr(model, "peft_config"):
            stack.enter_context(torch.autocast("cuda", torch.bfloat16))
            stack.enter_context(importlib.import_module("peft.helpers").disable_input_dtype_casting(model))
            if not _recomputes(model):
                stack.enter_context(fused(model))
        yield


def _recomputes(model: Any) -> bool:
    """Whether passes are made again for the gradient, when all this is over: then both have to be the model's own."""
    wrapped = any(sharding.WRAPPED in f"{name}." for name, _ in model.named_modules())
    return wrapped or bool(getattr(model, "is_gradient_checkpointing", False))


def _device(wanted: str, who: str) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"{who}: device = 'cuda', but torch {torch.__version__} sees no GPU; use 'auto' or 'cpu'")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


class _Base:
    """A model that is never trained itself: adapters of several players stand on it."""

    def __init__(self, tokenizer: Any, model: Any) -> None:
        self.tokenizer = tokenizer
        self.model = model.requires_grad_(False)

    def twin(self) -> tuple[Any, Any]:
        """A tokenizer and a model of a player's own, whose weights are these very tensors."""
        kept = {id(tensor): tensor for tensor in (*self.model.parameters(), *self.model.buffers())}
        return copy.deepcopy(self.tokenizer), copy.deepcopy(self.model, kept)


_bases: WeakValueDictionary[tuple[str, ...], _Base] = WeakValueDictionary()
"""Those that some player still stands on."""


def _base(options: CausalOptions, who: str, device: torch.device) -> _Base:
    key = (options.model, options.dtype, str(device))
    if (known := _bases.get(key)) is None:
        tokenizer, model = _loaded(options, who, device, 0)
        known = _bases[key] = _Base(tokenizer, model.to(device))
    return known


def _loaded(options: CausalOptions, who: str, device: torch.device, seed: int) -> tuple[Any, Any]:
    needed("transformers")  # say what to install before what to download
    name = options.model
    if scratch.is_scratch(name):
        if options.lora:
            raise ModelError(f"{who}: model = {name!r} is trained as a whole; set lora = 0")
        return scratch.build(name, who, seed)
    dtype: str = options.dtype
    if dtype == "auto":
        dtype = "bfloat16" if options.lora and device.type == "cuda" else "float32"
    kind: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    if options.spread_over_gpus and torch.cuda.is_available():
        kind["device_map"] = "balanced"
    source: Path | str = name
    if name == EMBEDDED:
        source = _embedded()
    elif name.endswith(".gguf"):
        source = Path(name)
    return loaded(source, who, **kind)


def loaded(source: Path | str, who: str, **kind: Any) -> tuple[Any, Any]:
    """Tokenizer and model of a GGUF file (a path), a folder or a hub id; no code that comes with a model is run."""
    transformers = needed("transformers")
    transformers.utils.logging.disable_progress_bar()  # the command line shows progress of its own
    if isinstance(source, str) and source.startswith(("/", "./", "../", "~")) and not Path(source).is_dir():
        raise ModelError(f"{who}: there is no folder {source}; model is a folder, a .gguf file, a hub id, or embedded")
    if isinstance(source, str) and Path(source).is_dir() and not (Path(source) / "config.json").exists():
        raise ModelError(f"{who}: the folder {source} is no model: it has no config.json")
    try:
        place = str(unpacked(source) if isinstance(source, Path) else source)
        here = Path(place).exists() or not _hub_answers()
        with redirect_stderr(io.StringIO()):  # a bar that knows no off
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=here)
            model = transformers.AutoModelForCausalLM.from_pretrained(place, local_files_only=here, **kind)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(f"{who}: the model {str(source)!r} cannot be loaded: {str(error).splitlines()[0]}") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    return tokenizer, model


def _hub_answers() -> bool:
    """Whether the hub can be asked at all: else each of a model's files would be asked for again for half a minute."""
    host = urlsplit(needed("huggingface_hub").constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return bool(getproxies())  # a proxy may know the name
    return True


def _embedded() -> Path:
    """The embedded model's file, which `curricle model` fetched."""
    found: Path = importlib.import_module("curricle.llm.embedded.weights").stock()
    return found


def _ends(model: Any, tokenizer: Any) -> list[int]:
    """Tokens that end a reply; sampling settings that come with a model are dropped, for they would bend its odds."""
    GenerationConfig = needed("transformers").GenerationConfig

    known = model.generation_config.eos_token_id
    known = known if isinstance(known, list) else [known]
    ends = [int(end) for end in dict.fromkeys([tokenizer.eos_token_id, *known]) if end is not None]
    if not ends:
        raise ModelError(
            f"the tokenizer of {model.config._name_or_path!r} has no end-of-text token; choose another model"
        )
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    return ends


def _adapted(model: Any, rank: int, seed: int) -> Any:
    peft = needed("peft")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        return peft.get_peft_model(model, config)


def _plain(tensor: torch.Tensor) -> NDArray[Any]:
    """As numpy, which knows no bfloat16; going through float32 loses nothing."""
    tensor = tensor.detach().cpu()
    return np.ascontiguousarray((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy())
