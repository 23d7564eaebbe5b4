"""Lets accelerate take models apart on CPUs, where it does nothing about a wish for FSDP; so tests need no GPUs.

Ranks on CPUs are of the type MULTI_CPU, and accelerate's state looks at its FSDP plugin for types of accelerators only.
Here it notes the plugin for them, too. All else is the real code of accelerate, TRL and torch, which runs over gloo.
"""


def allow(fsdp: bool = True) -> None:
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    if not fsdp:
        return
    begin = AcceleratorState.__init__

    def begin_with_parts(self, *given, fsdp_plugin=None, **named):
        begin(self, *given, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            PartialState._shared_state["distributed_type"] = self.distributed_type  # as accelerate does

    AcceleratorState.__init__ = begin_with_parts
