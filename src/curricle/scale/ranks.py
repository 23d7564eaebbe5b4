"""Ranks: one run by several processes, as `accelerate launch` and `torchrun` start them.

    rank 0       leads: it alone runs the loop, writes the run folder and holds the designer
    the others   follow: each makes the same agent and repeats the leader's calls of it until the run is over

Objects are exchanged over gloo, from memory to memory. Waiting costs nothing and may take days, because the followers
wait while a designer writes and learns. Gradients travel the way that accelerate chooses. A rank that fails just ends.
Then the launcher ends the others, and what they were doing is done again when the run is resumed.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from curricle.errors import AgentError, UsageError
from curricle.seeds import derive

T = TypeVar("T")

CALL_TIMEOUT = timedelta(days=30)
"""How long a follower waits for the next call; the launcher ends it sooner if the leader fails."""
UPDATE_TIMEOUT = timedelta(hours=2)
"""How long ranks wait for each other inside an update: for the slowest one's rollouts."""
STOP = "stop"
NEW = "new"
_group: Any = None  # the process group of this module; None: this process works alone
_agents_made = 0


def launched() -> int:
    """Return the number of processes that were started for this run, as the launcher says."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def follows() -> bool:
    """Whether this process is one of several and not the first."""
    return launched() > 1 and os.environ["RANK"] != "0"


def count() -> int:
    """Return the number of ranks that work together now."""
    return 1 if _group is None else int(_dist().get_world_size())


def number() -> int:
    """Return which of them this is; 0 leads."""
    return 0 if _group is None else int(_dist().get_rank())


def rank_seed(seed: int) -> int:
    """Return a seed of this rank's own; the leader's is the given one, as in a single process."""
    return derive(seed, "rank", number()) if number() else seed


def broadcast(value: T) -> T:
    """Return the leader's value on every rank."""
    box = [value]
    if _group is not None:
        with explain_lost_rank():
            _dist().broadcast_object_list(box, src=0, group=_group)
    return box[0]


def all_gather(value: T) -> list[T]:
    """Return every rank's value, in the order of the ranks, on every rank."""
    values: list[Any] = [value] * count()
    if _group is not None:
        with explain_lost_rank():
            _dist().all_gather_object(values, value, group=_group)
    return values


def broadcast_items(items: Iterator[T], chunk_size: int) -> Iterator[T]:
    """Yield the leader's items on every rank, sent in chunks; the followers' own iterators are not touched."""
    if count() == 1:
        yield from items
        return
    while True:
        chunk = list(itertools.islice(items, chunk_size)) if number() == 0 else []
        chunk = broadcast(chunk)
        if not chunk:
            return
        yield from chunk


def broadcast_tensor(tensor: Any) -> None:
    """Overwrite a tensor with the leader's; on GPUs this goes from GPU to GPU."""
    if _group is not None:
        with explain_lost_rank():
            _dist().broadcast(tensor, src=0)


def register_agent() -> int:
    """Number an agent that is being made: 0 is the run's, 1 the newest of those made for comparison.

    The followers make theirs at this call, so refuse bad options before it.
    """
    global _agents_made
    agent = min(_agents_made, 1)
    _agents_made = _agents_made + 1
    call_followers(agent, NEW)
    return agent


def call_followers(agent: int, method: str, **arguments: Any) -> None:
    """On the leader: let the followers call this method of the same agent. Every method they share begins with it."""
    if count() > 1 and number() == 0:
        broadcast((agent, method, arguments))


@contextmanager
def lead(about: Mapping[str, Any]) -> Iterator[None]:
    """Lead the followers, if there are any: send them what the run is about, and tell them when it is over."""
    if launched() == 1:
        yield
        return
    if follows():
        raise UsageError(f"rank {os.environ['RANK']} cannot begin a run, because rank 0 does; call config.follow")
    _join()
    broadcast(about)
    yield  # after an error nothing is sent: the followers may be anywhere
    broadcast((0, STOP, {}))
    _leave()


def follow(making: Callable[[Mapping[str, Any]], Callable[[], Any]]) -> None:
    """Repeat the leader's calls until it stops; `making` turns what `lead` sent into a function that makes agents."""
    _join()
    make = making(broadcast({}))
    agents = dict[int, Any]()
    while True:
        agent, method, arguments = broadcast((0, STOP, dict[str, Any]()))
        if method == STOP:
            _leave()
            return
        if method == NEW:
            agents.pop(agent, None)  # frees its memory before the next one is made
            agents[agent] = make()
        else:
            getattr(agents[agent], method)(**arguments)


@contextmanager
def explain_lost_rank() -> Iterator[None]:
    """Turn torch's error about a rank that has ended into one that says what to do."""
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
    global _group
    import torch

    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        if local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"process {local_rank + 1} of this machine finds {torch.cuda.device_count()} GPUs: start one process a "
                "GPU, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to run on CPUs"
            )
        torch.cuda.set_device(local_rank)
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"  # else a model that one rank loads is empty
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    _dist().init_process_group(backend, timeout=UPDATE_TIMEOUT)
    _group = _dist().new_group(backend="gloo", timeout=CALL_TIMEOUT)


def _leave() -> None:
    global _group
    _dist().barrier(group=_group)
    _dist().destroy_process_group()
    _group = None


def _dist() -> Any:
    """Imported late: most commands need no torch."""
    import torch.distributed

    return torch.distributed
