"""The weights of the recognizer: sets of logistic models over named features.

`user_acts` and `agent_acts` give the probability of each dialogue act of a message; `items` that of each kind of item
in a sentence; the same names with `_in_context` combine these with the estimates of the encoder (`encoder.py`); `lines`
gives the probability that the quoted sentences of an exchange together state a decision; `prompts` that a prompt needs
something of the memory, rather than general knowledge or what is in the window. The file is text, so that a person can
read what counts: one feature a line, then its weight for each output in the order of the header.
`benchmarks/train_recognizer.py` writes it.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import add
from pathlib import Path

from mcp_server.text.prose import is_injected
from mcp_server.text.words import languages_of
from mcp_server.understanding.features import (
    Features,
    Message,
    features_in_context,
    message_features,
    sentence_features,
)
from mcp_server.understanding.sentences import is_question

SHIPPED = Path(__file__).parent.parent / "data" / "recognizer.tsv.xz"


SECTIONS = (
    "user_acts", "agent_acts", "items",
    "user_acts_in_context", "agent_acts_in_context", "items_in_context",
    "lines", "prompts",
)  # fmt: skip
"""The sections of a weights file, which are the fields of `Model`."""


LONGEST_PROMPT = 2_000
"""Characters. The rest of a longer prompt is not judged: a prompt may have megabytes."""


BY_PROGRAM = 0.2
"""A message is a program's if the probability, by its words alone, is at least this. In held-out conversations this
finds 83 of 86 program messages that have no marker, and takes one of 3,542 messages of people for a program's."""

ASKS, STATED = 0.4, 0.3
"""A message only asks if the probability of a task or a question is at least `ASKS`, and that of each act that states
something is below `STATED`. Of 649 such turns without a number among the candidates of 1,120 prompts, 2 held what a
prompt needed, and none of the 66 that were pushed."""

STATES = ("fact", "rule", "need", "report", "directive", "revise", "amend", "refuse", "accept")


@cache
def recognizer(path: Path = SHIPPED) -> Model:
    """Returns the model of a weights file. Loading takes about 0.1 s: call it in a worker thread the first time."""
    return parse(lzma.decompress(path.read_bytes()).decode())


@dataclass(frozen=True, slots=True)
class Logistic:
    """Several logistic regressions over the same features: number `k` of `weights[feature]` belongs to `outputs[k]`.

    A row of a file stays text until a feature needs it: a message needs a few hundred of 130,000 rows.
    """

    outputs: tuple[str, ...]
    bias: tuple[float, ...]
    weights: Mapping[str, str | tuple[float, ...]]

    def probabilities(self, features: Features) -> dict[str, float]:
        """Returns the probability of each output, 0 to 1."""
        totals: Iterable[float] = self.bias
        for name, value in features.items():
            row = self.weights.get(name)
            if isinstance(row, str):
                row = numbers(row)
            if row is not None:  # `map` is faster than a loop: this is called for each sentence
                totals = list(map(add, totals, row if value == 1.0 else [weight * value for weight in row]))
        return {name: _sigmoid(total) for name, total in zip(self.outputs, totals, strict=True)}


@dataclass(frozen=True, slots=True)
class PromptNeeds:
    """The probabilities, 0 to 1, that a prompt needs something of the memory, and that it needs open items ("what is
    left before I leave?")."""

    memory: float
    open_items: float


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """The models of the recognizer, by what they judge."""

    user_acts: Logistic
    agent_acts: Logistic
    items: Logistic
    user_acts_in_context: Logistic
    agent_acts_in_context: Logistic
    items_in_context: Logistic
    lines: Logistic
    prompts: Logistic

    def acts(self, message: Message) -> dict[str, float]:
        """Returns the probability of each dialogue act of a message."""
        by_user = message.role == "user"
        found = (self.user_acts if by_user else self.agent_acts).probabilities(message_features(message))
        if not message.estimates_of_all:
            return found
        of_role = self.user_acts_in_context if by_user else self.agent_acts_in_context
        return of_role.probabilities(features_in_context(found, message.estimates_of_all))

    def shares(self, message: Message) -> list[dict[str, float]]:
        """Returns for each sentence of a message the probability of each kind of item. The message's acts must be
        set."""
        places = range(len(message.sentences))
        found = [self.items.probabilities(sentence_features(message, place)) for place in places]
        for place, (alone, estimates) in enumerate(zip(found, message.estimates, strict=False)):
            found[place] = self.items_in_context.probabilities(features_in_context(alone, estimates, message.role))
        return found

    def only_asks(self, message: str) -> bool:
        """Returns whether a message of the user is a task or a question that states nothing. Sentences beside the
        questions are judged: "I lost my job this month. How are you?". A message with a number never counts, because
        somebody may look for the number: "add the bank to the footer: IBAN DE02 …"."""
        if any(map(str.isdigit, message)):
            return False
        beside = " ".join(one.text for one in _alone(message).sentences if not is_question(one.text))
        acts = self._acts_of((beside or message)[:LONGEST_PROMPT])
        return max(acts["task"], acts["question"]) >= ASKS and max(acts[act] for act in STATES) < STATED

    def by_program(self, message: str) -> bool:
        """Returns whether a program wrote a message under the user's name, judged by its markers and its words."""
        return is_injected(message) or self._acts_of(message[:LONGEST_PROMPT])["program"] >= BY_PROGRAM

    @lru_cache(maxsize=4096)  # noqa: B019 - there is one model; the same turns are candidates for many prompts
    def _acts_of(self, message: str) -> Mapping[str, float]:
        return self.acts(_alone(message))

    @lru_cache(maxsize=4096)  # noqa: B019 - as above
    def states(self, kind: str, text: str) -> float:
        """Returns the highest probability with which a sentence of a text states an item of this kind, judged by its
        words."""
        said = _alone(text)
        said.acts = self.acts(said)
        return max((share[kind] for share in self.shares(said)), default=0.0)

    def needs(self, prompt: str) -> PromptNeeds:
        """Returns what a prompt probably needs, judged by its words."""
        return PromptNeeds(**self.prompts.probabilities(message_features(_alone(prompt))))


def _alone(text: str) -> Message:
    """Returns the beginning of a text of the user as a message without others around it."""
    said = text[:LONGEST_PROMPT]
    return Message("user", said, language=languages_of([said])[0])


def parse(text: str) -> Model:
    """Returns the model of a weights file. Raises ValueError if the text is not a weights file."""
    parts: dict[str, Logistic] = {}
    for section in text.split("\n["):
        header, bias, *rows = section.removeprefix("[").splitlines()
        name, *outputs = header.split("\t")
        weights: dict[str, str | tuple[float, ...]] = {}
        for line in rows:
            feature, _, row = line.partition("\t")
            weights[feature] = row
        parts[name.removesuffix("]")] = Logistic(tuple(outputs), numbers(bias.partition("\t")[2]), weights)
    try:
        return Model(*(parts[name] for name in SECTIONS))
    except KeyError as error:
        raise ValueError(f"the weights file has no section {error}") from error


@cache
def numbers(row: str) -> tuple[float, ...]:
    """Returns the weights in a row of the weights file."""
    return tuple(float(number) if number else 0.0 for number in row.split("\t"))


def _sigmoid(total: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))
