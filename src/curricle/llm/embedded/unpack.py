"""Unpacking: a GGUF file as a folder that transformers load at once. Done once for each file, kept in the user's cache.

Reading the 98 MB of the embedded model takes transformers about twenty seconds, reading the folder less than one; its
weights lie there in single precision, so it takes about half a gigabyte. It can be deleted at any time.
"""

import copy
import io
import shutil
import tempfile
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from curricle.llm.embedded.weights import sha256
from curricle.llm.extras import needed
from curricle.wheels import cache


def unpacked(path: Path) -> Path:
    """The folder of a GGUF file."""
    folder = cache() / "unpacked" / f"{path.stem}-{sha256(path)[:16]}"
    if folder.is_dir():
        return folder
    needed("gguf")
    transformers = needed("transformers")
    place = str(path.parent)
    more = {"gguf_file": path.name}
    with redirect_stderr(io.StringIO()):  # a bar that knows no off
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **more)
        model = _plainly(transformers.AutoModelForCausalLM.from_pretrained(place, **more, dtype="float32"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
        try:
            model.save_pretrained(new)
            tokenizer.save_pretrained(new)
            new.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process may have been faster
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder


def _plainly(model: Any) -> Any:
    """The same weights in a model that does not think of itself as quantised: trainers refuse those."""
    config = copy.deepcopy(model.config)
    del config.quantization_config
    plain = type(model)(config).to(model.dtype)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return plain
