"""EnvGen's designer for any world: a language model reads the brief and answers with designs (arXiv 2403.12014).

In: a brief. Out: designs. The prompt is the world's declaration in words (`prompts.py`); `replies.py` reads the reply.
If a reply cannot be used, the model is told what is wrong with it and asked again, within the budget. If that does not
help, the fallback designs this cycle. `Design.by` and `Design.changed` record both. A text that a design writes may not
be a copy of a seed task or of a text of another design.
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
from curricle.errors import ModelError, ValueRefused
from curricle.llm.clients.budget import Caller
from curricle.llm.clients.choose import open_model
from curricle.llm.clients.options import ModelOptions
from curricle.records import Brief, Design, Exchange, Frozen, FrozenMap, Message, Outcome, Scores, Value
from curricle.registry import named
from curricle.seeds import derive
from curricle.setting import Setting, shown_texts, written_texts
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
    max_reprompts: int = Field(2, ge=0, description="How often it is asked again after a reply that cannot be used.")
    max_prompt_tokens: int = Field(16_000, ge=0, description="Longest prompt in tokens; older turns are left out.")
    obfuscate: bool = Field(False, description="Replace every name by a token that says nothing (EnvGen's ablation).")
    copy_threshold: float = Field(
        0.8, gt=0, le=1, description="Share of word triples in common from which a text is a copy."
    )
    fallback: str = Field("tutor", description="The designer of a cycle in which the model gave no design.")
    fallback_options: FrozenMap[str, Any] = Field(Frozen(), description="Options of that designer.")


class LLM(Designer):
    """Asks a language model: any OpenAI-compatible endpoint, the embedded model, a person, or the record of a run."""

    id = "llm-v1"
    Options = LLMOptions
    options: LLMOptions

    def __init__(self, setting: type[Setting], options: LLMOptions | None = None, seed: int = 0) -> None:
        super().__init__(setting, options, seed)
        self.fallback = named(self.options, "fallback", setting, seed)
        self.without = set[str]()  # request fields that its endpoint refused; a resumed run finds them out again

    def prompt(self, brief: Brief, n: int) -> list[Message]:
        """The exact prompt for a brief: a function of the brief and the options."""
        return prompts.conversation(self._shown(brief), n, self.options.max_prompt_tokens, self.id)

    def prompts(self, brief: Brief, n: int) -> list[list[Message]]:
        """The prompt of the one call for all designs."""
        return [self.prompt(brief, n)]

    def ready(self) -> None:
        """Check that the model can be reached, without asking it anything."""
        if self.options.model:
            open_model(self.options, Path(), ())
        self.fallback.ready()

    def propose(self, brief: Brief, n: int, context: Context) -> list[Design]:
        """Ask the model; if it gives no design that can be used, ask the fallback, and record why."""
        reading, exchanges, trouble = self._ask(brief, n, context)
        designs = list(reading.designs)
        if 0 < len(designs) < n:
            log.warning("cycle %d: %s gave %d of %d designs: %s", brief.cycle, self.id, len(designs), n, trouble)
        if not designs:
            reason = f"{self.id} gave no design: {trouble}"[:500]
            log.warning("cycle %d: %s; %s designs instead", brief.cycle, reason, self.fallback.id)
            for design in self.fallback.propose(brief, n, context):
                by = design.by or self.fallback.id
                designs.append(design.model_copy(update={"by": by, "changed": (*design.changed, reason)}))
        context.report(
            {
                "designer/calls": float(len(exchanges)),
                "designer/failed_calls": float(sum(bool(exchange.error) for exchange in exchanges)),
                "designer/repaired": float(sum(bool(design.changed) for design in reading.designs)),
                "designer/fallback": float(not reading.designs),
            }
        )
        return designs

    def learn(self, outcomes: Sequence[Outcome], scores: Scores, context: Context) -> None:
        """Let the fallback learn, so that it is ready. The model sees the outcomes in its next prompt."""
        self.fallback.learn(outcomes, scores, context)

    def save(self, folder: Path) -> None:
        """Write the fallback's state; the model's is the run itself."""
        self.fallback.save(folder)

    def load(self, folder: Path) -> None:
        """Read it."""
        self.fallback.load(folder)

    def _shown(self, brief: Brief) -> Brief:
        """The brief as the model sees it."""
        return Disguise(brief).hide(brief) if self.options.obfuscate else brief

    def _ask(self, brief: Brief, n: int, context: Context) -> tuple[Reading, list[Exchange], str]:
        """Ask until a reply has all designs; returns the best reading, all exchanges, and what went wrong last."""
        shown = self._shown(brief)
        best = Reading()
        trouble = ""
        prompt = self.prompt(brief, n)
        messages = prompt
        exchanges: list[Exchange] = []
        try:
            model = open_model(self.options, context.folder, context.kept(), self.without)
            caller = Caller(model, self.options, context, derive(self.seed, "llm", brief.cycle))
            exchanges = caller.heard
            for _ in range(self.options.max_reprompts + 1):
                exchange = caller.ask(messages, prompts.schema(shown, n))
                if exchange.error:
                    trouble = f"{exchange.model}: {exchange.error}"
                    break
                reading = read(exchange, shown, n, self._check(brief))
                trouble = "; ".join(reading.problems)
                if len(reading.designs) > len(best.designs):
                    best = reading
                if len(best.designs) >= n:
                    break
                messages = prompts.again(prompt, exchange.reply, reading.problems, n)
        except ModelError as error:
            trouble = str(error)
        if self.options.obfuscate:
            disguise = Disguise(brief)
            best = Reading(tuple(disguise.reveal(design) for design in best.designs), best.problems)
            trouble = disguise.plain(trouble)
        return best, exchanges, trouble

    def _check(self, brief: Brief) -> Check:
        """A check of a design's knobs by the world's rules, in the words that the model knows; texts must be new."""
        disguise = Disguise(brief) if self.options.obfuscate else None
        known = shown_texts(self.setting, brief)
        for cycle in brief.past:
            for outcome in cycle.designed:
                known += written_texts(self.setting, outcome.design.setting, brief.original)
        copies = Copies(self.options.copy_threshold, texts=known)

        def check(values: Mapping[str, Value]) -> Mapping[str, Value]:
            real = disguise.real(values) if disguise else values
            try:
                whole = self.setting.of({**brief.original, **real}).values
            except ValueRefused as error:
                raise ValueRefused(disguise.text(str(error)) if disguise else str(error)) from None
            texts = written_texts(self.setting, whole, brief.original)
            for text in texts:
                if why := copies.refusal(text):
                    raise ValueRefused(f"its text is {why}")
            for text in texts:
                copies.add(text)
            return disguise.values(whole) if disguise else whole

        return check
