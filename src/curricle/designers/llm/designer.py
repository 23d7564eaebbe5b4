"""EnvGen's designer for any world: a language model reads the brief and answers with designs (arXiv 2403.12014).

Nothing of any world is written here: the prompt is the world's declaration in words (`prompts.py`), the reply is read
with care (`replies.py`). A reply that cannot be used is answered with what is wrong with it and asked for again, inside
the budget; after that the fallback designs this cycle. Both stand in the record: `Design.by` and `Design.changed`. A
text that a design writes out may be no copy of a seed task, nor of a text of another design.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from curricle.designer import Context, Designer, NamingOptions
from curricle.designers.llm import prompts
from curricle.designers.llm.disguise import Disguise
from curricle.designers.llm.replies import Check, Reading, read
from curricle.designers.llm.values import shown_texts, written_out
from curricle.errors import ModelError, ValueRefused
from curricle.llm.clients.budget import Caller
from curricle.llm.clients.choose import open_model
from curricle.llm.clients.options import ModelOptions
from curricle.records import Brief, Design, Exchange, Frozen, FrozenMap, Message, Outcome, Scores, Value
from curricle.registry import named
from curricle.seeds import derive
from curricle.setting import Setting
from curricle.text.similarity import Copies

log = logging.getLogger("curricle")


class LLMOptions(ModelOptions, NamingOptions):
    """Options of the language model designer."""

    naming = ("fallback",)
    renamed: ClassVar[Mapping[str, str]] = {
        "asks": "max_reprompts",
        "chat_tokens": "max_prompt_tokens",
        "near": "copy_threshold",
    }
    max_reprompts: int = Field(2, ge=0, description="How often a reply that cannot be used is asked for again.")
    max_prompt_tokens: int = Field(16_000, ge=0, description="Longest prompt in tokens; older turns are left out.")
    obfuscate: bool = Field(False, description="Replace every name by a token that says nothing (EnvGen's ablation).")
    copy_threshold: float = Field(
        0.8, gt=0, le=1, description="Share of word triples in common from which a text is a copy."
    )
    fallback: str = Field("tutor", description="The designer of a cycle in which the model gave no design.")
    fallback_options: FrozenMap[str, Any] = Field(Frozen(), description="Options of that designer.")


class LLM(Designer):
    """A language model: any OpenAI-compatible endpoint, the embedded one, a person who carries prompts, or a record."""

    id = "llm-v1"
    Options = LLMOptions
    options: LLMOptions

    def __init__(self, setting: type[Setting], options: LLMOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        self.fallback = named(self.options, "fallback", setting, seed)
        self.without = set[str]()  # what its endpoint turned out not to know; found out anew in a resumed run

    def prompt(self, brief: Brief, n: int) -> list[Message]:
        """The exact prompt for a brief: a function of the brief and the options."""
        return prompts.conversation(self._shown(brief), n, self.options.max_prompt_tokens, self.id)

    def prompts(self, brief: Brief, n: int) -> list[list[Message]]:
        """One call for all designs."""
        return [self.prompt(brief, n)]

    def ready(self) -> None:
        """Find the model, without asking it anything."""
        if self.options.model:
            open_model(self.options, Path(), ())
        self.fallback.ready()

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Ask the model; where it gives nothing that can be used, ask the fallback and say so."""
        reading, heard, trouble = self._asked(brief, n, context)
        designs = list(reading.designs)
        if 0 < len(designs) < n:
            log.warning("cycle %d: %s gave %d of %d designs: %s", brief.cycle, self.id, len(designs), n, trouble)
        if not designs:
            reason = f"{self.id} gave no design: {trouble}"[:500]
            log.warning("cycle %d: %s; %s designs instead", brief.cycle, reason, self.fallback.id)
            made = self.fallback.propose(brief, n, context)
            designs = [
                d.model_copy(update={"by": d.by or self.fallback.id, "changed": (*d.changed, reason)}) for d in made
            ]
        figures = {
            "designer/calls": len(heard),
            "designer/failed_calls": sum(bool(exchange.error) for exchange in heard),
            "designer/repaired": sum(bool(design.changed) for design in reading.designs),
            "designer/fallback": not reading.designs,
        }
        context.report({name: float(figure) for name, figure in figures.items()})
        return designs

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """The model learns from its next prompt; the fallback learns here, to be ready."""
        self.fallback.learn(outcomes, scores, context)

    def save(self, folder: Path) -> None:
        """Write the fallback's state; the model's is the run itself."""
        self.fallback.save(folder)

    def load(self, folder: Path) -> None:
        """Read it."""
        self.fallback.load(folder)

    def _shown(self, brief: Brief) -> Brief:
        return Disguise(brief).hide(brief) if self.options.obfuscate else brief

    def _asked(self, brief: Brief, n: int, context: Context) -> tuple[Reading, list[Exchange], str]:
        """The best reading of the model's replies, all that it said, and what went wrong last."""
        shown = self._shown(brief)
        best = Reading()
        trouble = ""
        prompt = asked = self.prompt(brief, n)
        heard: list[Exchange] = []
        try:
            model = open_model(self.options, context.folder, context.kept(), self.without)
            caller = Caller(model, self.options, context, derive(self.seed, "llm", brief.cycle))
            heard = caller.heard
            for _ in range(self.options.max_reprompts + 1):
                exchange = caller.ask(asked, prompts.schema(shown, n))
                if exchange.error:
                    trouble = f"{exchange.model}: {exchange.error}"
                    break
                reading = read(exchange, shown, n, self._check(brief))
                trouble = "; ".join(reading.problems)
                if len(reading.designs) > len(best.designs):
                    best = reading
                if len(best.designs) >= n:
                    break
                asked = prompts.again(prompt, exchange.reply, reading.problems, n)
        except ModelError as error:
            trouble = str(error)
        if self.options.obfuscate:
            disguise = Disguise(brief)
            best = Reading(tuple(disguise.show(design) for design in best.designs), best.problems)
            trouble = disguise.plain(trouble)
        return best, heard, trouble

    def _check(self, brief: Brief) -> Check:
        """Hold values to the world's own rules, in the words that the model knows; what it writes out must be new."""
        disguise = Disguise(brief) if self.options.obfuscate else None
        tried = [o.design.setting for cycle in brief.past for o in cycle.designed]
        known = [text for values in tried for text in written_out(self.setting, values, brief.original)]
        copies = Copies(self.options.copy_threshold, texts=[*shown_texts(self.setting, brief), *known])

        def check(values: Mapping[str, Value]) -> Mapping[str, Value]:
            real = disguise.real(values) if disguise else values
            try:
                whole = self.setting.of({**brief.original, **real}).values
            except ValueRefused as error:
                raise ValueRefused(disguise.text(str(error)) if disguise else str(error)) from None
            texts = written_out(self.setting, whole, brief.original)
            for why in filter(None, map(copies.refusal, texts)):
                raise ValueRefused(f"its text is {why}")
            for text in texts:
                copies.add(text)
            return disguise.values(whole) if disguise else whole

        return check
