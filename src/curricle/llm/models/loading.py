"""Loading: a Hugging Face causal model and its tokenizer from a folder, a GGUF file, the hub or the embedded weights.

No code that comes with a model is run. Players with adapters on the same model share its weights in memory.
"""

import copy
import io
import socket
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies
from weakref import WeakValueDictionary

import torch
from pydantic import Field

from curricle.errors import ModelError, needed
from curricle.llm.embedded import weights
from curricle.llm.embedded.unpack import unpack
from curricle.records import Options

EMBEDDED = "embedded"


class CausalOptions(Options):
    """Which model, and how much of it is trained."""

    renamed: ClassVar[Mapping[str, str]] = {
        "spread": "spread_over_gpus",
        "rate": "learning_rate",
        "decay": "weight_decay",
    }

    model: str = Field(
        EMBEDDED, min_length=1, description="Folder, GGUF file or hub id of a causal model; or: embedded."
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


class SharedBase:
    """A model that is never trained itself; the adapters of several players stand on it."""

    def __init__(self, tokenizer: Any, model: Any) -> None:
        self.tokenizer = tokenizer
        self.model = model.requires_grad_(False)

    def copy_sharing_weights(self) -> tuple[Any, Any]:
        """Return a tokenizer and a model for one player, whose weights are these very tensors."""
        tensors = {id(tensor): tensor for tensor in (*self.model.parameters(), *self.model.buffers())}
        return copy.deepcopy(self.tokenizer), copy.deepcopy(self.model, tensors)


_bases: WeakValueDictionary[tuple[str, ...], SharedBase] = WeakValueDictionary()
"""The bases in use, by model, type and device."""


def shared_base(options: CausalOptions, player: str, device: torch.device) -> SharedBase:
    """Load a base, or return the one that another player has loaded."""
    key = (options.model, options.dtype, str(device))
    base = _bases.get(key)
    if base is None:
        tokenizer, model = load_by_options(options, player, device)
        base = SharedBase(tokenizer, model.to(device))
        _bases[key] = base
    return base


def load_by_options(options: CausalOptions, player: str, device: torch.device) -> tuple[Any, Any]:
    """Load the tokenizer and the model that a player's options name."""
    needed("transformers")  # say what to install before what to download
    dtype: str = options.dtype
    if dtype == "auto":
        dtype = "bfloat16" if options.lora and device.type == "cuda" else "float32"
    arguments: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    if options.spread_over_gpus and torch.cuda.is_available():
        arguments["device_map"] = "balanced"
    source: Path | str = options.model
    if options.model == EMBEDDED:
        source = weights.stock()
    elif options.model.endswith(".gguf"):
        source = Path(options.model)
    return load(source, player, **arguments)


def load(source: Path | str, player: str, **arguments: Any) -> tuple[Any, Any]:
    """Load the tokenizer and the model of a GGUF file (a path), a folder or a hub id."""
    transformers = needed("transformers")
    transformers.utils.logging.disable_progress_bar()  # the command line shows progress of its own
    if isinstance(source, str):
        _check_folder(source, player)
    try:
        place = str(unpack(source) if isinstance(source, Path) else source)
        local_only = Path(place).exists() or not _hub_answers()
        with redirect_stderr(io.StringIO()):  # a progress bar that cannot be turned off
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=local_only)
            model = transformers.AutoModelForCausalLM.from_pretrained(place, local_files_only=local_only, **arguments)
    except (OSError, ValueError, KeyError, ImportError) as error:
        first_line = str(error).splitlines()[0]
        raise ModelError(f"{player}: the model {str(source)!r} cannot be loaded: {first_line}") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    return tokenizer, model


def choose_device(wanted: str, player: str) -> torch.device:
    """Return the device that the option `device` asks for."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"{player}: device = 'cuda', but torch {torch.__version__} sees no GPU; use 'auto' or 'cpu'")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a reply, and drop the sampling settings that come with a model."""
    GenerationConfig = needed("transformers").GenerationConfig

    of_model = model.generation_config.eos_token_id
    if not isinstance(of_model, list):
        of_model = [of_model]
    ends = [int(end) for end in dict.fromkeys([tokenizer.eos_token_id, *of_model]) if end is not None]
    if not ends:
        raise ModelError(
            f"the tokenizer of {model.config._name_or_path!r} has no end-of-text token; choose another model"
        )
    # the model's own settings, such as top_k, would change the probabilities that are drawn from
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    return ends


def add_adapter(model: Any, rank: int, seed: int) -> Any:
    """Return the model with a new LoRA adapter, whose weights a seed decides."""
    peft = needed("peft")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        return peft.get_peft_model(model, config)


def _check_folder(source: str, player: str) -> None:
    """Refuse a path that is no folder with a model."""
    folder = Path(source)
    if source.startswith(("/", "./", "../", "~")) and not folder.is_dir():
        raise ModelError(
            f"{player}: there is no folder {source}; model is a folder, a .gguf file, a hub id, or embedded"
        )
    if folder.is_dir() and not (folder / "config.json").exists():
        raise ModelError(f"{player}: the folder {source} is no model: it has no config.json")


def _hub_answers() -> bool:
    """Whether the hub can be reached; otherwise every file of a model would be asked for again for half a minute."""
    host = urlsplit(needed("huggingface_hub").constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return bool(getproxies())  # a proxy may know the name
    return True
