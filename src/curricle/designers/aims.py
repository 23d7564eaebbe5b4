"""What to aim at next: the weakest skills within reach. Shared by designers that teach one skill a design."""

from collections.abc import Mapping, Sequence

from pydantic import Field

from curricle.records import Options, Skill


class AimOptions(Options):
    """Which skills are worth a design."""

    reach: float = Field(0.1, ge=0, le=1, description="Success from which on a skill can be built upon.")
    mastered: float = Field(0.9, ge=0, le=1, description="Success from which on a skill needs no more designs.")


def aims(skills: Sequence[Skill], rates: Mapping[str, float], options: AimOptions) -> list[Skill]:
    """Skills to teach, weakest first: those whose prerequisites are in reach; mastered ones only if all are."""

    def rate(skill: Skill) -> float:
        return rates.get(skill.name, 0.0)

    near = [s for s in skills if all(rates.get(need, 0.0) >= options.reach for need in s.needs)]
    order = sorted(near, key=rate)  # stable: the tree's order breaks ties
    return [s for s in order if rate(s) < options.mastered] or order
