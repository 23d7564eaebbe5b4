"""How fast agents and language models are: the measurements of the study, and their tables.

    python experiments/speed/study.py agents --machine "two CPU cores"      # appends to agents.jsonl
    python experiments/speed/study.py language                              # appends to language.jsonl; a GPU's work
    python experiments/speed/study.py table agents
    python experiments/speed/study.py table language

`agents` runs `benchmarks/agents.py`, which plays and learns in Crafter, beside Stable-Baselines3 on a CPU. `language`
runs `benchmarks/language.py` with an adapter and with all weights, in two sizes of microbatch. `table` runs nothing.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from reporting import append_line, markdown, read_lines

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
AGENTS = HERE / "agents.jsonl"
LANGUAGE = HERE / "language.jsonl"
REFERENCE_STEPS = "Stable-Baselines3, pixels"


class Measurement(NamedTuple):
    """What is observed, how the table names the network and its update, and the words for `benchmarks/agents.py`."""

    observation: str
    network: str
    words: str


ON_CPU = (
    Measurement("symbols", "0.6M parameters, two passes a rollout", "--seconds 20"),
    Measurement("symbols", "0.6M, three passes a rollout", "--seconds 20 --set epochs=3 learning_rate=3e-4"),
    Measurement("pixels", "1.3M, small", "--seconds 20"),
)
ON_GPU = (
    Measurement(
        "pixels",
        "the papers' 3.95M, two passes, 16 minibatches",
        "--no-reference --seconds 4 --threads 15 --set workers=2 environments=256 steps=16 epochs=2 minibatches=16",
    ),
    Measurement("symbols", "0.6M, 1,024 environments", "--no-reference --seconds 4 --threads 8"),
)


def measure_agents(arguments: argparse.Namespace) -> None:
    """Measure agents on this machine."""
    import torch

    for one in ON_GPU if torch.cuda.is_available() else ON_CPU:
        script = str(ROOT / "benchmarks" / "agents.py")
        words = [sys.executable, script, "--json", "--view", one.observation, *one.words.split()]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])[one.observation]
        line = {
            "machine": arguments.machine,
            "observation": one.observation,
            "network": one.network,
            "steps_per_s": found["steps_per_s"],
            "reference": found["reference"],
            "options": found["options"],
        }
        append_line(AGENTS, line)


def measure_language(arguments: argparse.Namespace) -> None:
    """Measure a language model on this machine."""
    for rank in ("16", "0"):  # an adapter, all weights
        for microbatch in ("64", "256"):
            words = ["--repeat", "1", "--updates", "3", "--samplers", "static", "--lora", rank, "--micro", microbatch]
            script = str(ROOT / "benchmarks" / "language.py")
            subprocess.run([sys.executable, script, *words, "--out", str(LANGUAGE)], check=True)


def beside(line: dict[str, Any]) -> str:
    """Steps a second of the reference, and how many times as fast the agent is."""
    reference = line["reference"]
    if reference is None:
        return "-"
    ratio = line["steps_per_s"] / reference
    digits = 0 if ratio >= 10 else 1
    return f"{reference:,.0f} ({ratio:.{digits}f} times)"


def agents_table() -> str:
    """One row a measurement of an agent."""
    rows = []
    for line in read_lines(AGENTS):
        rows.append(
            (line["machine"], line["observation"], line["network"], f"{line['steps_per_s']:,.0f}", beside(line))
        )
    return markdown(("machine", "observation", "network", "steps/s", REFERENCE_STEPS), rows)


def language_table() -> str:
    """One row a measurement of a language model that has all parts."""
    rows = []
    for line in read_lines(LANGUAGE):
        if "writing" not in line:
            continue
        samplers = line["rollouts"]
        asked = line["asked"]
        measured = [samplers["transformers.generate"], samplers["sampler static"]]
        measured += [*line["updates"].values(), line["imitation"]]
        tokens = [f"{part['tokens_per_s']:,}" for part in measured]
        steps = [f"{line['writing'][kind]['steps_per_s']:.0f}" for kind in ("plain", "static")]
        trained = f"adapter of rank {asked['lora']}" if asked["lora"] else "all weights"
        rows.append((line["machine"]["device"], trained, asked["micro"], *tokens, *steps))
    columns = (
        "device",
        "trained",
        "`--micro`",
        "plain `generate`",
        "static",
        "updates, row by row",
        "updates, packed",
        "imitation",
        "writing, growing cache",
        "writing, static",
    )
    return markdown(columns, rows)


def table(arguments: argparse.Namespace) -> None:
    """Print a table."""
    print(agents_table() if arguments.of == "agents" else language_table())


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    agents = commands.add_parser("agents", help=measure_agents.__doc__)
    agents.set_defaults(command=measure_agents)
    agents.add_argument("--machine", required=True, help='how the table names this machine: "two CPU cores"')
    language = commands.add_parser("language", help=measure_language.__doc__)
    language.set_defaults(command=measure_language)
    tables = commands.add_parser("table", help=table.__doc__)
    tables.set_defaults(command=table)
    tables.add_argument("of", choices=("agents", "language"))
    arguments = parser.parse_args(words)
    arguments.command(arguments)


if __name__ == "__main__":
    main()
