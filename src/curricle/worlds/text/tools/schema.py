"""Schemas of tools: which are well formed, and which values fit. A strict, small part of JSON Schema.

    {"name": "get_weather", "description": "...", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"]}}

Types are JSON's and are not converted: "5" is no integer, 5.0 is none either, true is no number; 5 is a number. A
schema without a type takes any value.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

Json = Any  # plain JSON data, already parsed
Tool = Mapping[str, Json]
KEYS = {"type", "description", "properties", "required", "items", "enum", "default"}
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
DEEPEST = 6


def tool(name: str, description: str, required: Mapping[str, Json], optional: Mapping[str, Json] | None = None) -> Tool:
    """Write down a tool: a schema for each argument, or just the name of its type."""
    fields = {**required, **(optional or {})}
    properties = {key: {"type": schema} if isinstance(schema, str) else schema for key, schema in fields.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "parameters": parameters}


def shown(value: object, most: int = 60) -> str:
    """A value of unknown origin as a short line of plain ASCII, safe for logs and records."""
    try:
        text = ascii(value)
    except RecursionError:
        return "something nested very deeply"
    return text if len(text) <= most else f"{text[:most]}..."


def tool_fault(tool: Json) -> str:
    """What is wrong with a tool's schema, in words; empty where it is well formed."""
    if not isinstance(tool, Mapping) or set(tool) - {"name", "description", "parameters"}:
        return f"a tool is an object of name, description and parameters, not {shown(tool)}"
    name = tool.get("name")
    if not isinstance(name, str) or not name or len(name) > 100 or not name.replace(".", "_").isidentifier():
        return f"a tool's name is a word like 'get_weather', not {shown(name)}"
    if not isinstance(tool.get("description", ""), str):
        return f"{shown(name)}: its description is no text"
    parameters = tool.get("parameters")
    if not isinstance(parameters, Mapping) or parameters.get("type") != "object":
        return f"{shown(name)}: its parameters are a schema of type 'object'"
    fault = schema_fault(parameters)
    return f"{shown(name)}: {fault}" if fault else ""


def schema_fault(schema: Json, depth: int = 0) -> str:
    """What is wrong with a schema; empty where it is well formed."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return f"{shown(schema)} is no schema" if depth <= DEEPEST else "its schema is nested too deeply"
    if unknown := set(schema) - KEYS:
        return f"unknown key {shown(min(unknown))} in a schema"
    kind = schema.get("type")
    if kind is not None and (not isinstance(kind, str) or kind not in KINDS):
        return f"{shown(kind)} is no type; there are {', '.join(KINDS)}"
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return "properties are an object and required is a list"
    if any(not isinstance(name, str) or name not in properties for name in required):
        return f"required names an argument that is no property: {shown(required)}"
    choices = schema.get("enum")
    if choices is not None and (not isinstance(choices, list) or not choices):
        return f"an enum is a list of values, not {shown(choices)}"
    inner = [*properties.values(), *([schema["items"]] if "items" in schema else [])]
    return next((fault for part in inner if (fault := schema_fault(part, depth + 1))), "")


def value_fault(schema: Json, value: Json, where: str, depth: int = 0) -> str:
    """Why a value does not fit a schema; empty where it does."""
    kind = schema.get("type")
    choices = schema.get("enum")
    if (kind and not isinstance(value, KINDS[kind])) or (isinstance(value, bool) and kind not in (None, "boolean")):
        return f"{where} must be of type {kind}, not {shown(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where} must be a number that can be written, not {value}"
    if choices and value not in choices:
        return f"{where} must be one of {shown(choices)}, not {shown(value)}"
    if depth > DEEPEST:
        return f"{where} is nested too deeply"
    if isinstance(value, dict) and "properties" in schema:
        return arguments_fault(schema, value, f"{where}.", depth + 1)
    if isinstance(value, list) and "items" in schema:
        parts = (value_fault(schema["items"], part, f"{where}[{i}]", depth + 1) for i, part in enumerate(value))
        return next((fault for fault in parts if fault), "")
    return ""


def arguments_fault(schema: Json, arguments: Mapping[str, Json], prefix: str = "", depth: int = 0) -> str:
    """Why arguments do not fit an object schema: unknown ones, missing ones, wrong types; empty where they fit."""
    properties = cast(Mapping[str, Json], schema.get("properties", {}))
    for name, value in arguments.items():
        if name not in properties:
            return f"unknown argument {shown(prefix + name)}"
        if fault := value_fault(properties[name], value, f"{prefix}{name}", depth):
            return fault
    missing = [name for name in schema.get("required", []) if name not in arguments]
    return f"missing argument {shown(prefix + missing[0])}" if missing else ""
