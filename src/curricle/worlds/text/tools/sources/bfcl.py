"""BFCL: the Berkeley Function Calling Leaderboard, version 4, as items.

Read are the single-turn Python categories, the irrelevance ones (where no call is right) and the multi-turn base. A
multi-turn dialogue becomes one item a turn, with the turns before it and their gold calls as what was said; its calls
are ordered. The long-context category has the same turns. Java, JavaScript, web search and memory are left out.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from curricle.records import Message
from curricle.worlds.text.tools.calls import Call, read_python_call, write_calls
from curricle.worlds.text.tools.item import Item
from curricle.worlds.text.tools.matching import GoldCall
from curricle.worlds.text.tools.schema import KEYS, Json, Tool, value_fault

if TYPE_CHECKING:
    from curricle.worlds.text.tools.sources.data import Data

KINDS = ("multiple", "parallel", "parallel_multiple")
SINGLE = ("simple_python", *KINDS, "live_simple", *(f"live_{kind}" for kind in KINDS))
NONE = ("irrelevance", "live_irrelevance")
TYPES = {"dict": "object", "float": "number", "tuple": "array"}
DOCS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
MOST = 256
"""Combinations of accepted values of a nested argument; more are cut off."""


def items(data: "Data") -> Iterator[tuple[str, Item]]:
    """All items, each with the name of its dialogue."""
    for category in (*SINGLE, *NONE):
        gold = {}
        if category in SINGLE:
            gold = {row["id"]: row["ground_truth"] for row in data.rows(f"possible_answer/{_file(category)}")}
        for row in data.rows(_file(category)):
            tools = {str(tool["name"]): _tool(tool) for tool in row["function"]}
            calls = [_gold(name, given, tools) for one in gold.get(row["id"], []) for name, given in one.items()]
            request = "\n\n".join(message["content"] for message in row["question"][0])
            yield row["id"], Item(tools=tools.values(), request=request, calls=calls)
    yield from _dialogues(data)


def _file(category: str) -> str:
    return f"BFCL_v4_{category}.json"


def _tool(tool: Json) -> Tool:
    """A tool in our form of schema."""
    return {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "parameters": _schema(tool["parameters"]),
    }


def _schema(schema: Mapping[str, Json]) -> Json:
    kept = {key: value for key, value in schema.items() if key in KEYS}
    if kept.get("type") == "any":
        del kept["type"]
    elif "type" in kept:
        kept["type"] = TYPES.get(kept["type"], kept["type"])
    if "properties" in kept:
        kept["properties"] = {name: _schema(inner) for name, inner in kept["properties"].items()}
        kept["required"] = [name for name in kept.get("required", []) if name in kept["properties"]]
    if "items" in kept:
        kept["items"] = _schema(kept["items"])
    return kept


def _gold(name: str, given: Mapping[str, list[Json]], tools: Mapping[str, Tool]) -> GoldCall:
    """Accepted values of each argument; an empty text among them means that it may be left out.

    Where no accepted value fits its schema, the data contradicts itself: what may be left out is left out, and what
    must be given loses its type in the schema.
    """
    parameters = tools[name]["parameters"]
    properties = parameters.get("properties", {})
    required = parameters.get("required", [])
    accepted: dict[str, list[Json]] = {}
    for key, values in given.items():
        whole = [one for value in values if value != "" for one in _flat(value)]
        fitting = [one for one in whole if key in properties and not value_fault(properties[key], one, key)]
        if whole and not fitting and key in required:
            properties[key] = {"description": properties[key].get("description", "")}
            fitting = whole
        if fitting:
            accepted[key] = fitting
        elif "" in values and properties.get(key, {}).get("type") == "string" and key in required:
            accepted[key] = [""]
    return GoldCall(
        name=name,
        arguments={key: values[0] for key, values in accepted.items()},
        accepted={key: values[1:] for key, values in accepted.items() if values[1:]},
        optional=tuple(key for key in accepted if "" in given[key] and key not in required),
    )


def _loosened(call: Call, tools: Mapping[str, Tool]) -> GoldCall:
    """The same for calls with one value an argument."""
    return _gold(call.name, {key: [value] for key, value in call.arguments.items()}, tools)


def _flat(value: Json) -> list[Json]:
    """Nested accepted values, combined into whole ones: {"a": [1, 2]} stands for {"a": 1} and {"a": 2}."""
    if isinstance(value, dict):
        options = [
            [(key, one) for inner in values for one in _flat(inner) if inner != ""] + [None] * ("" in values)
            for key, values in ((k, v if isinstance(v, list) else [v]) for k, v in value.items())
        ]
        combined = itertools.islice(itertools.product(*options), MOST)
        return [dict(pair for pair in pairs if pair is not None) for pairs in combined]
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return [list(parts) for parts in itertools.islice(itertools.product(*map(_flat, value)), MOST)]
    return [value]


def _dialogues(data: "Data") -> Iterator[tuple[str, Item]]:
    """One item a turn."""
    gold = {row["id"]: row["ground_truth"] for row in data.rows(f"possible_answer/{_file('multi_turn_base')}")}
    docs = {kind: data.rows(f"multi_turn_func_doc/{file}.json") for kind, file in DOCS.items()}
    for row in data.rows(_file("multi_turn_base")):
        left_out = set(row.get("excluded_function", []))
        tools = [_tool(tool) for kind in row["involved_classes"] for tool in docs[kind] if tool["name"] not in left_out]
        known = {str(tool["name"]): tool for tool in tools}
        order = {name: list(tool["parameters"]["properties"]) for name, tool in known.items()}
        before: tuple[Message, ...] = ()
        for turn, texts in zip(row["question"], gold[row["id"]], strict=True):
            calls = [_loosened(read_python_call(text, order), known) for text in texts]
            request = "\n\n".join(message["content"] for message in turn)
            if calls:
                item = Item(tools=known.values(), request=request, before=before, calls=calls, ordered=True)
                yield row["id"], item
            said = Message(role="assistant", content=write_calls(gold.call for gold in calls))
            before = (*before, Message(role="user", content=request), said)
