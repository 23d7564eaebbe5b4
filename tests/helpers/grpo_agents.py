"""GRPO agents with a tiny model, and ways to decide what they say."""

from helpers.tiny_model import Pick, Steps, tiny

from curricle.agents.grpo import GRPO, GRPOOptions
from curricle.llm.generate.sampling import Reply


def agent(world=None, **options):
    given = {
        "model": tiny(),
        "device": "cpu",
        "max_tokens": 4,
        "tasks_per_update": 2,
        "group_size": 4,
        "microbatch_size": 8,
        **options,
    }
    return GRPO(world or Pick(), GRPOOptions(**given))


def make_trainer(causal, options, roll_out):
    """A trainer without an agent; its module needs TRL, so it is imported late."""
    from curricle.agents.grpo.trainer import GRPOTrainer

    return GRPOTrainer(causal, options, roll_out)


def scripted(one, *answers):
    """Let an agent say given words, in turn, instead of its own."""
    model, said = one.causal, list(answers)

    def sample_replies(prompts, seed):
        replies = []
        for _ in prompts:
            words = said.pop(0)
            said.append(words)
            end = [] if words is None else [model.ends[0]]
            replies.append(
                Reply([*model.tokenizer("on and on" if words is None else words)["input_ids"], *end], words is not None)
            )
        return replies

    one._sample = sample_replies


def brief(one):
    """Let an agent say a single token: random weights hardly ever end, and what never ends earns nothing."""
    sample = one.sampler.sample
    one.sampler.sample = lambda *given, **how: [Reply(reply.ids[:1], True) for reply in sample(*given, **how)]


class Solved(Steps):
    id = "solved-v1"

    def solution(self, task):
        return ["c", "f"] if task.gold["wanted"] == "a" else ()
