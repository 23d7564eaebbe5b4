"""Registry: from a name to the class of a world, designer or agent, imported only when asked for.

A name is an id (`crafter-v1`), an id without its version (`crafter`, the newest one installed), or a place in code
(`package.module:Class`, `folder/file.py:Class`). Packages add their own by entry points in the groups
`curricle.worlds`, `curricle.designers` and `curricle.agents`, the entry's name being the id.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from curricle.agent import Agent
from curricle.designer import Designer, NamingOptions
from curricle.errors import PluginError, UsageError, nearest
from curricle.records import LONGEST_NAME, checked
from curricle.setting import Setting
from curricle.world import ID, World

T = TypeVar("T", bound=World | Designer | Agent)

KINDS: dict[type, str] = {World: "worlds", Designer: "designers", Agent: "agents"}
BUILT_IN: dict[str, dict[str, str]] = {
    "worlds": {
        "chains-v1": "curricle.worlds.text.chains:Chains",
        "crafter-v1": "curricle.worlds.crafter:Crafter",
        "heist-v1": "curricle.worlds.heist:Heist",
        "reasoning-v1": "curricle.worlds.text.reasoning.world:Reasoning",
        "textworld-v1": "curricle.worlds.text.textworld.world:Games",
        "tools-v1": "curricle.worlds.text.tools.world:Tools",
    },
    "designers": {
        "none-v1": "curricle.designers.baselines:NoDesigns",
        "fixed-v1": "curricle.designers.baselines:Fixed",
        "random-v1": "curricle.designers.baselines:Random",
        "easy_to_hard-v1": "curricle.designers.baselines:EasyToHard",
        "adversarial-v1": "curricle.designers.baselines:Adversarial",
        "llm-v1": "curricle.designers.llm.designer:LLM",
        "tutor-v1": "curricle.designers.tutor:Tutor",
        "policy-v1": "curricle.designers.policy:Policy",
        "language-v1": "curricle.designers.language:Language",
    },
    "agents": {
        "random-v1": "curricle.agents.random:RandomAgent",
        "tabular-v1": "curricle.agents.tabular:Tabular",
        "ppo-v1": "curricle.agents.ppo.agent:PPO",
        "distill-v1": "curricle.agents.distill.agent:Distill",
        "grpo-v1": "curricle.agents.grpo:GRPO",
    },
}

REMOVED: dict[str, dict[str, str]] = {
    "designers": {
        "local-v1": "use --designer tutor, which designs better and needs no language model, or --llm local, "
        "with which the designer llm asks the embedded model",
    },
}
"""Ids that earlier versions had, by kind, with what to use instead."""


def find(kind: type[T], name: str) -> type[T]:
    """Return the class a name stands for; an unknown name, or a plug-in that does not load, is a named error.

    A narrower kind may be asked for (`VectorWorld`); what is found but of another kind is refused.
    """
    if len(name) > LONGEST_NAME and ":" not in name:
        raise UsageError(f"there is no {_group(kind)[:-1]} with a name of {len(name)} characters: {name[:40]!r}...")
    if ":" in name:
        return _load(kind, name, name)
    known, _ = _places(kind)
    newest = max((id for id in known if id.rpartition("-v")[0] == name), key=_version, default=name)
    if newest not in known:
        bare = [id.rpartition("-v")[0] for id in known]
        what = _group(kind)[:-1]
        path = Path(name)
        if name.endswith(".py"):
            raise UsageError(f"{name!r} is a file: name the {what} in it, as in {name}:Class")
        if path.is_dir() and (path / "config.toml").exists():
            raise UsageError(f"{name!r} is a run folder, no {what}: curricle resume {name} goes on with it")
        for id, instead in REMOVED.get(_group(kind), {}).items():
            if name in (id, id.rpartition("-v")[0]):
                raise UsageError(f"the {what} {name!r} was removed; {instead}")
        raise UsageError(f"there is no {what} {name!r}: {nearest(name, [*known, *bare])}")
    return _load(kind, newest, known[newest])


def named(options: NamingOptions, which: str, setting: type[Setting], seed: int) -> Designer:
    """Make the designer that an option of another one names, with the options beside that name."""
    maker = find(Designer, getattr(options, which))
    beside = f"{which}_options"
    return maker(setting, checked(maker.Options, getattr(options, beside), f"{beside} of {maker.id}"), seed)


def installed(kind: type[T]) -> Iterator[tuple[str, type[T] | PluginError]]:
    """Every id of a kind with its class, or with the error that keeps it from loading."""
    places, clashes = _places(kind)
    for id, place in sorted(places.items()):
        try:
            yield id, _load(kind, id, place)
        except PluginError as error:
            yield id, error
    for id, place in clashes:
        yield id, PluginError(f"{place} is ignored: {places[id]} has the id {id!r} already")


def _group(kind: type) -> str:
    return next(group for base, group in KINDS.items() if issubclass(kind, base))


def _places(kind: type) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """All ids with the place of their code, and claims to an id that is taken: by a built-in, or by who came first."""
    group = _group(kind)
    places = dict(BUILT_IN[group])
    clashes = list[tuple[str, str]]()
    for entry in sorted(entry_points(group=f"curricle.{group}"), key=lambda entry: entry.value):
        if places.setdefault(entry.name, entry.value) != entry.value:
            clashes.append((entry.name, entry.value))
    return places, clashes


def _version(id: str) -> int:
    return int(id.rpartition("-v")[2]) if ID.fullmatch(id) else -1


def _load(kind: type[T], name: str, place: str) -> type[T]:
    where, _, attribute = place.rpartition(":")
    what = f"{_group(kind)[:-1]} {name!r}" + ("" if name == place else f" ({place})")
    try:
        module = _file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        if not hasattr(module, attribute):
            own = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, kind)]
            raise AttributeError(f"there is no {attribute!r} in {where}: {nearest(attribute, own)}")
        found: Any = getattr(module, attribute)
    except (Exception, SystemExit) as error:  # a plug-in may do anything while it is imported
        raise PluginError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise PluginError(f"{what} is not a {kind.__name__} class but {found!r:.100}")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise PluginError(f"{what} lacks {', '.join(f'{method}()' for method in missing)}")
    contract = next(base for base in KINDS if issubclass(kind, base))
    for method in sorted(vars(contract)):
        if wrong := _otherwise(getattr(contract, method), getattr(found, method, None)):
            raise PluginError(f"{what}: {wrong}")
    if not ID.fullmatch(str(getattr(found, "id", ""))):
        raise PluginError(f"{what} has no id; give its class one, like id = 'name-v1'")
    if name != place and found.id != name:
        raise PluginError(f"{what} calls itself {found.id!r}; its entry point and its id must agree")
    return found


def _otherwise(method: Any, own: Any) -> str:
    """Why a method of a class cannot be called as the contract's is, in words; better said now than after hours."""
    if own is method or not inspect.isfunction(method) or not inspect.isfunction(own) or method.__name__ == "__init__":
        return ""
    wanted = list(inspect.signature(method).parameters.values())
    named = {p.name: None for p in wanted if p.kind is p.KEYWORD_ONLY}
    try:
        inspect.signature(own).bind(*(None for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD), **named)
    except TypeError:
        called = ", ".join(f"{p.name}=..." if p.name in named else p.name for p in wanted[1:])
        return f"{own.__name__}{inspect.signature(own)} is called as {own.__name__}({called})"
    return ""


def _file(path: Path) -> ModuleType:
    """Import a file by its path, once; what lies beside it can be imported by it."""
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"curricle_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise FileNotFoundError(f"no such file: {path} (a run whose world moved names it in its config.toml)")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
