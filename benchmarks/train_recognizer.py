"""Fits the weights of the recognizer from labeled conversations and writes `mcp_server/data/recognizer.tsv.xz`.

    pip install -e '.[train]'
    python benchmarks/train_recognizer.py benchmarks/conversations/{train,talk}/*.json [--out FILE]
    python -m benchmarks understand FILES --weights FILE     # measures them, best on other conversations

With `--settling` it also prints the weights of `mcp_server/understanding/settling.py`, which are copied by hand. With
`--prompts` in place of `--estimates FILE` it fits only the models of prompts, which need no encoder.

A conversation is a JSON file as `benchmarks/README.md` describes it. Each model sees what the models before it give for
conversations that they were not fitted on, or it would trust them too much.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression

from mcp_server.model import ToolCall, Turn
from mcp_server.understanding import recognizer
from mcp_server.understanding.cues import content_stems, word_list
from mcp_server.understanding.encoder import named
from mcp_server.understanding.features import (
    Features,
    Message,
    features_in_context,
    message_features,
    sentence_features,
)
from mcp_server.understanding.judging import judging
from mcp_server.understanding.lines import decision_lines
from mcp_server.understanding.model import SECTIONS, Logistic, Model, numbers
from mcp_server.understanding.model import recognizer as shipped
from mcp_server.understanding.settling import (
    CHANGEABLE,
    Rarity,
    Statement,
    are_short,
    closing_features,
    replacement_features,
    report_parts,
)

USER_ACTS = (
    "accept", "refuse", "amend", "directive", "revise", "task", "question",
    "rule", "fact", "need", "report", "hypothetical", "quote", "talk", "program",
)  # fmt: skip
AGENT_ACTS = ("propose", "options", "done", "decides", "explain", "ask", "talk")
KINDS = {"decision": "decisions", "rule": "rules", "fact": "facts", "open": "open_items"}
STRENGTH_ACTS, STRENGTH_ITEMS, STRENGTH_LINES, STRENGTH_PROMPTS = 0.3, 0.1, 0.03, 0.3
STRENGTH_IN_CONTEXT, STRENGTH_SETTLING, STRENGTH_REPLACEMENT = 0.1, 0.1, 0.3
"""Inverse regularization strengths of the logistic regressions."""

PLACES = ("settled_at", "said_at", "opened_at", "closed_at")
"""The fields of an item that name a turn."""

ANSWERS, SHORTEST_SESSION = frozenset(("accept", "refuse", "amend")), 4
"""The acts of messages that answer the one before, and the turns of a session of a divided conversation, at least."""

FOLDS = 5
"""Parts of the conversations that are left out in turn."""

FOLLOWING = 2
"""Conversations of others that follow a conversation when the weights of closing are fitted."""

LEAST_CONVERSATIONS = 3
"""A feature is used if at least this many conversations contain it."""

REPLACEMENTS = Path(__file__).parent / "replacements" / "train.jsonl"
"""Lists of statements of one person, with those that each replaces."""

DAYS_APART, OTHER_KIND, UNSEEN_REVISION = (0, 2), 0.3, 0.01
"""Days between two statements of a list; the share of statements that get a random kind; and the probability of a
revision for a statement in which the recognizer sees no revision."""

PROMPTS = Path(__file__).parent / "prompts.jsonl"
"""Prompts of new sessions that need open items ("open"), something else of the memory ("memory"), or "nothing"."""

PROMPTS_TOGETHER = 64
"""Prompts of `PROMPTS` that count as one conversation."""

CHANGEABLE_KEYS = [key for kind, key in KINDS.items() if kind in CHANGEABLE]

OUT = Path(__file__).parent.parent / "mcp_server" / "data" / "recognizer.tsv.xz"


@dataclass
class Conversation:
    """A labeled conversation, one entry a session: its turns as the product has them, and their messages."""

    label: dict[str, Any]
    turns: list[list[Turn]] = field(default_factory=list)
    messages: list[list[Message]] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)
    """For each message, the index of its turn in the session."""


def load(path: Path) -> list[Conversation]:
    """Returns the conversations of a file.

    Raises:
        SystemExit: one has items without any `quotes`: its sentences would all count as examples of nothing.
    """
    read = json.loads(path.read_text("utf-8"))
    found = read if isinstance(read, list) else [read]
    for label in found:
        items = [item for key in KINDS.values() for item in label[key]]
        if items and not any(item.get("quotes") for item in items):
            raise SystemExit(
                f"{path}: the items of {label['name']} have no `quotes`, so it can be measured, but not fitted on"
            )
    divided_too = [label for label in found if label.get("independent")]
    return [prepared(label) for label in (*found, *map(divided, divided_too))]


def halves(paths: Sequence[Path], counts: Sequence[int]) -> list[int]:
    """Returns the half of each conversation. Files whose names begin with the same letters have one writer."""
    writers = sorted({re.sub(r"\d+$", "", path.stem) for path in paths})
    found = []
    for path, count in zip(paths, counts, strict=True):
        writer = re.sub(r"\d+$", "", path.stem)
        found += [writers.index(writer) % 2] * count
    return found


def divided(label: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of a labeled conversation in which a session begins every few turns, where a message does not
    answer the one before: the first message of a conversation may state something, too."""
    sessions: list[dict[str, Any]] = []
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for number, session in enumerate(label["sessions"]):
        turns: list[dict[str, Any]] = []
        for place, turn in enumerate(session["turns"]):
            answers = turn["role"] != "user" or not ANSWERS.isdisjoint(turn["acts"])
            if not turns or (len(turns) >= SHORTEST_SESSION and not answers):
                turns = []
                sessions.append({"started": session["started"], "turns": turns})
            places[number, place] = (len(sessions) - 1, len(turns))
            turns.append(turn)

    def moved(item: dict[str, Any]) -> dict[str, Any]:
        return item | {key: places[tuple(item[key])] for key in PLACES if item.get(key)}

    return label | {"sessions": sessions} | {key: list(map(moved, label[key])) for key in KINDS.values()}


def prepared(label: dict[str, Any]) -> Conversation:
    one = Conversation(label)
    for session in label["sessions"]:
        started = datetime.fromisoformat(session["started"].replace("Z", "+00:00")).astimezone(UTC)
        turns = [
            Turn(
                number,
                turn["role"],
                turn["content"],
                started + timedelta(minutes=2 * number),
                tool_calls=tuple(ToolCall(call["name"]) for call in turn.get("tool_calls", ())),
            )
            for number, turn in enumerate(session["turns"], 1)
        ]
        for turn in session["turns"]:
            if turn.get("by_program"):
                turn["acts"] = ["program"]
        real = [turn for turn in turns if recognizer.is_real(turn)]
        one.turns.append(turns)
        one.messages.append(recognizer.linked(real))
        one.places.append([turn.number - 1 for turn in real])
    return one


def acts_of(one: Conversation, session: int, turn: int) -> Sequence[str]:
    found: Sequence[str] = one.label["sessions"][session]["turns"][turn].get("acts", ())
    return found


def plain(text: str) -> str:
    return re.sub(r"[\s*`_>#|-]+", " ", text).strip().lower()


def holds(item: dict[str, Any], text: str) -> bool:
    low = text.lower()
    return all(word in low for word in item["keywords"])


def labels(one: Conversation) -> list[list[list[set[str]]]]:
    """Returns for each session, message and sentence the kinds of items that it states."""
    marks: list[list[list[set[str]]]] = [
        [[set() for _ in message.sentences] for message in messages] for messages in one.messages
    ]
    newer = {item["superseded_by"] for key in KINDS.values() for item in one.label[key] if item.get("superseded_by")}
    for kind, key in KINDS.items():
        for item in one.label[key]:
            kinds = {kind, "revise"} if item["id"] in newer else {kind}
            session, turn = item.get("settled_at") or item.get("said_at") or item.get("opened_at")
            for quote in map(plain, item.get("quotes", ())):
                hits = [
                    (s, m, k)
                    for s, messages in enumerate(one.messages)
                    for m, message in enumerate(messages)
                    if (s, one.places[s][m]) <= (session, turn)
                    for k, sentence in enumerate(message.sentences)
                    if (plain(sentence.text) in quote and len(sentence.text) > 8)
                    or quote in plain(sentence.text)
                    or _mostly(plain(sentence.text), quote)
                ]
                for s, m, k in hits:
                    if (s, m) == hits[-1][:2]:
                        marks[s][m][k] |= kinds
    for item in one.label["open_items"]:
        if item.get("closed_at") is None:
            continue
        session, turn = item["closed_at"]
        if turn not in one.places[session]:
            continue
        m = one.places[session].index(turn)
        about = content_stems(word_list(item["text"] + " " + " ".join(item.get("quotes", ()))))
        sentences = one.messages[session][m].sentences
        shared = [len(about & content_stems(word_list(sentence.text))) for sentence in sentences]
        if any(shared):
            marks[session][m][shared.index(max(shared))].add("report")
        elif shared:
            marks[session][m][0].add("report")
    return marks


def _mostly(sentence: str, quote: str) -> bool:
    """Whether a sentence that was cut out of a long one lies mostly inside the quote."""
    mine, other = sentence.split(), quote.split()
    return (
        len(mine) >= 6 and len(other) >= 6 and len(set(mine) & set(other)) >= 0.8 * min(len(set(mine)), len(set(other)))
    )


def fit(rows: list[list[Features]], wanted: dict[str, list[list[bool]]], strength: float) -> Logistic:
    """Fits one model for each output. `rows` and the parts of `wanted` belong to the conversations in order."""
    counts = Counter(name for part in rows for name in {name for row in part for name in row})
    known = {name for name, count in counts.items() if count >= LEAST_CONVERSATIONS}
    vectorizer = DictVectorizer(dtype=np.float32)
    matrix = vectorizer.fit_transform([{k: v for k, v in row.items() if k in known} for part in rows for row in part])
    outputs, bias, columns = [], [], []
    for name, parts in wanted.items():
        target = np.concatenate([np.asarray(part, dtype=int) for part in parts])
        outputs.append(name)
        if target.sum() < 3:
            bias.append(-6.0)
            columns.append(np.zeros(matrix.shape[1]))
            continue
        found = LogisticRegression(C=strength, max_iter=300).fit(matrix, target)
        bias.append(float(found.intercept_[0]))
        columns.append(found.coef_[0])
    table = np.round(np.stack(columns, axis=1), 2)
    weights = {
        name: tuple(map(float, row))
        for name, row in zip(vectorizer.get_feature_names_out(), table, strict=True)
        if np.abs(row).max() >= 0.02
    }
    return Logistic(tuple(outputs), tuple(bias), weights)


def fit_acts(some: Sequence[Conversation]) -> tuple[Logistic, Logistic]:
    found = []
    for role, acts in (("user", USER_ACTS), ("agent", AGENT_ACTS)):
        rows: list[list[Features]] = []
        wanted: dict[str, list[list[bool]]] = {act: [] for act in acts}
        for one in some:
            here = [
                (s, m)
                for s, messages in enumerate(one.messages)
                for m, message in enumerate(messages)
                if message.role == role and acts_of(one, s, one.places[s][m])
            ]
            rows.append([message_features(one.messages[s][m]) for s, m in here])
            for act in acts:
                wanted[act].append([act in acts_of(one, s, one.places[s][m]) for s, m in here])
        found.append(fit(rows, wanted, STRENGTH_ACTS))
    return found[0], found[1]


def give_acts(one: Conversation, user: Logistic, agent: Logistic) -> None:
    for messages in one.messages:
        for message in messages:
            message.acts = (user if message.role == "user" else agent).probabilities(message_features(message))


def give_estimates(some: Sequence[Conversation], path: Path) -> None:
    """Gives messages the estimates of encoders that were fitted without their conversations.

    The file has the arrays `outputs` (names), `estimates` (a row for each sentence that was read, and one for each
    message after its sentences) and `sentences` (how many of each message were read), in the order of conversations.
    """
    with np.load(path) as stored:
        names, rows, counts = list(map(str, stored["outputs"])), stored["estimates"], stored["sentences"]
    messages = [message for one in some for session in one.messages for message in session]
    if len(messages) != len(counts):
        raise SystemExit(f"{path} is for {len(counts)} messages, not {len(messages)}: make it from the same files")
    at = 0
    for message, count in zip(messages, counts, strict=True):
        if count:
            *found, of_all = rows[at : at + count + 1]
            message.estimates = [named(names, row) for row in found]
            message.estimates_of_all = named(names, of_all, message.role)
            at += count + 1


def fit_acts_in_context(some: Sequence[Conversation], role: str, acts: Sequence[str]) -> Logistic:
    """Fits the combination of the acts that messages have and of the encoder's estimates, and gives messages these."""
    rows: list[list[Features]] = []
    wanted: dict[str, list[list[bool]]] = {act: [] for act in acts}
    read = []
    for one in some:
        here = [
            (message, acts_of(one, s, one.places[s][m]))
            for s, messages in enumerate(one.messages)
            for m, message in enumerate(messages)
            if message.role == role and message.estimates_of_all
        ]
        read += [message for message, _ in here]
        labeled = [(message, said) for message, said in here if said]
        rows.append([features_in_context(message.acts, message.estimates_of_all) for message, _ in labeled])
        for act in acts:
            wanted[act].append([act in said for _, said in labeled])
    found = fit(rows, wanted, STRENGTH_IN_CONTEXT)
    for message in read:
        message.acts = found.probabilities(features_in_context(message.acts, message.estimates_of_all))
    return found


def fit_items_in_context(
    some: Sequence[Conversation], alone: Sequence[Sequence[Mapping[str, float]]], wanted: dict[str, list[list[bool]]]
) -> Logistic:
    """Fits the combination of the probabilities of sentences that other models give (`alone`) and of the encoder's
    estimates."""
    rows: list[list[Features]] = []
    of_read: dict[str, list[list[bool]]] = {kind: [] for kind in wanted}
    for place, (one, shares) in enumerate(zip(some, alone, strict=True)):
        estimates = [
            (message.estimates[k] if k < len(message.estimates) else None, message.role)
            for messages in one.messages
            for message in messages
            for k in range(len(message.sentences))
        ]
        read = [at for at, (found, _) in enumerate(estimates) if found is not None]
        rows.append([features_in_context(shares[at], estimates[at][0] or {}, estimates[at][1]) for at in read])
        for kind, parts in wanted.items():
            of_read[kind].append([parts[place][at] for at in read])
    return fit(rows, of_read, STRENGTH_IN_CONTEXT)


def train(some: Sequence[Conversation]) -> tuple[Model, list[list[Statement]]]:
    """Returns the model that is fitted on labeled conversations, and the items that models find in each conversation
    that were fitted without it."""
    for fold in range(FOLDS):
        acts = fit_acts([one for place, one in enumerate(some) if not _in_fold(place, some, fold)])
        for place, one in enumerate(some):
            if _in_fold(place, some, fold):
                give_acts(one, *acts)
    user_in_context = fit_acts_in_context(some, "user", USER_ACTS)
    agent_in_context = fit_acts_in_context(some, "agent", AGENT_ACTS)
    rows: list[list[Features]] = []
    wanted: dict[str, list[list[bool]]] = {kind: [] for kind in (*KINDS, "report", "revise")}
    for one in some:
        rows.append(
            [
                sentence_features(message, k)
                for messages in one.messages
                for message in messages
                for k in range(len(message.sentences))
            ]
        )
        marks = [mark for session in labels(one) for message in session for mark in message]
        for kind, parts in wanted.items():
            parts.append([kind in mark for mark in marks])
    without: list[Logistic] = []
    alone: list[list[Mapping[str, float]]] = []
    for fold in range(FOLDS):
        left = [place for place in range(len(some)) if not _in_fold(place, some, fold)]
        items = fit(
            [rows[place] for place in left],
            {kind: [parts[place] for place in left] for kind, parts in wanted.items()},
            STRENGTH_ITEMS,
        )
        for place in range(len(some)):
            if _in_fold(place, some, fold):
                alone.append(list(map(items.probabilities, rows[place])))
                without.append(items)
    user, agent = fit_acts(some)
    in_context = user_in_context, agent_in_context, fit_items_in_context(some, alone, wanted)
    nothing = Logistic(("decision",), (0.0,), {})
    model = Model(user, agent, fit(rows, wanted, STRENGTH_ITEMS), *in_context, nothing, fit_prompts(some))
    each = [replace(model, items=items) for items in without]
    model = replace(
        model, lines=fit_lines([line for one, its in zip(some, each, strict=True) for line in lines_of(one, its)])
    )
    return model, [statements(one, replace(its, lines=model.lines)) for one, its in zip(some, each, strict=True)]


def _in_fold(place: int, some: Sequence[Conversation], fold: int) -> bool:
    """Whether a conversation is left out in this fold. Neighbors, which have one writer, are left out together."""
    return place * FOLDS // len(some) == fold


def lines_of(one: Conversation, model: Model) -> list[tuple[Features, bool]]:
    """Returns the features of each line that could be a decision, and whether it has all keywords of a labeled one."""
    found = []
    for messages in one.messages:
        of = judging(messages, model)
        for place in range(len(messages)):
            if "decision" in of(place).found:
                for line, features in decision_lines(messages, place, of):
                    found.append((features, any(holds(item, line.text) for item in one.label["decisions"])))
    return found


def statements(one: Conversation, model: Model) -> list[Statement]:
    """Returns the items that a model finds in a conversation whose messages have their acts."""
    found = []
    for number, (messages, places) in enumerate(zip(one.messages, one.places, strict=True)):
        turns = [one.turns[number][place] for place in places]
        of = judging(messages, model)
        for place in range(len(messages)):
            for item in recognizer.items_of(turns, messages, place, of, model):
                order = (item.at, f"{number:03}", item.turn)
                found.append(Statement(item.kind, item.text, order, item.changes, frozenset(item.heard)))
    return found


def fit_closing(some: Sequence[Conversation], said: Sequence[Sequence[Statement]]) -> list[float]:
    """Returns bias and weights of `closing_features`. Pairs are an open item and a report that shares a word with it,
    in one conversation and in the `FOLLOWING` conversations, whose reports close nothing."""
    rows, right = [], []
    for place, (one, own) in enumerate(zip(some, said, strict=True)):
        others = [said[(place + step * len(some) // (FOLLOWING + 1)) % len(some)] for step in range(1, FOLLOWING + 1)]
        for following in ((), others):
            for _, _, features, closes in closable(one, own, following):
                rows.append(features)
                right.append(closes)
    return fitted(rows, right, STRENGTH_SETTLING)


def closable(
    one: Conversation, own: Sequence[Statement], following: Sequence[Sequence[Statement]] = ()
) -> Iterator[tuple[Statement, Statement, tuple[float, ...], bool]]:
    """Yields an open item of a conversation, a part of a later report that shares a word with it, the features of both,
    and whether the report closes it. With `following` conversations the reports are theirs, which close nothing."""
    ordered = sorted(own, key=lambda line: line.order)
    for other in following:
        ordered += sorted(other, key=lambda line: line.order)
    rarity = Rarity(ordered)
    for at, new in enumerate(ordered):
        if new.kind != "report" or bool(following) != (at >= len(own)):
            continue
        olds = [(was, old) for was, old in enumerate(ordered[: min(at, len(own))]) if old.kind == "open"]
        for part in report_parts(new, [other for other in ordered if other.order == new.order]):
            weights = [rarity.of(old.stems & part.stems) for _, old in olds]
            for (was, old), weight in zip(olds, weights, strict=True):
                if weight and (following or old.order < new.order):
                    features = closing_features(old, part, rarity, weight, weight == max(weights), at - was)
                    yield old, part, features, not following and _closes(one, old, part)


def _closes(one: Conversation, old: Statement, new: Statement) -> bool:
    """Returns whether a label says that an open item was closed in the message of a report."""
    said_at = int(new.order[1]), new.order[2] - 1
    return any(
        item.get("closed_at") and holds(item, old.text) and said_at == tuple(item["closed_at"])
        for item in one.label["open_items"]
    )


def fit_replacement(
    some: Sequence[Conversation], said: Sequence[Sequence[Statement]], model: Model
) -> tuple[list[float], list[float]]:
    """Returns bias and weights of `replacement_features` for pairs of short statements and for all others. A pair
    shares a word: two recognized statements of a conversation, or two of a list in `REPLACEMENTS`."""
    short: list[tuple[tuple[float, ...], bool]] = []
    rest: list[tuple[tuple[float, ...], bool]] = []
    for one, own in zip(some, said, strict=True):
        labels = {item["id"]: item for key in CHANGEABLE_KEYS for item in one.label[key]}
        replaced = [(item, labels[item["superseded_by"]]) for item in labels.values() if item.get("superseded_by")]
        for old, new, features in replaceable(own):
            example = features, any(holds(a, old.text) and holds(b, new.text) for a, b in replaced)
            rest.append(example)
            if are_short(old, new):
                short.append(example)
    chance = random.Random(1)
    for line in REPLACEMENTS.read_text("utf-8").splitlines():
        listed = json.loads(line)["statements"]
        apart = timedelta(days=chance.choice(DAYS_APART), minutes=1)
        some_told = [told(one, number * apart, model, chance) for number, one in enumerate(listed)]
        for old, new, features in replaceable(some_told):
            short.append((features, some_told.index(old) in listed[some_told.index(new)]["replaces"]))
    of_short, of_long = (
        fitted([features for features, _ in examples], [is_right for _, is_right in examples], STRENGTH_REPLACEMENT)
        for examples in (short, rest)
    )
    return of_short, of_long


def told(one: dict[str, Any], later: timedelta, model: Model, chance: random.Random) -> Statement:
    """Returns a statement of a list as it would be recognized: some with another kind, half without a sign of a
    revision. `later` is the time since the first statement."""
    acts = model.user_acts.probabilities(message_features(Message("user", one["text"], False, None)))
    kind = one["kind"] if chance.random() >= OTHER_KIND else chance.choice(CHANGEABLE)
    at = datetime(2026, 1, 1, tzinfo=UTC) + later
    return Statement(kind, one["text"], (at, str(at), 1), chance.choice((acts["revise"], UNSEEN_REVISION)))


def replaceable(said: Sequence[Statement]) -> Iterator[tuple[Statement, Statement, tuple[float, ...]]]:
    """Yields an older statement, a newer one that may replace it, and the features of both."""
    ordered = sorted((one for one in said if one.kind in CHANGEABLE), key=lambda one: one.order)
    rarity = Rarity(ordered)
    for new in ordered:
        older = [one for one in ordered if one.order < new.order]
        weights = [rarity.of(one.words & new.words) for one in older]
        for old, weight in zip(older, weights, strict=True):
            if old.stems & new.stems:
                yield old, new, replacement_features(old, new, rarity, weight, max(weights))


def fitted(rows: Sequence[Sequence[float]], right: Sequence[bool], strength: float) -> list[float]:
    """Returns bias and weights of a logistic regression. The regularization sees all features on one scale; the weights
    belong to raw values."""
    matrix = np.asarray(rows)
    mean, spread = matrix.mean(axis=0), np.maximum(matrix.std(axis=0), 0.01)
    found = LogisticRegression(C=strength, max_iter=1000).fit((matrix - mean) / spread, right)
    weights = np.round(found.coef_[0] / spread, 2)
    return [float(found.intercept_[0] - found.coef_[0] @ (mean / spread)), *map(float, weights)]


def fit_lines(lines: Sequence[tuple[Features, bool]]) -> Logistic:
    """Fits the model of lines."""
    vectorizer = DictVectorizer(sparse=False)
    matrix = vectorizer.fit_transform([features for features, _ in lines])
    bias, *weights = fitted(matrix, [is_right for _, is_right in lines], STRENGTH_LINES)
    names = vectorizer.get_feature_names_out()
    return Logistic(("decision",), (bias,), {name: (weight,) for name, weight in zip(names, weights, strict=True)})


class Prompt(NamedTuple):
    """A prompt, and whether it needs something of the memory, and open items."""

    text: str
    memory: bool
    open_items: bool


def fit_prompts(some: Sequence[Conversation]) -> Logistic:
    """Fits the models that tell prompts that need the memory, and those that need its open items, from others.

    The model of memory is fitted only on conversations: most prompts of `PROMPTS` need something, and with them it
    would push more with small talk.
    """
    of_conversations: list[list[Prompt]] = []
    for one in some:
        items = {item["id"] for item in one.label["open_items"]}
        labeled = [(prompt["text"], prompt["needs"]) for prompt in one.label.get("prompts", ())]
        of_conversations.append([Prompt(text, bool(needs), not items.isdisjoint(needs)) for text, needs in labeled])
    rows = [json.loads(line) for line in PROMPTS.read_text("utf-8").splitlines()]
    listed = [Prompt(row["text"], row["needs"] != "nothing", row["needs"] == "open") for row in rows]
    parts = [listed[start : start + PROMPTS_TOGETHER] for start in range(0, len(listed), PROMPTS_TOGETHER)]

    def fitted_on(prompts: Sequence[Sequence[Prompt]], need: str) -> Logistic:
        rows = [[message_features(Message("user", one.text, False, None)) for one in part] for part in prompts]
        return fit(rows, {need: [[getattr(one, need) for one in part] for part in prompts]}, STRENGTH_PROMPTS)

    memory = fitted_on(of_conversations, "memory")
    open_items = fitted_on([*of_conversations, *parts], "open_items")
    weights = {
        name: (*memory.weights.get(name, (0.0,)), *open_items.weights.get(name, (0.0,)))
        for name in {**memory.weights, **open_items.weights}
    }
    return Logistic((*memory.outputs, *open_items.outputs), (*memory.bias, *open_items.bias), weights)


def dump(model: Model) -> str:
    """Returns the text of a weights file."""
    lines = []
    for name in SECTIONS:
        logistic: Logistic = getattr(model, name)
        lines.append("\t".join((f"[{name}]", *logistic.outputs)))
        lines.append("\t".join(("(bias)", *map(_short, logistic.bias))))
        for feature, kept in sorted(logistic.weights.items()):
            row = numbers(kept) if isinstance(kept, str) else kept
            if any(abs(weight) >= 0.005 for weight in row):
                lines.append("\t".join((feature, *map(_short, row))))
    return "\n".join(lines) + "\n"


def _short(weight: float) -> str:
    return f"{weight:.2f}".replace("-0.00", "0.00").removesuffix("0.00") or ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--estimates", type=Path, help="the file that benchmarks/train_encoder.py writes")
    what.add_argument("--prompts", action="store_true", help="fit only the models of prompts, and keep the others")
    parser.add_argument("--settling", action="store_true")
    options = parser.parse_args()
    some = [one for path in options.files for one in load(path)]
    if options.prompts:
        model = replace(shipped(), prompts=fit_prompts(some))
    else:
        give_estimates(some, options.estimates)
        model, said = train(some)
    text = dump(model)
    options.out.write_bytes(lzma.compress(text.encode()))
    print(
        f"{len(some)} conversations, {text.count(chr(10)):,} weights lines, {options.out.stat().st_size:,} bytes",
        file=sys.stderr,
    )
    if options.settling and not options.prompts:
        weights = (fit_closing(some, said), *fit_replacement(some, said, model))
        for name, found in zip(("CLOSING", "OF_SHORT", "OF_LONG"), weights, strict=True):
            print(name, "=", tuple(round(value, 2) for value in found))


if __name__ == "__main__":
    main()
