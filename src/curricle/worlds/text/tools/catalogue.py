"""Catalogue: the tools of single-answer tasks, in seven domains, and how people ask for them.

An entry has phrasings with the required arguments as slots, and for each optional argument a clause that mentions it.
Every fourth phrasing, name and value is held out: it occurs in tests and never in practice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from curricle.worlds.text.tools.schema import Json, Tool, tool
from curricle.worlds.text.tools.simulators.base import variants

CITIES = variants(
    "Oslo|Lima|Cairo|Quito|Paris|Dakar|Hanoi|Turin|Berlin|Nairobi|Lisbon|Kyoto|Boston|Sydney|Madrid|Prague|Mumbai|Ankara|"
    "Dublin|Vienna"
)
PEOPLE = variants("Ana|Bilal|Chen|Dora|Emil|Farah|Goran|Hana|Ivo|Jun|Kaya|Luis")
MONEY = variants("EUR|USD|JPY|CHF|GBP|NOK|INR|BRL")
ARTISTS = variants("Nina Simone|Daft Punk|Fela Kuti|Edith Piaf|Johnny Cash|Miles Davis|Abba|Cesaria Evora")
TONGUES = variants("French|German|Swahili|Korean|Spanish|Turkish|Polish|Hindi")
SAYINGS = variants(
    "good morning|where is the station|thank you|how much is it|see you later|I am hungry|"
    "happy birthday|the bill please"
)
ROOMS = variants("kitchen|bedroom|office|hall|garage|bathroom|cellar|attic")
DISHES = variants("sushi|pizza|tapas|curry|ramen|falafel|tacos|fondue")
NOTES = variants(
    "the train is late|dinner is at eight|bring an umbrella|the meeting moved|I found your keys|call me back|"
    "the parcel is here|we won"
)


def _whole(low: int, high: int) -> tuple[int, ...]:
    return tuple(range(low, high + 1))


@dataclass(frozen=True)
class Entry:
    """One tool: its domain, what its arguments can be, how it is asked for."""

    domain: str
    tool: Tool
    values: Mapping[str, tuple[Json, ...]]
    phrases: str
    """At least four, with bars between."""
    clauses: Mapping[str, str] = field(default_factory=dict)


def _one_of(*choices: str, default: str) -> Json:
    return {"type": "string", "enum": list(choices), "default": default}


def _number(default: int) -> Json:
    return {"type": "integer", "default": default}


ENTRIES = (
    Entry(
        "weather",
        tool(
            "get_forecast",
            "Weather forecast for a city.",
            {"city": "string"},
            {"days": _number(1), "unit": _one_of("celsius", "fahrenheit", default="celsius")},
        ),
        {"city": CITIES, "days": _whole(2, 9), "unit": ("fahrenheit",) * 4},
        "What will the weather be in {city}|Show me the forecast for {city}|"
        "Will it rain in {city}|I need to know about the weather in {city}",
        {"days": " for the next {days} days", "unit": " in {unit}"},
    ),
    Entry(
        "weather",
        tool("get_sunrise", "Time of sunrise in a city.", {"city": "string"}),
        {"city": CITIES},
        "When does the sun rise in {city}|What time is sunrise in {city}|"
        "Tell me when the sun comes up in {city}|Sunrise in {city}, when is it",
    ),
    Entry(
        "money",
        tool(
            "convert_currency",
            "Convert an amount of money.",
            {"amount": "integer", "source": "string", "target": "string"},
        ),
        {"amount": _whole(5, 900), "source": MONEY, "target": MONEY},
        "How much is {amount} {source} in {target}|Convert {amount} {source} to {target}|"
        "Change {amount} {source} into {target}|What do {amount} {source} make in {target}",
    ),
    Entry(
        "money",
        tool(
            "split_bill",
            "Share a bill among people.",
            {"total": "integer", "people": "integer"},
            {"tip_percent": _number(0)},
        ),
        {"total": _whole(20, 400), "people": _whole(2, 12), "tip_percent": _whole(5, 20)},
        "Split a bill of {total} among {people} people|{people} of us share {total}: what does each pay|"
        "Divide {total} by {people} guests fairly|What is each one's part of {total} for {people} people",
        {"tip_percent": " with a tip of {tip_percent} percent"},
    ),
    Entry(
        "language",
        tool(
            "translate",
            "Translate a text.",
            {"text": "string", "language": "string"},
            {"tone": _one_of("casual", "formal", default="casual")},
        ),
        {"text": SAYINGS, "language": TONGUES, "tone": ("formal",) * 4},
        "Translate '{text}' into {language}|How do I say '{text}' in {language}|"
        "Put '{text}' into {language}|What is '{text}' in {language}",
        {"tone": " in a {tone} tone"},
    ),
    Entry(
        "home",
        tool(
            "set_light",
            "Switch the light of a room.",
            {"room": "string", "on": "boolean"},
            {"brightness": _number(100)},
        ),
        {"room": ROOMS, "on": (True,) * 4, "brightness": _whole(10, 90)},
        "Switch on the light in the {room}|Light in the {room}, please|"
        "Turn the {room} light on|Make it bright in the {room}",
        {"brightness": " at {brightness} percent"},
    ),
    Entry(
        "home",
        tool("set_heating", "Set the temperature of a room.", {"room": "string", "degrees": "integer"}),
        {"room": ROOMS, "degrees": _whole(15, 26)},
        "Heat the {room} to {degrees} degrees|Set the {room} to {degrees} degrees|"
        "I want {degrees} degrees in the {room}|The {room} should have {degrees} degrees",
    ),
    Entry(
        "home",
        tool("set_timer", "Start a timer.", {"minutes": "integer"}, {"label": {"type": "string", "default": ""}}),
        {"minutes": _whole(2, 90), "label": DISHES},
        "Set a timer for {minutes} minutes|Wake me in {minutes} minutes|"
        "Start a countdown of {minutes} minutes|Ring after {minutes} minutes",
        {"label": " with the label {label}"},
    ),
    Entry(
        "music",
        tool(
            "play_music",
            "Play songs of an artist.",
            {"artist": "string"},
            {"room": {"type": "string", "default": ""}, "songs": _number(10)},
        ),
        {"artist": ARTISTS, "room": ROOMS, "songs": _whole(1, 9)},
        "Play {artist}|I want to hear {artist}|Put on some {artist}|Let us listen to {artist}",
        {"room": " in the {room}", "songs": ", {songs} songs"},
    ),
    Entry(
        "travel",
        tool(
            "find_trains",
            "Find trains between two cities.",
            {"origin": "string", "destination": "string"},
            {"seats": _number(1)},
        ),
        {"origin": CITIES, "destination": CITIES, "seats": _whole(2, 8)},
        "Find a train from {origin} to {destination}|How do I get by train from {origin} to {destination}|"
        "Trains from {origin} to {destination}, please|I travel by rail from {origin} to {destination}, find one",
        {"seats": " with {seats} seats"},
    ),
    Entry(
        "travel",
        tool(
            "book_table",
            "Book a table in a restaurant of a city.",
            {"city": "string", "dish": "string", "guests": "integer"},
        ),
        {"city": CITIES, "dish": DISHES, "guests": _whole(2, 9)},
        "Book a table for {guests} in {city} where they serve {dish}|We are {guests} and want {dish} in {city}|"
        "Reserve for {guests} people in {city}, {dish}|{dish} for {guests} of us in {city}: get us a table",
    ),
    Entry(
        "messages",
        tool(
            "send_message",
            "Send a message to a person.",
            {"person": "string", "text": "string"},
            {"urgent": {"type": "boolean", "default": False}},
        ),
        {"person": PEOPLE, "text": NOTES, "urgent": (True,) * 4},
        "Tell {person} '{text}'|Send {person} the message '{text}'|"
        "Write '{text}' to {person}|Let {person} know '{text}'",
        {"urgent": ", it is urgent"},
    ),
)
TOOLS: dict[str, Tool] = {str(entry.tool["name"]): entry.tool for entry in ENTRIES}
