"""Errors, named by the boundary that was crossed; each message gives the bad value and what to do about it.

`CurricleError` is the root: the command line prints its message without a traceback and leaves with its `exit_code`.
Anything else that escapes is a bug of ours.
"""

import difflib
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class CurricleError(Exception):
    """Something a user can act on."""

    exit_code = 1


class UsageError(CurricleError):
    """A name, key or value that the user gave does not exist or is not allowed."""

    exit_code = 2


class FetchFailed(CurricleError):
    """A file could not be fetched, or is not what it should be."""


class ValueRefused(UsageError, ValueError):
    """Values do not fit the model that declares them: a setting, options, a config."""


class DeclarationError(CurricleError, TypeError):
    """A world, designer or agent is declared wrongly; its author has to change it."""


class PluginError(CurricleError):
    """A plug-in is installed but cannot be loaded."""


class DesignerError(CurricleError):
    """A designer proposed what its world does not accept."""


class ModelError(CurricleError):
    """A language model cannot be reached or used as asked."""


class Waiting(CurricleError):
    """A person is to answer a prompt by hand and has not yet; the run goes on from here when it is resumed."""

    exit_code = 3


class WorldError(CurricleError):
    """A world broke down while it was played."""


class AgentError(CurricleError):
    """An agent cannot learn in this world, or its learning broke down."""


class RunError(CurricleError):
    """A run folder cannot be used as asked."""


class RunBusy(RunError):
    """Another process works in this run folder."""


class RunDamaged(RunError):
    """A file of the run folder is missing, unreadable or contradicts the others."""


class RunUnwritable(RunError):
    """The run folder could not be written; what was finished before is safe."""


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, a machine's or a GPU's; torch says so in several ways, and is not imported for it."""
    signs = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return known or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs))


@contextmanager
def explained(who: str, advice: str, kind: type[CurricleError]) -> Iterator[None]:
    """Put running out of memory, a machine's or a GPU's, into words."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        words = str(error)
        raise kind(f"{who} ran out of memory; {advice}: {words.splitlines()[0] if words else ''}") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, or list a few: the tail of an error message."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "there are none"


def needed(name: str) -> Any:
    """Import a package that only language models as players need, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            f"language models as players need {name}: pip install 'curricle[llm]' ({type(error).__name__}: {error})"
        ) from error
