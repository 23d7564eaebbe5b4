"""The table of results in the project's README: `python experiments/common/headlines.py`.

The score over training episodes of the main runs, beside the published one. `±` is one standard deviation over seeds.
"""

from pathlib import Path
from typing import Any, NamedTuple

from reporting import deviation, markdown, option, read_lines

STUDIES = Path(__file__).parents[1]


class Headline(NamedTuple):
    """A row: its label, the file of its runs, which of them count, and the published score.

    `option` is an option of a part of the run, such as `agent.environments`, or else a field of the line.
    """

    label: str
    file: str
    option: str
    value: Any
    published: str = "-"

    def counts(self, line: dict[str, Any]) -> bool:
        """Whether a run belongs to this row."""
        part, _, name = self.option.partition(".")
        found = option(line, part, name) if name else line[part]
        return bool(found == self.value)


ENVGEN = "envgen-crafter/results.jsonl"
DESIGNERS = "designers-crafter/runs.jsonl"
HEADLINES = (
    Headline("PPO, pixels, 1M steps", "ppo-crafter/results.jsonl", "agent.environments", 64, "15.5 ± 0.6"),
    Headline(
        "Achievement distillation, pixels, 1M steps",
        "distillation-crafter/results.jsonl",
        "agent.id",
        "distill-v1",
        "21.8 ± 1.4",
    ),
    Headline(
        "PPO, pixels, EnvGen's 1.96M steps, `tutor` designs 4 times (published: GPT-4)",
        ENVGEN,
        "designer.id",
        "tutor-v1",
        "32.2 ± 0.6",
    ),
    Headline("the same steps from pixels without designs", ENVGEN, "designer.id", "none-v1", "26.4 ± 2.1"),
    Headline(
        "PPO of three passes, symbols, 1.96M steps, `policy` designs 40 times",
        DESIGNERS,
        "condition",
        "policy, 40 cycles",
    ),
    Headline("the same, `tutor`", DESIGNERS, "condition", "tutor, 40 cycles"),
    Headline("the same, `random`", DESIGNERS, "condition", "random, 40 cycles"),
    Headline("the same steps without designs", DESIGNERS, "condition", "none"),
)


def main() -> None:
    """Print the table."""
    rows = []
    for headline in HEADLINES:
        runs = [line for line in read_lines(STUDIES / headline.file) if headline.counts(line)]
        seeds = {run["config"]["seed"] for run in runs}
        score = deviation([run["trained"]["headline"] for run in runs])
        rows.append((headline.label, len(seeds), score, headline.published))
    print(markdown(("Crafter, score over training episodes", "seeds", "Curricle", "published"), rows))


if __name__ == "__main__":
    main()
