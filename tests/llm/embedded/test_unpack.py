"""A GGUF file becomes a folder that transformers reads, once."""

import pytest
import torch
from helpers import tiny_gguf

from curricle.llm.embedded.unpack import unpack

transformers = pytest.importorskip("transformers")


def test_a_file_is_unpacked_once_and_has_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("CURRICLE_CACHE", str(tmp_path / "cache"))
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    folder = unpack(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert not hasattr(model.config, "quantization_config")
    packed = tiny_gguf.gguf.GGUFReader(path).tensors
    embeddings = next(tensor.data for tensor in packed if tensor.name == "token_embd.weight")
    assert torch.equal(model.get_input_embeddings().weight, torch.from_numpy(embeddings.copy()))
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert unpack(path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert [one.name for one in folder.parent.iterdir()] == [folder.name], "nothing half made is left"
