"""Calendar: events of one week, with guests."""

from collections.abc import Callable, Mapping

from curricle.worlds.text.tools.calls import Call
from curricle.worlds.text.tools.schema import Json, tool
from curricle.worlds.text.tools.simulators.base import Chore, Draw, Question, Refused, Simulator, State, variants

DAYS = variants("Monday|Tuesday|Wednesday|Thursday|Friday")
TITLES = variants(
    "budget review|team lunch|piano lesson|dentist|book club|job interview|yoga class|demo|board meeting|"
    "car inspection|parents evening|photo shoot|tax advice|choir|haircut|audit"
)
PEOPLE = variants("Ana|Bilal|Chen|Dora|Emil|Farah|Goran|Hana|Ivo|Jun|Kaya|Luis")
DAY: Json = {"type": "string", "enum": list(DAYS)}
HOUR: Json = {"type": "integer", "description": "Hour of the day, 8 to 18."}


class Calendar(Simulator):
    """State: {"events": [{"id", "title", "day", "hour", "guests"}], "next": id}; one event an hour."""

    name = "calendar"
    tools = (
        tool("list_events", "List the events of a day, or of the whole week.", {}, {"day": DAY}),
        tool("add_event", "Add an event.", {"title": "string", "day": DAY, "hour": HOUR}),
        tool("move_event", "Move an event to another time.", {"event_id": "integer", "day": DAY, "hour": HOUR}),
        tool("cancel_event", "Cancel an event.", {"event_id": "integer"}),
        tool("invite", "Invite a person to an event.", {"event_id": "integer", "person": "string"}),
    )

    def start(self, draw: Draw) -> State:
        """Four events at different times."""
        times = draw.sample([(day, hour) for day in DAYS for hour in range(8, 19)], 4)
        titles = draw.sample(draw.side(TITLES), 4)
        events = [
            {"id": draw.integer(10, 19) + 10 * i, "title": title, "day": day, "hour": hour, "guests": []}
            for i, (title, (day, hour)) in enumerate(zip(titles, times, strict=True))
        ]
        return {"events": events, "next": 100}

    def essence(self, state: State) -> Json:
        """Events by time; the numbers of new events depend on the order of the calls and do not count."""
        plain = [{**event, "guests": sorted(event["guests"], key=str.casefold), "id": 0} for event in state["events"]]
        return sorted(plain, key=lambda event: (DAYS.index(event["day"]), event["hour"]))

    def methods(self) -> Mapping[str, Callable[..., Json]]:
        """The five tools."""
        return {
            "list_events": lambda state, day=None: [e for e in state["events"] if day in (None, e["day"])],
            "add_event": _add,
            "move_event": _move,
            "cancel_event": _cancel,
            "invite": _invite,
        }

    def chore(self, state: State, draw: Draw) -> Chore:
        """Add, move, cancel or invite; the number of an event has to be looked up."""
        busy = {(event["day"], event["hour"]) for event in state["events"]}
        day, hour = draw.choice([(day, hour) for day in DAYS for hour in range(8, 19) if (day, hour) not in busy])
        kind = draw.integer(0, 3) if state["events"] else 0
        if kind == 0:
            taken = {event["title"] for event in state["events"]}
            title = draw.choice([title for title in draw.side(TITLES) if title not in taken] or [f"call {hour}"])
            request = draw.phrase(
                "add {0} on {1} at {2}|put {0} into my calendar, {1}, {2} o'clock|schedule {0}: {1} at {2}|"
                "block {1} {2}:00 for {0}",
                *(title, day, hour),
            )
            return Chore(request, (Call("add_event", {"title": title, "day": day, "hour": hour}),))
        event = draw.choice(state["events"])
        title = event["title"]
        listing = Call("list_events", {})
        number = {"event_id": event["id"]}
        if kind == 1:
            request = draw.phrase(
                "move {0} to {1} at {2}|reschedule {0}: {1}, {2} o'clock|{0} has to be on {1} at {2}|"
                "shift {0} to {1} {2}:00",
                *(title, day, hour),
            )
            return Chore(request, (listing, Call("move_event", {**number, "day": day, "hour": hour})))
        if kind == 2:
            request = draw.phrase("cancel {0}|call off {0}|take {0} out of my calendar|drop {0} from the week", title)
            return Chore(request, (listing, Call("cancel_event", number)))
        person = draw.choice([one for one in draw.side(PEOPLE) if one not in event["guests"]])
        request = draw.phrase(
            "invite {1} to {0}|ask {1} to come to {0}|add {1} to {0}|{0}: {1} should join", title, person
        )
        return Chore(request, (listing, Call("invite", {**number, "person": person})))

    def question(self, state: State, draw: Draw) -> Question:
        """On which day or at what hour something is, or what is on at a time."""
        event = draw.choice(state["events"])
        kind = draw.integer(0, 2)
        if kind == 0:
            request = draw.phrase(
                "On which day is {0}?|What day do I have {0}?|{0}: on what day is it?|Tell me the weekday of {0}.",
                event["title"],
            )
            return Question(request, (Call("list_events", {}),), event["day"])
        if kind == 1:
            request = draw.phrase(
                "At what hour is {0}?|What time does {0} begin?|{0}: at what hour is it?|Tell me the hour of {0}.",
                event["title"],
            )
            return Question(request, (Call("list_events", {}),), str(event["hour"]))
        request = draw.phrase(
            "What is on {0} at {1}?|Which event do I have on {0} at {1}?|{0}, {1} o'clock: what is it?|"
            "What have I planned for {0} {1}:00?",
            *(event["day"], event["hour"]),
        )
        return Question(request, (Call("list_events", {"day": event["day"]}),), event["title"])


def _event(state: State, event_id: int) -> Json:
    found = [event for event in state["events"] if event["id"] == event_id]
    if not found:
        raise Refused(f"there is no event {event_id}")
    return found[0]


def _free(state: State, day: str, hour: int) -> None:
    if not 8 <= hour <= 18:
        raise Refused(f"{hour} is not an hour from 8 to 18")
    if any((event["day"], event["hour"]) == (day, hour) for event in state["events"]):
        raise Refused(f"{day} at {hour} is taken")


def _add(state: State, title: str, day: str, hour: int) -> Json:
    _free(state, day, hour)
    state["events"].append({"id": state["next"], "title": title, "day": day, "hour": hour, "guests": []})
    state["next"] += 1
    return {"event_id": state["next"] - 1}


def _move(state: State, event_id: int, day: str, hour: int) -> str:
    event = _event(state, event_id)
    _free(state, day, hour)
    event.update(day=day, hour=hour)
    return "done"


def _cancel(state: State, event_id: int) -> str:
    state["events"].remove(_event(state, event_id))
    return "done"


def _invite(state: State, event_id: int, person: str) -> str:
    guests = _event(state, event_id)["guests"]
    if person in guests:
        raise Refused(f"{person} is invited already")
    guests.append(person)
    return "done"
