"""Fits the layers of the encoder that compare statements: pairs of an older and a newer one, and prompts with the lines
that they need.

    pip install -e '.[train]'
    python -m benchmarks.train_statements benchmarks/conversations/{train,talk}/*.json --estimates FILE --halves FOLDER

It comes after `benchmarks/train_encoder.py`, which writes the estimates and the networks of the halves, and after
`benchmarks/train_recognizer.py`. The upper layers of all-MiniLM-L6-v2 are fitted twice more, and added to
`mcp_server/data/encoder.npz`:

- for pairs, on the statements that the recognizer finds in labeled conversations which it has not seen, on the texts of
  their labels, and on the lists of `benchmarks/replacements/train.jsonl`: does the newer statement replace the older
  one, does the report close the open item?
- for texts, on the prompts of these conversations and of `benchmarks/projects/`: of all lines and turns those that a
  prompt needs should be nearest, and none should be near to a prompt that needs nothing.

This is done on each half of the writers, too. With the networks of the halves the script prints how well the pairs of
the other half are told apart, with the weights for `mcp_server/understanding/settling.py`; the same networks are used
by `benchmarks/fit_push.py`. Each fitting takes up to half an hour of one core.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from torch import nn
from torch.nn import functional

from benchmarks import train_recognizer
from benchmarks.train_encoder import SIZE, Layers, fit, means, with_layers, without_statements
from benchmarks.train_recognizer import DAYS_APART, REPLACEMENTS, Conversation, holds
from mcp_server.understanding import encoder
from mcp_server.understanding.encoder import SEPARATOR, START, statement_tokens, text_tokens
from mcp_server.understanding.model import Model
from mcp_server.understanding.settling import (
    CLOSING,
    LEAST_CLOSED,
    LEAST_REPLACED,
    OF_LONG,
    OF_SHORT,
    Statement,
    are_short,
    logistic,
)

LABEL_KINDS = {"decisions": "decision", "rules": "rule", "facts": "fact"}

PAIR_ROUNDS, PAIR_BATCH, PAIR_RATE, OTHERS = 2, 24, 3e-4, 6
"""Rounds, pairs of a batch, learning rate, and pairs of which nothing follows for each of the others."""

OTHER_LABELS = 6
"""Pairs of labels of which nothing follows, for each that is replaced."""

TEXT_ROUNDS, TEXT_RATE, TEMPERATURE = 2, 2e-4, 0.05
"""Rounds, learning rate, and the divisor of cosines."""

TOGETHER, MOST_LINES, MOST_TURNS, LONGEST_TURN = 3, 48, 14, 700
"""Conversations of a step, the lines and turns of each that prompts are compared with, and characters of a turn."""

ELSEWHERE = 0.3
"""The factor of the loss for prompts and the lines of another conversation, of which they need nothing."""

PROJECTS = Path(__file__).parent / "projects"
"""Memories of made-up projects: statements in order of time, with the older ones that each replaces or closes, and
prompts with the statements that each needs."""


@dataclass(frozen=True)
class Pair:
    """Kind and text of an older and of a newer statement, and whether the newer one replaces or closes the older one.
    `words` is the probability that their words give, None for texts of labels."""

    old: tuple[str, str]
    new: tuple[str, str]
    right: bool
    words: float | None = None
    is_short: bool = False

    @property
    def model(self) -> str:
        """The weights that the pair belongs to."""
        return "CLOSING_READ" if self.new[0] == "report" else "SHORT_READ" if self.is_short else "LONG_READ"


@dataclass(frozen=True)
class Prompt:
    """A prompt, the places of the lines and of the turns that it needs, and whether it needs anything at all. What it
    needs may be in none of them."""

    text: str
    lines: frozenset[int]
    turns: frozenset[int]
    needs: bool


@dataclass(frozen=True)
class Asked:
    """The lines, turns and prompts of a conversation or project."""

    lines: tuple[str, ...]
    turns: tuple[str, ...]
    prompts: tuple[Prompt, ...]


class PairNetwork(Layers):
    """`encoder.Network.of_pair` in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs = nn.Linear(3 * SIZE, 2)
        nn.init.normal_(self.outputs.weight, std=0.02)
        nn.init.constant_(self.outputs.bias, -2.0)

    def forward(self, pairs: Sequence[Pair]) -> torch.Tensor:
        """Returns the logit of each pair."""
        texts = [(statement_tokens(*pair.old), statement_tokens(*pair.new)) for pair in pairs]
        rows = self.rows([[START, *old, SEPARATOR, *new, SEPARATOR] for old, new in texts])
        one = means(rows, [(at, 0, len(old) + 1) for at, (old, _) in enumerate(texts)])
        spans = [(at, len(old) + 2, len(old) + 2 + len(new)) for at, (old, new) in enumerate(texts)]
        other = means(rows, spans)
        both = self.outputs(torch.cat([one, other, (one - other).abs()], 1))
        found: torch.Tensor = both[range(len(pairs)), [int(pair.new[0] == "report") for pair in pairs]]
        return found


class TextNetwork(Layers):
    """`encoder.Network.of_text` in torch. A text whose cosine with a prompt is below `nothing` is not needed."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.tensor(0.3))

    def forward(self, texts: Sequence[str]) -> torch.Tensor:
        """Returns the vector of each text."""
        tokens = [[START, *text_tokens(text), SEPARATOR] for text in texts]
        return functional.normalize(
            means(self.rows(tokens), [(at, 0, len(one)) for at, one in enumerate(tokens)]), dim=1
        )

    def cosines(self, prompts: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        """Returns the cosines of prompts with texts and, as a last column, `nothing`, divided by TEMPERATURE."""
        return torch.cat([prompts @ texts.T, self.nothing.expand(len(prompts), 1)], 1) / TEMPERATURE


def pairs_of(one: Conversation, own: Sequence[Statement], chance: random.Random) -> Iterator[Pair]:
    """Yields the pairs of a conversation's recognized statements, and of its labels."""
    labels = {item["id"]: (kind, item) for key, kind in LABEL_KINDS.items() for item in one.label[key]}
    replaced = [
        (item, labels[item["superseded_by"]]) for _, item in labels.values() if item.get("superseded_by") in labels
    ]
    for old, new, features in train_recognizer.replaceable(own):
        right = any(holds(item, old.text) and holds(by, new.text) for item, (_, by) in replaced)
        short = are_short(old, new)
        words = logistic(OF_SHORT if short else OF_LONG, features)
        if right or words >= LEAST_REPLACED:
            yield Pair((old.kind, old.text), (new.kind, new.text), right, words, short)
    for old, new, features, right in train_recognizer.closable(one, own):
        words = logistic(CLOSING, features)
        if right or words >= LEAST_CLOSED:
            yield Pair((old.kind, old.text), (new.kind, new.text), right, words)
    for item, (kind, by) in replaced:
        yield Pair((labels[item["id"]][0], item["text"]), (kind, by["text"]), True)
        others = [
            label for label in labels.values() if label[1] is not by and label[1].get("superseded_by") != by["id"]
        ]
        for old_kind, other in chance.sample(others, min(OTHER_LABELS, len(others))):
            yield Pair((old_kind, other["text"]), (kind, by["text"]), False)


def listed_pairs(model: Model, half: int | None) -> Iterator[Pair]:
    """Yields the pairs of the lists of short statements, of one half of them or of all."""
    chance = random.Random(1)
    for number, line in enumerate(REPLACEMENTS.read_text("utf-8").splitlines()):
        listed = json.loads(line)["statements"]
        apart = timedelta(days=chance.choice(DAYS_APART), minutes=1)
        told = [train_recognizer.told(one, place * apart, model, chance) for place, one in enumerate(listed)]
        if half is None or number % 2 == half:
            for old, new, features in train_recognizer.replaceable(told):
                right = told.index(old) in listed[told.index(new)]["replaces"]
                yield Pair((old.kind, old.text), (new.kind, new.text), right, logistic(OF_SHORT, features), True)


def projects(half: int | None) -> list[dict[str, Any]]:
    """Returns the projects of one half of the writers, or of all."""
    paths = [path for place, path in enumerate(sorted(PROJECTS.glob("*.jsonl"))) if half in (None, place % 2)]
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


def asked_of_project(project: dict[str, Any]) -> Asked:
    """Returns the lines and prompts of a project."""
    lines = tuple(one["text"] for one in project["statements"])
    prompts = [
        Prompt(one["text"], frozenset(one["needs"]), frozenset(), bool(one["needs"])) for one in project["prompts"]
    ]
    return Asked(lines, (), tuple(prompts))


def asked_of(one: Conversation, own: Sequence[Statement]) -> Asked:
    """Returns the lines, turns and prompts of a conversation."""
    lines = tuple(dict.fromkeys(line.text for line in own if line.kind in ("decision", "rule", "fact", "open")))
    turns = tuple(dict.fromkeys(turn.content[:LONGEST_TURN] for some in one.turns for turn in some if turn.content))
    items = {item["id"]: item for key in train_recognizer.KINDS.values() for item in one.label[key]}

    def holding(needs: Sequence[dict[str, Any]], texts: Sequence[str]) -> frozenset[int]:
        return frozenset(place for place, text in enumerate(texts) if any(holds(item, text) for item in needs))

    prompts = []
    for prompt in one.label.get("prompts", ()):
        needs = [items[name] for name in prompt["needs"] if name in items]
        prompts.append(Prompt(prompt["text"], holding(needs, lines), holding(needs, turns), bool(prompt["needs"])))
    return Asked(lines, turns, tuple(prompts))


def fitted_on_pairs(pairs: Sequence[Pair]) -> PairNetwork:
    """Returns a network that is fitted on pairs."""
    torch.manual_seed(1)
    chance = random.Random(1)
    network = PairNetwork()
    right = [pair for pair in pairs if pair.right]
    others = [pair for pair in pairs if not pair.right]
    plan: list[list[Pair]] = []
    for _ in range(PAIR_ROUNDS):
        some = right + chance.sample(others, min(len(others), OTHERS * len(right)))
        some.sort(key=lambda pair: len(pair.old[1]) + len(pair.new[1]) + 30 * chance.random())
        batches = [some[at : at + PAIR_BATCH] for at in range(0, len(some), PAIR_BATCH)]
        chance.shuffle(batches)
        plan += batches

    def loss(batch: Sequence[Pair]) -> torch.Tensor:
        wanted = torch.tensor([float(pair.right) for pair in batch])
        return functional.binary_cross_entropy_with_logits(network(batch), wanted)

    fit(network, plan, loss, PAIR_RATE)
    return network


def fitted_on_texts(asked: Sequence[Asked]) -> TextNetwork:
    """Returns a network that is fitted on prompts, lines and turns.

    Each step sees a few conversations. Each prompt should be nearest to the lines, and to the turns, that it needs; a
    prompt that needs nothing, or is compared with the lines of another conversation only, to none.
    """
    torch.manual_seed(1)
    chance = random.Random(1)
    network = TextNetwork()
    some = [one for one in asked if any(prompt.lines for prompt in one.prompts)]

    def shown(needed: Sequence[frozenset[int]], count: int, most: int) -> list[int]:
        first = sorted(frozenset().union(*needed))
        first = chance.sample(first, min(len(first), most))
        others = [place for place in range(count) if place not in first]
        return first + chance.sample(others, min(len(others), most - len(first)))

    def lost(cosines: torch.Tensor, wanted: Sequence[Sequence[bool]]) -> torch.Tensor:
        """Returns the loss of prompts of which each wants these texts, or else the last column."""
        right = torch.tensor([[*row, not any(row)] for row in wanted])
        return (cosines.logsumexp(1) - cosines.masked_fill(~right, -1e9).logsumexp(1)).mean()

    def loss(group: Sequence[Asked]) -> torch.Tensor:
        asking = [(at, one) for at, own in enumerate(group) for one in own.prompts if one.lines or not one.needs]
        prompts = network([one.text for _, one in asking])
        of_lines = [shown([one.lines for one in own.prompts], len(own.lines), MOST_LINES) for own in group]
        places = [(at, place) for at, some in enumerate(of_lines) for place in some]
        cosines = network.cosines(prompts, network([group[at].lines[place] for at, place in places]))
        found = lost(cosines, [[at == own and place in one.lines for at, place in places] for own, one in asking])
        for number in range(len(group)):
            columns = [*(place for place, (at, _) in enumerate(places) if at == number), len(places)]
            rows = [row for row, (own, _) in enumerate(asking) if own != number]
            if rows:
                elsewhere = cosines[rows][:, columns]
                found = found + ELSEWHERE / len(group) * lost(elsewhere, [[False] * (len(columns) - 1)] * len(rows))
        of_turns = [shown([one.turns for one in own.prompts], len(own.turns), MOST_TURNS) for own in group]
        places = [(at, place) for at, some in enumerate(of_turns) for place in some]
        rows = [
            row
            for row, (own, one) in enumerate(asking)
            if of_turns[own] and (not one.needs or not one.turns.isdisjoint(of_turns[own]))
        ]
        if rows:
            cosines = network.cosines(prompts[rows], network([group[at].turns[place] for at, place in places]))
            wanted = [
                [at == own and place in one.turns for at, place in places] for own, one in map(asking.__getitem__, rows)
            ]
            found = found + lost(cosines, wanted)
        return found

    plan = []
    for _ in range(TEXT_ROUNDS):
        order = chance.sample(some, len(some))
        plan += [order[at : at + TOGETHER] for at in range(0, len(order), TOGETHER)]
    fit(network, plan, loss, TEXT_RATE)
    return network


def report(pairs: Sequence[Pair], estimates: Sequence[float]) -> None:
    """Prints the weights of the words' probability and the network's estimate, and what they tell apart."""
    for name in ("SHORT_READ", "LONG_READ", "CLOSING_READ"):
        some = [(pair, given) for pair, given in zip(pairs, estimates, strict=True) if pair.model == name]
        rows = np.array([(math.log(pair.words / (1 - pair.words)), given) for pair, given in some if pair.words])
        right = [pair.right for pair, _ in some]
        found = LogisticRegression().fit(rows, right)
        print(name, "=", tuple(round(float(value), 2) for value in (*found.intercept_, *found.coef_[0])))
        columns = (rows[:, 0], rows[:, 1], found.decision_function(rows))
        words, network, both = (round(average_precision_score(right, column), 3) for column in columns)
        print(f"  {sum(right)} of {len(right)} pairs; average precision {words} (words), {network} (network), {both}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--estimates", type=Path, required=True)
    parser.add_argument("--halves", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=encoder.WEIGHTS)
    options = parser.parse_args()
    loaded = [train_recognizer.load(path) for path in options.files]
    some = [one for part in loaded for one in part]
    half_of = train_recognizer.halves(options.files, [len(part) for part in loaded])
    train_recognizer.give_estimates(some, options.estimates)
    model, said = train_recognizer.train(some)
    chance = random.Random(7)
    pairs = [list(pairs_of(one, own, chance)) for one, own in zip(some, said, strict=True)]
    asked = [asked_of(one, own) for one, own in zip(some, said, strict=True)]
    others: list[Pair] = []
    estimates: list[float] = []
    for half in (0, 1, None):
        inside = [place for place, other in enumerate(half_of) if half in (None, other)]
        of_pairs = fitted_on_pairs([*(pair for place in inside for pair in pairs[place]), *listed_pairs(model, half)])
        of_texts = fitted_on_texts([*(asked[place] for place in inside), *map(asked_of_project, projects(half))])
        path = options.out if half is None else options.halves / f"{half}.npz"
        with np.load(path) as stored:
            arrays = with_layers(with_layers(without_statements(stored), of_pairs), of_texts)
        weight, bias = of_pairs.outputs.weight.detach().numpy(), of_pairs.outputs.bias.detach().numpy()
        np.savez(path, **arrays, pair=weight.T, pair_bias=bias)
        if half is not None:
            left_out = [pair for place, own in enumerate(pairs) if place not in inside for pair in own]
            left_out = [pair for pair in (*left_out, *listed_pairs(model, 1 - half)) if pair.words is not None]
            others += left_out
            with torch.no_grad():
                for at in range(0, len(left_out), PAIR_BATCH):
                    estimates += of_pairs(left_out[at : at + PAIR_BATCH]).tolist()
            print(f"half {half}: {len(left_out)} pairs left out", file=sys.stderr)
    report(others, estimates)


if __name__ == "__main__":
    main()
