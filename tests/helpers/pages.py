"""What tests of pages share: reading them, and making what they run small."""

import re

from helpers.tiny_model import tiny

from curricle import config

SMALL = ["schedule.per_cycle=400", "schedule.final=100", "schedule.save_every=200", "schedule.test_seeds=2"]


def blocks(text, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [content for name, content in found if name == language]


def tiny_players(plain):
    """Pairs that give every player with a language model a tiny one, and little to do."""
    resolved = config.resolve(plain)
    options = {"agent": resolved.agent_options, "designer": resolved.designer_options}
    mine = {part: set(type(o).model_fields) for part, o in options.items() if "lora" in type(o).model_fields}
    if not any(mine.values()):
        return []
    few = {"model": tiny(), "group_size": 4, "tasks_per_update": 2, "max_tokens": 4, "sample_batch": 16}
    few |= {"microbatch_size": 8, "max_text_tokens": 4}
    pairs = [f"{part}.{name}={value}" for part, known in mine.items() for name, value in few.items() if name in known]
    for part, known in mine.items():
        for name in ("imitation_updates", "imitation_passes"):
            if name in known and getattr(options[part], name):
                pairs.append(f"{part}.{name}=1")
    schedule = ["schedule.per_cycle=16", "schedule.designs=2", "schedule.cycles=2", "schedule.final=0"]
    return [*pairs, *schedule] if pairs else []


def part(text, name):
    """What stands between the comments of a generated part."""
    return text.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0].strip().splitlines()
