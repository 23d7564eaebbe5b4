"""GGUF to PyTorch and back, so that the embedded model can be tuned where it is used.

Reading is transformers' own. Writing keeps everything of the source file - tokenizer, template, weights that were not
trained, as they are stored there - and puts the trained weights in, 8-bit where their shape allows it. llama.cpp stores
the rows of the query and key projections in another order than PyTorch; `_permuted` is the way back.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curricle.errors import ModelError
from curricle.llm.weights import replacing

MISSING = "tuning needs transformers and gguf: pip install 'curricle[local]'"


def metadata(path: Path) -> dict[str, Any]:
    """What a GGUF file says about itself, its vocabulary apart."""
    return {n: f.contents() for n, f in _reader(path).fields.items() if not n.startswith("tokenizer.ggml.")}


def load(path: Path) -> tuple[Any, Any]:
    """The model of a file, in single precision, and its tokenizer."""
    if metadata(path).get("general.architecture") != "llama":
        raise ModelError(f"{path} is not of the Llama family; only such models can be tuned")
    import torch

    from curricle.llm.causal import loaded

    tokenizer, model = loaded(path, "tuning", dtype=torch.float32)
    return model, tokenizer


def save(model: Any, source: Path, path: Path, notes: Mapping[str, str]) -> None:
    """Write a copy of the source file with the model's trained weights and some notes in its metadata."""
    import gguf

    reader = _reader(source)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    trained = {
        names.get_name(name, try_suffixes=(".weight",)): parameter.detach().cpu().numpy()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    with replacing(path) as new:
        writer = gguf.GGUFWriter(new.name, arch="llama")
        for field in reader.fields.values():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture" and field.name not in notes:
                kinds = field.types
                writer.add_key_value(field.name, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
        for key, text in notes.items():
            writer.add_string(key, text)
        for tensor in reader.tensors:
            if tensor.name in trained:
                values, kind = _stored(tensor.name, trained.pop(tensor.name), model.config)
            else:
                values, kind = tensor.data, tensor.tensor_type
            writer.add_tensor(tensor.name, values, raw_dtype=kind)
        if trained:
            raise ModelError(f"{source} has no place for the trained weights {sorted(map(str, trained))}")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _stored(name: str, values: NDArray[np.float32], config: Any) -> tuple[NDArray[Any], Any]:
    """A weight as it stands in the file: permuted, and in 8 bits unless its rows are too short for that."""
    from gguf import GGMLQuantizationType, quants

    if name.endswith("attn_q.weight"):
        values = _permuted(values, config.num_attention_heads)
    if name.endswith("attn_k.weight"):
        values = _permuted(values, config.num_key_value_heads)
    kind = GGMLQuantizationType.Q8_0 if values.ndim > 1 and values.shape[-1] % 32 == 0 else GGMLQuantizationType.F32
    return quants.quantize(values, kind), kind


def _permuted(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """From PyTorch's halves (all first coordinates of a head, then all second) to llama.cpp's pairs."""
    rows, columns = values.shape
    return values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _reader(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError(MISSING) from error
    try:
        return GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{path} cannot be read as a GGUF file: {error}") from error
