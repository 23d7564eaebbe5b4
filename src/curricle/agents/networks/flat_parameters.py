"""Flat parameters: all parameters of a network in one tensor, so that workers share them and Adam takes them whole."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from curricle.agents.device import use_fused_kernels
from curricle.agents.parallel.workers import shared_memory


def matmul_weight(weight: Tensor) -> Tensor:
    """The weight to multiply by: under autocast its copy in bfloat16, where there is one."""
    bf16_copy: Tensor | None = getattr(weight, "bf16_copy", None)
    if bf16_copy is None or not torch.is_autocast_enabled("cuda"):
        return weight
    return bf16_copy


class FlatParameters:
    """All parameters of a network side by side in one tensor, in memory that workers share.

    With `bf16_copies` there is a second such tensor in bfloat16. Products take their weights from it
    (`matmul_weight`), so that weights need not be cast in every pass. `clip_and_step` keeps it up to date; whoever
    changes the parameters in another way calls `refresh_bf16_copy`.
    """

    def __init__(self, network: nn.Module, *, bf16_copies: bool = False) -> None:
        self.parameters = list(network.parameters())
        self.sizes = [parameter.numel() for parameter in self.parameters]
        empty = torch.empty(sum(self.sizes), device=self.parameters[0].device)
        self.flat = nn.Parameter(shared_memory(empty))
        for parameter, view in zip(self.parameters, self._views(self.flat.data), strict=True):
            view.copy_(parameter.data)
            parameter.data = view
        for buffer in network.buffers():
            buffer.data = shared_memory(buffer.data)
        self.bf16_copy: Tensor | None = None
        self.bf16_views: list[Tensor] = []
        if bf16_copies:
            self.bf16_copy = self.flat.data.bfloat16()
            for parameter, view in zip(self.parameters, self._views(self.bf16_copy), strict=True):
                self.bf16_views.append(view.requires_grad_())
                parameter.bf16_copy = view  # type: ignore[attr-defined]

    def make_adam(self, learning_rate: float) -> torch.optim.Adam:
        """An Adam of all parameters whose state is there already, so that it can be shared, saved and loaded."""
        if self.flat.grad is None:
            self.flat.grad = torch.zeros_like(self.flat)
        adam = torch.optim.Adam([self.flat], lr=learning_rate, fused=True, capturable=self.flat.is_cuda)
        adam.step()  # makes the state; on a zero gradient it moves nothing
        for tensor in adam.state[self.flat].values():
            tensor.zero_()
        return adam

    def refresh_bf16_copy(self) -> None:
        """Bring the copy in bfloat16 up to date."""
        if self.bf16_copy is not None:
            self.bf16_copy.copy_(self.flat.data)

    def gradient(self, loss: Tensor, out: Tensor | None = None) -> Tensor:
        """The gradient of a loss as one tensor, laid out as `flat` is."""
        found = torch.autograd.grad(loss, [*self.parameters, *self.bf16_views], allow_unused=True)
        gradients = list(found[: len(self.parameters)])
        for i, through_copy in enumerate(found[len(self.parameters) :]):
            if through_copy is not None:
                through_weight = gradients[i]
                gradients[i] = through_copy if through_weight is None else through_weight + through_copy
        flat = torch.empty_like(self.flat.data) if out is None else out
        _copy_all(self._views(flat), gradients)
        return flat

    def clip_and_step(self, gradient: Tensor, adam: torch.optim.Adam, max_norm: float) -> None:
        """Clip a gradient's norm and take a step of Adam."""
        norm = torch.linalg.vector_norm(gradient)
        if use_fused_kernels(gradient):
            from curricle.agents.cuda.fused_ppo import adam_step

            adam_step(self.flat, gradient, norm, max_norm, adam, self.bf16_copy)
            return
        assert self.flat.grad is not None
        torch.mul(gradient, (max_norm / (norm + 1e-6)).clamp(max=1.0), out=self.flat.grad)
        adam.step()
        self.refresh_bf16_copy()

    def _views(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat tensor in the parameters' shapes; filters of convolutions lie channels-last, as images do."""
        views = list[Tensor]()
        pieces = flat.split(self.sizes)  # type: ignore[no-untyped-call]
        for parameter, piece in zip(self.parameters, pieces, strict=True):
            if parameter.ndim == 4:
                filters, channels, height, width = parameter.shape
                views.append(piece.view(filters, height, width, channels).permute(0, 3, 1, 2))
            else:
                views.append(piece.view(parameter.shape))
        return views


def _copy_all(views: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Copy gradients into views; those of one type and layout together, which on a GPU is one kernel."""
    by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for view, gradient in zip(views, gradients, strict=True):
        if gradient is None:  # the loss does not depend on this parameter
            view.zero_()
        elif view.stride() != gradient.stride():
            view.copy_(gradient)
        else:
            targets, sources = by_type.setdefault(gradient.dtype, ([], []))
            targets.append(view)
            sources.append(gradient)
    for targets, sources in by_type.values():
        torch._foreach_copy_(targets, sources)
