"""Ranks: one run by several processes, as `accelerate launch` and `torchrun` start them.

    rank 0       leads: it alone runs the loop, owns the run folder and holds the designer
    the others   follow: they make the leader's agent and do what is asked of it, call by call, until the run is over

What is said here goes from memory to memory (gloo), so that waiting costs nothing and may take days: a designer that
writes and learns keeps the others waiting. Gradients take the way that accelerate chooses. Whoever fails just ends: the
launcher ends the others, and what they were told to do is done again when the run is resumed.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from curricle.errors import AgentError, UsageError

T = TypeVar("T")

WAIT = timedelta(days=30)
"""How long a follower waits to be asked; the launcher ends it sooner if the leader fails."""
UPDATE = timedelta(hours=2)
"""How long ranks wait for each other in the middle of an update: the slowest one's rollouts."""
STOP = "stop"
NEW = "new"
_talk: Any = None  # the process group of what is said here; None: this process is alone
_made = 0  # agents so far


def launched() -> int:
    """Processes that were started for this run, by what the launcher says."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def follows() -> bool:
    """Whether this process is one of several and not the first."""
    return launched() > 1 and os.environ["RANK"] != "0"


def count() -> int:
    """Ranks that work together now."""
    return 1 if _talk is None else int(_dist().get_world_size())


def number() -> int:
    """Which of them this is; 0 leads."""
    return 0 if _talk is None else int(_dist().get_rank())


def told(value: T) -> T:
    """The leader's value, on every rank."""
    box = [value]
    if _talk is not None:
        with connected():
            _dist().broadcast_object_list(box, src=0, group=_talk)
    return box[0]


def gathered(value: T) -> list[T]:
    """Every rank's value, in their order, on every rank."""
    values: list[Any] = [value] * count()
    if _talk is not None:
        with connected():
            _dist().all_gather_object(values, value, group=_talk)
    return values


def dealt(items: Iterator[T], size: int) -> Iterator[T]:
    """The leader's items on every rank, brought `size` at a time; the others' own are not touched."""
    if count() == 1:
        yield from items
        return
    while part := told(list(itertools.islice(items, size)) if number() == 0 else []):
        yield from part


def agreed(tensor: Any) -> None:
    """Let a tensor hold what the leader's holds; large ones take the fast way between GPUs."""
    if _talk is not None:
        with connected():
            _dist().broadcast(tensor, src=0)


def enlisted() -> int:
    """The number of an agent that is being made: 0 for the run's, 1 for the newest of those made for comparison.

    Whatever is to be refused is refused before: from here on the others make theirs, too.
    """
    global _made
    mine = min(_made, 1)
    _made = _made + 1
    ask(mine, NEW)
    return mine


def ask(agent: int, method: str, **given: Any) -> None:
    """As the leader: let the same agent of every other rank do what this one is about to do."""
    if count() > 1 and number() == 0:
        told((agent, method, given))


@contextmanager
def lead(about: Mapping[str, Any]) -> Iterator[None]:
    """Work with the others, if there are any; they are told what the run is about, and when it is over."""
    if launched() == 1:
        yield
        return
    if follows():
        raise UsageError(f"rank {os.environ['RANK']} cannot begin a run, for rank 0 does; it is to call config.follow")
    _join()
    told(about)
    yield  # after an error nothing is said: the others may be anywhere
    told((0, STOP, {}))
    _leave()


def follow(making: Callable[[Mapping[str, Any]], Callable[[], Any]]) -> None:
    """Do what the leader asks, to the end; `making` turns what the run is about into a way to make its agent."""
    _join()
    make = making(told({}))
    agents = dict[int, Any]()
    while True:
        agent, method, given = told((0, STOP, dict[str, Any]()))
        if method == STOP:
            return _leave()
        if method == NEW:
            agents.pop(agent, None)  # before the next one needs its memory
            agents[agent] = make()
        else:
            getattr(agents[agent], method)(**given)


@contextmanager
def connected() -> Iterator[None]:
    """Put the end of another rank into words."""
    try:
        yield
    except RuntimeError as error:
        if count() == 1 or not (isinstance(error, _dist().DistError) or "peer" in str(error)):
            raise
        raise AgentError(
            f"rank {number()} of {count()} lost another one, whose own message says why; "
            f"start them again with `curricle resume`: {str(error).splitlines()[0]}"
        ) from error


def _join() -> None:
    global _talk
    import torch

    here = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        if here >= torch.cuda.device_count():
            raise UsageError(
                f"process {here + 1} of this machine finds {torch.cuda.device_count()} GPUs: start one process a GPU, "
                "or hide the GPUs (CUDA_VISIBLE_DEVICES=) to run on CPUs"
            )
        torch.cuda.set_device(here)
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"  # else whatever a rank loads by itself would come out empty
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    _dist().init_process_group(backend, timeout=UPDATE)
    _talk = _dist().new_group(backend="gloo", timeout=WAIT)


def _leave() -> None:
    global _talk
    _dist().barrier(group=_talk)
    _dist().destroy_process_group()
    _talk = None


def _dist() -> Any:
    """Imported late: most commands need no torch."""
    import torch.distributed

    return torch.distributed
