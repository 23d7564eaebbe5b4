"""Config: from a TOML file, names and `key=value` pairs to a run that is ready to go.

    seed = 0
    begin = ""   a run or an exported agent: this run begins with its agent instead of an untrained one
    [world]      id = "crafter-v1", and the world's options
    [original]   knobs of the world that counts, where they differ from the declared ones
    [designer]   id = "tutor-v1", and its options; "auto": a language model if one is configured, else the tutor
    [agent]      id = "ppo-v1", and its options
    [schedule]   cycles, budgets, tests (loop.Schedule)
    [log]        TensorBoard, W&B, trackio (watcher.Log)

`resolve` fills in every default and every version, so that what a run folder keeps can be run again as it is.
"""

import logging
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from curricle.agent import Agent
from curricle.agents.memory import refuse_too_large
from curricle.designer import Designer, NamingOptions, OfOptions
from curricle.errors import PluginError, RunError, RunUnwritable, UsageError, nearest
from curricle.llm.clients import choose
from curricle.llm.clients.options import ModelOptions
from curricle.loop import Loop, Schedule
from curricle.records import Frozen, Options, Scores, checked, leaves, refuse_odd_names, refuse_unbearable
from curricle.registry import find
from curricle.run import (
    CONFIG,
    Run,
    parse_config,
    read_checkpoint,
    read_environment,
    read_metrics,
    read_records,
    take_up,
    trust,
)
from curricle.scale import ranks
from curricle.seeds import derive
from curricle.setting import Setting
from curricle.tracking.watcher import Log, Watcher, Watchers
from curricle.world import World

LOG = logging.getLogger("curricle")
EXPORTED = "agent"
PUBLISHED = "model"
"""Where an exported agent lies in its folder: weights as safetensors with plain data, and the model for others."""
TOP = ("seed", "begin")
SECTIONS = ("world", "original", "designer", "agent", "schedule", "log")
AUTO = "auto"
Component = type[World] | type[Designer] | type[Agent]
COMPONENTS: dict[str, Component] = {"world.id": World, "designer.id": Designer, "agent.id": Agent}
"""Keys that name a component, which decides what other keys there are."""
KINDS: dict[str, type[Options]] = {"schedule": Schedule, "log": Log}
"""Sections that hold the same options, whatever the components are."""
DEFAULTS: dict[str, dict[str, Any]] = {"designer": {"id": AUTO}, "agent": {"id": "tabular"}}


class Top(Options):
    """What stands outside the sections."""

    seed: int = Field(0, ge=0, description="The one seed; every random draw of the run is derived from it.")
    begin: str = Field("", description="A run, or an exported agent, whose agent this run begins with.")


@dataclass(frozen=True)
class Config:
    """A resolved config: classes found, options checked."""

    seed: int
    world: type[World]
    world_options: Options
    original: Setting
    designer: type[Designer]
    designer_options: Options
    agent: type[Agent]
    agent_options: Options
    schedule: Schedule
    log: Log
    names: Mapping[str, str]
    """How each component is to be found again: an id, or a place in code."""
    begin: str = ""
    """The run, or the exported agent, whose agent it begins with."""
    why: str = ""
    """Why this designer, where nobody named one."""

    def to_toml(self) -> dict[str, Any]:
        """Plain data that resolves to this config again."""
        options = {"world": self.world_options, "designer": self.designer_options, "agent": self.agent_options}
        tables = {name: {"id": self.names[name], **_plain(its_options)} for name, its_options in options.items()}
        rest = {"original": dict(self.original.values), "schedule": _plain(self.schedule), "log": _plain(self.log)}
        top = {"seed": self.seed, **({"begin": self.begin} if self.begin else {})}
        return {**top, **{name: (tables | rest)[name] for name in SECTIONS}}


def load(source: str) -> dict[str, Any]:
    """Read a TOML file, or take a world's name for a whole config; code files may be named from the file's folder."""
    path = Path(source)
    if path.suffix != ".toml":
        return {"world": {"id": source}}
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"config {source:.200}: {str(error).splitlines()[0]:.200}") from None
    for section in plain.values():
        if not isinstance(section, dict):
            continue
        place, _, attribute = str(section.get("id", "")).rpartition(":")
        if place.endswith(".py") and not Path(place).exists() and (path.parent / place).exists():
            section["id"] = f"{path.parent / place}:{attribute}"
    return plain


def override(config: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Apply `section.key=value` pairs; a value is read as TOML, or else as a word.

    Another world, designer or agent comes without the options of the one before it, another world without its knobs.
    """
    changed: dict[str, Any] = dict(config)
    for pair in sorted(
        pairs, key=lambda pair: pair.partition("=")[0].strip() not in COMPONENTS
    ):  # before their options
        key, equals, text = pair.partition("=")
        *sections, name = key.strip().split(".")
        if not equals or not name or bool(sections) == ((sections or [name])[0] in TOP):
            raise UsageError(f"{pair!r:.200}: write section.key=value, for example schedule.cycles=2 (or seed=1)")
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except (ValueError, RecursionError):
            value = text.strip()
        table = changed
        for section in sections:
            table[section] = dict(table[section]) if isinstance(table.get(section), Mapping) else {}
            table = table[section]
        if key.strip() in COMPONENTS:
            changed[sections[0]] = _another(COMPONENTS[key.strip()], table, str(value))
            if COMPONENTS[key.strip()] is World and table.get("id") and not _same(World, table["id"], str(value)):
                changed.pop("original", None)  # its knobs
        else:
            for other in _other_names(_kind_at(changed, sections), name) if sections else ():
                table.pop(other, None)
            if key.strip() == "designer.of" and table.get("of") and not _same(Designer, table["of"], str(value)):
                table.pop("of_options", None)
            table[name] = value
    return changed


def _kind_at(config: Mapping[str, Any], sections: Sequence[str]) -> type[Options] | None:
    """The kind of options that a section holds, or a table of options in it; None where nobody is named yet."""
    section, *inner = sections
    table = config[section]
    name = config[section].get("id")
    for options_key in inner:
        section = "designer"
        name = table.get(options_key.removesuffix("_options"))
        table = table[options_key]
    try:
        return _kind(section, name) if section in KINDS or isinstance(name, str) else None
    except (UsageError, PluginError):
        return None


def _other_names(kind: type[Options] | None, name: str) -> set[str]:
    """Old and new names of the same option."""
    renamed = kind.every_renamed() if kind else {}
    now = renamed.get(name, name)
    return {now, *(old for old, new in renamed.items() if new == now)} - {name}


def _another(kind: Component, table: Mapping[str, Any], id: str) -> dict[str, Any]:
    """The section of another component; a designer that works on proposals gets those of the one before it."""
    before = str(table.get("id", AUTO))
    if AUTO in (before, id) or _same(kind, before, id):
        return {**table, "id": id}
    if not issubclass(find(kind, id).Options, OfOptions):
        return {"id": id}
    if issubclass(find(kind, before).Options, OfOptions):
        return {"id": id, **{name: table[name] for name in ("of", "of_options") if name in table}}
    return {"id": id, "of": before, "of_options": {name: v for name, v in table.items() if name != "id"}}


def _same(kind: Component, one: str, other: str) -> bool:
    """Whether two names are of one component; what cannot be loaded any more is another."""
    try:
        before = find(kind, one)
    except (UsageError, PluginError):
        before = None
    return one == other or before is find(kind, other)


def with_llm(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The same config with this language model: as its designer, or as the source of its designer's proposals."""
    table = _table(config, "designer")
    id = str(table.get("id", AUTO))
    given = choose.named(name)
    if id == AUTO:
        return {**config, "designer": {**table, "id": "llm", **given}}
    kind = find(Designer, id)
    if issubclass(kind.Options, ModelOptions):
        return {**config, "designer": {**table, **given}}
    source = str(table.get("of", "llm"))
    if not issubclass(kind.Options, OfOptions) or find(Designer, source) is not find(Designer, "llm"):
        raise UsageError(f"--llm: the designer {id} asks no language model; leave it out, or use --designer llm")
    return {**config, "designer": {**table, "of": source, "of_options": {**table.get("of_options", {}), **given}}}


def resolve(config: Mapping[str, Any]) -> Config:
    """Find every component, check every value, fill in every default."""
    refuse_unbearable(config)
    refuse_odd_names(config)
    if unknown := set(config) - {*SECTIONS, *TOP}:
        raise UsageError(f"config: unknown key {min(unknown)!r}, {nearest(min(unknown), [*SECTIONS, *TOP])}")
    top = checked(Top, {name: config[name] for name in TOP if name in config}, "config")
    tables: dict[str, dict[str, Any]] = {name: _table(config, name) for name in SECTIONS}
    if not tables["world"].get("id"):
        raise UsageError("config: [world] needs an id, for example id = 'crafter'")
    world = find(World, str(tables["world"]["id"]))
    tables["world"] = world.Options.updated(tables["world"], f"[world] {world.id}")
    given = {key: value for key, value in tables["world"].items() if key != "id"}
    suggestions = world.suggested(_options(world, given, f"[world] {world.id}"))
    tables["original"] = world.Setting.updated(tables["original"], "[original]")
    for name in SECTIONS[1:]:
        suggested = {**DEFAULTS.get(name, {}), **suggestions.get(name, {})}
        tables[name] = _with_suggestions(name, tables[name], suggested, f"{world.id}.suggests")
    tables["designer"], why = _choose_designer(tables["designer"])
    designer = find(Designer, str(tables["designer"]["id"]))
    agent = find(Agent, str(tables["agent"]["id"]))
    found: dict[str, Any] = {"world": world, "designer": designer, "agent": agent}
    names = {name: _lasting_name(str(tables[name].pop("id")), kind.id) for name, kind in found.items()}
    options = {name: _options(kind, tables[name], f"[{name}] {kind.id}") for name, kind in found.items()}
    return Config(
        seed=top.seed,
        world=world,
        world_options=options["world"],
        original=world().setting(tables["original"]),
        designer=designer,
        designer_options=options["designer"],
        agent=agent,
        agent_options=options["agent"],
        schedule=checked(Schedule, tables["schedule"], "[schedule]"),
        log=checked(Log, tables["log"], "[log]"),
        names=names,
        begin=str(Path(top.begin).resolve()) if top.begin else "",
        why=why,
    )


def start(config: Config, folder: Path | str, watcher: Watcher | None = None) -> Scores:
    """Begin a new run in a folder and see it through."""
    with _leading(config):
        world, designer, agent = _build(config)
        designer.ready()  # what cannot be built, or begin, leaves no folder behind
        agent.ready()
        config.log.ready()
        if config.begin:
            _load(agent, Path(config.begin))
        begun = {"agent": agent} if config.begin else {}
        plain = config.to_toml()
        trust.remember(plain)
        with Run.create(Path(folder), plain, **begun) as run:
            return _train(config, world, designer, agent, run, watcher)


def resume(
    folder: Path | str, watcher: Watcher | None = None, *, from_step: int | None = None, trusted: bool = False
) -> Scores:
    """Go on with a run that was interrupted; a finished one just returns its last scores.

    `from_step` goes on after an earlier step that is still whole. `trusted` imports the code that the folder names.
    """
    folder = Path(folder)
    config = _resolved(folder, trusted)
    if (folder / EXPORTED).is_dir():
        raise RunError(f"{folder} is an exported agent, not a run: it can be tested, watched and filmed")
    with _leading(config):
        world, designer, agent = _build(config)
        _log_changes(folder)
        with Run.open(folder, from_step) as run:
            _same_skills(folder, world)
            if config.begin and "agent" not in run.saved:  # it was killed before it had a copy
                _load(agent, Path(config.begin))
            return _train(config, world, designer, agent, run, watcher)


def _resolved(folder: Path, trusted: bool) -> Config:
    """The config of a run, if all code that it names is the user's own or is trusted."""
    plain = parse_config(folder)
    try:
        trust.check(plain, folder, trusted)
        return resolve(plain)
    except UsageError as error:
        raise type(error)(f"{folder / CONFIG}: {error}") from error


def _log_changes(folder: Path) -> None:
    """Say what differs from the config that the run went with last; all that it went with stay in its environment."""
    now = dict(leaves(parse_config(folder)))
    known = read_environment(folder)
    config = known[-1].get("config") if known else None
    before = dict(leaves(config)) if isinstance(config, Mapping) else {}
    for key in sorted(before.keys() | now.keys()) if before else ():
        if before.get(key) != now.get(key):
            changed = f"{key} was {before.get(key)} and is {now.get(key)} from here on"
            LOG.warning("%s: %s", folder, " ".join(changed.splitlines()))


def follow() -> None:
    """As a rank that does not lead: see a run through that the first one starts or resumes; nothing is written."""

    def making(plain: Mapping[str, Any]) -> Callable[[], Agent]:
        config = resolve(plain)
        world = config.world(config.world_options, config.original)
        return lambda: _untrained_agent(config, world)

    ranks.follow(making)


def trained(folder: Path | str, trusted: bool = False) -> tuple[Config, Agent]:
    """The agent of a run as it is now, or an exported one, in its world."""
    folder = Path(folder)
    config = _resolved(folder, trusted)
    agent = _untrained_agent(config, config.world(config.world_options, config.original))
    _load(agent, folder)
    return config, agent


def _load(agent: Agent, folder: Path) -> None:
    """Take up what the agent of a run, as it is now, or an exported one knows."""
    parse_config(folder)  # says so if it is neither
    take_up(agent, folder / EXPORTED if (folder / EXPORTED).is_dir() else read_checkpoint(folder, "agent"))


def export(folder: Path | str, out: Path | str, merged: bool = False, trusted: bool = False) -> None:
    """Write the agent of a run into a new folder that can be tested, watched and filmed as the run can."""
    folder = Path(folder)
    out = Path(out)
    if out.exists():
        raise RunError(f"{out} exists already; choose another --out")
    _, agent = trained(folder, trusted)
    try:
        agent.publish(out / PUBLISHED, merged)
        (out / EXPORTED).mkdir(parents=True)
        agent.save(out / EXPORTED)
        (out / CONFIG).write_bytes((folder / CONFIG).read_bytes())
    except OSError as error:
        raise RunUnwritable(f"cannot write {out}: {error.strerror or error}; choose another --out") from error


@contextmanager
def _leading(config: Config) -> Iterator[None]:
    """Lead the other ranks, if this run was launched with several."""
    if ranks.launched() > 1 and not config.agent.several:
        raise UsageError(
            f"{config.agent.id} learns in one process, but {ranks.launched()} were launched (WORLD_SIZE); start "
            "curricle without accelerate launch or torchrun, or choose another agent, for example grpo"
        )
    with ranks.lead(config.to_toml()):
        yield


def _same_skills(folder: Path, world: World) -> None:
    """Refuse to go on in a world whose skills are others than when the run began: its scores would tell nothing."""
    now = [skill.name for skill in world.skills]
    for _, scores in read_records(folder, Scores)[:1]:
        if set(scores.skills) != set(now):
            changed = ", ".join(sorted(set(scores.skills) ^ set(now)))
            raise RunError(f"{folder} was begun when {world.id} had other skills ({changed}); begin a new run")


def _build(config: Config) -> tuple[World, Designer, Agent]:
    world = config.world(config.world_options, config.original)
    refuse_too_large(world, config.agent_options, config.schedule.designs)
    designer = config.designer(world.Setting, config.designer_options, derive(config.seed, "designer"))
    return world, designer, _untrained_agent(config, world)


def _untrained_agent(config: Config, world: World) -> Agent:
    return config.agent(world, config.agent_options, derive(config.seed, "agent"))


def _train(config: Config, world: World, designer: Designer, agent: Agent, run: Run, watcher: Watcher | None) -> Scores:
    def make_untrained_agent() -> Agent:
        return _untrained_agent(config, world)

    past = read_metrics(run.folder)
    loggers = config.log.watchers(run.folder.resolve().name, run.tensorboard, past, config.to_toml())
    watchers = Watchers([*loggers, watcher] if watcher else loggers)
    try:
        return Loop(world, designer, agent, config.schedule, run, config.seed, make_untrained_agent, watchers).train()
    finally:
        watchers.close()


def _choose_designer(table: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The designer where `auto` leaves it open, and why; options given with `auto` are the language model's."""
    if table["id"] != AUTO:
        return table, ""
    checked(find(Designer, "llm").Options, {name: v for name, v in table.items() if name != "id"}, "[designer] auto")
    if table.get("model"):
        return {**table, "id": "llm"}, "auto: a model is configured"
    if found := choose.from_environment():
        return {**choose.with_environment(table, found), "id": "llm"}, f"auto: {choose.VARIABLE} names a model"
    return {"id": "tutor"}, f"auto: no language model is configured, {choose.VARIABLE} is not set"


def _with_suggestions(section: str, given: dict[str, Any], suggested: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A section with what a world suggests for it, both under the names of today: what is given goes first."""
    id = given.get("id", suggested.get("id"))
    kind = _kind(section, id)
    if kind:
        given = _updated(kind, given, f"[{section}] {id}" if id else f"[{section}]")
    if id == suggested.get("id"):
        return {**(_updated(kind, suggested, f"{where}[{section!r}]") if kind else suggested), **given}
    return _with_suggested_inner(given, suggested) if section == "designer" else given  # other options do not fit


def _kind(section: str, id: object) -> type[Options] | None:
    """The kind of options that a section holds; those of `auto` are the language model's. Knobs are no options."""
    if section in KINDS:
        return KINDS[section]
    if f"{section}.id" not in COMPONENTS:
        return None
    name = "llm" if (section, id) == ("designer", AUTO) else str(id)
    return find(COMPONENTS[f"{section}.id"], name).Options


def _updated(kind: type[Options], table: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Options under the names of today, those of the designers that they name included."""
    found = kind.updated(table, what)
    for name in kind.naming if issubclass(kind, NamingOptions) else ():
        inner = found.get(name)
        key = f"{name}_options"
        if isinstance(inner, str) and isinstance(found.get(key), Mapping):
            found[key] = _updated(find(Designer, inner).Options, found[key], f"{what}, {key} of {inner}")
    return found


def _with_suggested_inner(table: dict[str, Any], suggested: Mapping[str, Any]) -> dict[str, Any]:
    """What is suggested for a designer also holds where another one wraps it.

    A designer whose `of` defaults to `random` wraps the suggested designer instead.
    """
    suggested_id = str(suggested.get("id", AUTO))
    id = str(table["id"])
    if AUTO in (suggested_id, id):
        return table
    outer = find(Designer, id).Options
    if not issubclass(outer, OfOptions):
        return table
    inner = table.get("of", suggested_id if outer.model_fields["of"].default == "random" else None)
    if not isinstance(inner, str) or not _same(Designer, inner, suggested_id):
        return table
    kind = find(Designer, inner).Options
    options = {name: value for name, value in suggested.items() if name != "id"}
    options = _updated(kind, options, f"what is suggested for {suggested_id}")
    given = _updated(kind, table.get("of_options", {}), f"[designer] {id}, of_options of {inner}")
    return {**table, "of": inner, "of_options": {**options, **given}}


def _table(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = config.get(name, {})
    if not isinstance(table, Mapping):
        raise UsageError(f"config: {name} = {table!r} must be a table, [{name}]")
    if empty := [key for key, value in table.items() if value is None]:
        raise UsageError(f"config: [{name}] {empty[0]} = None; leave it out for its default")
    return dict(table)


def _options(component: Any, table: Mapping[str, Any], what: str) -> Options:
    """Check a component's options; an option that names another designer gets that one's lasting name."""
    options: Options = checked(component.Options, table, what)
    if isinstance(options, ModelOptions):
        options = choose.settled(options, what)
    for name in options.naming if isinstance(options, NamingOptions) else ():
        named = getattr(options, name)
        key = f"{name}_options"
        other = find(Designer, named)
        inner = _options(other, getattr(options, key), f"{what}, {key} of {other.id}")
        options = options.model_copy(update={name: _lasting_name(named, other.id), key: Frozen(_plain(inner))})
    return options


def _lasting_name(name: str, id: str) -> str:
    """An id with its version; a file by its full path, so that a run can be resumed from anywhere."""
    place, colon, attribute = name.rpartition(":")
    if not colon:
        return id
    return f"{Path(place).resolve()}:{attribute}" if place.endswith(".py") else name


def _plain(options: Options) -> dict[str, Any]:
    """Options as TOML data, which knows no null."""
    return options.model_dump(mode="json", exclude_none=True)
