"""Unpacking: turns a GGUF file into a folder that transformers loads quickly, once a file, in the user's cache.

Transformers takes about twenty seconds to read the 98 MB of the embedded model, and less than one to read the folder.
The folder holds the weights in single precision, about half a gigabyte. It can be deleted at any time.
"""

import copy
import io
import shutil
import tempfile
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from curricle.downloads.wheels import cache
from curricle.errors import needed
from curricle.llm.embedded.weights import sha256


def unpack(path: Path) -> Path:
    """Return the folder of a GGUF file, and make it at the first call."""
    folder = cache() / "unpacked" / f"{path.stem}-{sha256(path)[:16]}"
    if folder.is_dir():
        return folder
    needed("gguf")
    transformers = needed("transformers")
    place = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with redirect_stderr(io.StringIO()):  # a progress bar that cannot be turned off
        tokenizer = transformers.AutoTokenizer.from_pretrained(**place)
        model = _without_quantization(transformers.AutoModelForCausalLM.from_pretrained(**place, dtype="float32"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
        try:
            model.save_pretrained(new)
            tokenizer.save_pretrained(new)
            new.rename(folder)
        except OSError:
            if not folder.is_dir():  # unless another process has made it meanwhile
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder


def _without_quantization(model: Any) -> Any:
    """Return the same weights in a model whose config is not quantised: trainers refuse quantised models."""
    config = copy.deepcopy(model.config)
    del config.quantization_config
    plain = type(model)(config).to(model.dtype)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return plain
