"""Options of the environment policy."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from curricle.designer import LeaveOptions
from curricle.errors import UsageError
from curricle.llm.models.loading import CausalOptions
from curricle.setting import Setting


class LanguageOptions(CausalOptions, LeaveOptions):
    """Options of the environment policy; the defaults are GenEnv's."""

    renamed: ClassVar[Mapping[str, str]] = {
        "kl": "kl_coef",
        "kl_cap": "max_kl",
        "batch": "batch_size",
        "micro": "microbatch_size",
        "old": "replay_ratio",
        "warm": "imitation_passes",
        "text_tokens": "max_text_tokens",
        "spare": "oversample",
        "rounds": "max_rounds",
        "near": "copy_threshold",
    }

    learning_rate: float = Field(5e-7, ge=0, description="Learning rate of AdamW.")
    learn: bool = Field(True, description="Whether it is trained; false: the frozen environment of the ablation.")
    alpha: float = Field(0.5, gt=0, lt=1, description="Success rate that teaches most.")
    beta: float = Field(2.0, ge=0, description="How fast the reward falls away from alpha.")
    k_min: float = Field(0.1, ge=0, le=1, description="Half the width of the band that designs train in.")
    strength: float = Field(1.0, ge=0, description="Lambda: weights are exp(strength * reward).")
    n: int = Field(4, ge=1, description="Attempts that a success rate must rest on; with fewer a design is left out.")
    p_over: Literal["task", "group", "batch"] = Field(
        "task",
        description="What success is counted over. task: equal ones together; group: all that vary one seed; batch: "
        "all designs of a cycle, which then weigh the same, and the filter decides whether they are learnt at all.",
    )
    band: Literal["strict", "soft", "off"] = Field(
        "strict", description="The filter. strict: as published; soft: by the chance of being in the band; off: none."
    )
    cold_start: bool = Field(
        True,
        description="Where nothing passes a strict filter and designs differ by more than chance: the soft one.",
    )
    explore: float = Field(
        4.0,
        ge=0,
        description="After cycles that taught nothing, the initial model writes half of the candidates, at up to this "
        "times the temperature; 0: never.",
    )
    initial_share: float = Field(
        0.0, ge=0, lt=1, description="Share of the candidates that the initial model writes in all other cycles."
    )
    kl_coef: float = Field(0.01, ge=0, description="Weight of the KL divergence from the initial model.")
    max_kl: float = Field(0.05, gt=0, description="Most KL divergence of one update, in nats a token.")
    batch_size: int = Field(64, ge=1, description="Records of one update.")
    epochs: int = Field(1, ge=1, description="Passes over the records, a cycle.")
    replay_ratio: float = Field(0.0, ge=0, description="Old records of D_env trained on again, for each new one.")
    imitation_passes: int = Field(
        0, ge=0, description="Passes over the seed tasks of the first cycle before any is written: for small models."
    )
    microbatch_size: int = Field(8, ge=1, description="Records that go through the network at a time.")
    temperature: float = Field(1.0, gt=0, description="Temperature of writing.")
    text: Literal["required", "allowed", "off"] = Field(
        "allowed", description="Knobs that hold text. required: are written; allowed: may be; off: stay as they are."
    )
    requests: Literal["full", "short"] = Field(
        "full",
        description="What the policy is asked. full: in sentences, with the world's guide; short: the seed task and "
        "the agent's success in numbers, for models that read letter by letter.",
    )
    max_text_tokens: int = Field(384, ge=1, description="Most tokens of one text.")
    aim: Literal["skill", "task"] = Field(
        "skill", description="skill: each design aims at one. task: a text task's own skill counts as its success."
    )
    oversample: float = Field(1.5, ge=1, description="Candidates written for each design that is wanted.")
    max_rounds: int = Field(3, ge=1, description="How often candidates are written before the fallback steps in.")
    copy_threshold: float = Field(
        0.8, gt=0, le=1, description="Share of word triples in common from which a text is a copy."
    )
    copy_cycles: int = Field(
        0,
        ge=0,
        description="The last cycles whose designs a text may not copy; 0: all cycles. For worlds with few texts.",
    )
    sample_batch: int = Field(64, ge=1, description="Replies drawn at a time.")

    def check(self, setting: type[Setting]) -> None:
        """Refuse, too, to require texts where there are none to write."""
        super().check(setting)
        if self.text == "required" and all(k.kind != "text" for k in setting.knobs()):
            raise UsageError("text = 'required', but no knob of this world holds text; leave it at 'allowed'")
