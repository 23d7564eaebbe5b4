"""Memory between CPU and GPU: pinned, so that copies run beside other work."""

import logging

import torch
from torch import Tensor

LOG = logging.getLogger("curricle")


class Download:
    """Numbers on their way from a GPU; the caller can do other work before it reads them."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
        self.ready = torch.cuda.current_stream().record_event()

    def values(self) -> list[float]:
        """Wait until they have arrived, and return them."""
        self.ready.synchronize()
        numbers: list[float] = self.tensor.tolist()
        return numbers


class PinnedMemory:
    """Pins memory that a world owns, so that a GPU reads it directly, until `close` is called.

    If the driver refuses, copies are slower but still correct.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.pinned = False
        if tensor.nbytes:
            error = int(torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0))  # type: ignore[no-untyped-call]
            self.pinned = error == 0
            if not self.pinned:
                LOG.info("the driver did not pin the world's memory; copying observations to the GPU takes longer")

    def close(self) -> None:
        """Unpin the memory; call this before its owner frees it."""
        if self.pinned:
            torch.cuda.cudart().cudaHostUnregister(self.tensor.data_ptr())  # type: ignore[no-untyped-call]
            self.pinned = False
