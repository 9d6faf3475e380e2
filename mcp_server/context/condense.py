"""Shortens recognized items so that as many as possible fit into a number of tokens.

An item is cut into clauses. A small logistic model tells how likely a clause holds what was decided, and the clauses
with the most worth per token are kept, of all items together. Words that say little are left out: articles, pronouns,
auxiliary verbs, fillers, some prepositions. Negations, conditions, numbers and names stay, in their order.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mcp_server.context.sections import one_line
from mcp_server.tokens import Meter
from mcp_server.understanding.features import CUES, content_stems, word_list
from mcp_server.understanding.sentences import split

LONGEST_ITEM = 1_000
"""Characters of an item that are read."""

SHORTEST_CLAUSE, LEAST_STEMS = 10, 2
"""Characters and content words. A shorter clause is joined with the one before."""

SURENESS = 3
"""Power of an item's probability in its worth: a doubtful item gets a clause when the sure ones have most of theirs.

Labeled decisions in a compaction's tokens, with 200 further turns, of eight and of fourteen conversations: with 1, .72
and .52; with 2, .78 and .56; with 3, .79 and .56."""

FURTHER = 6
"""Clauses of an item after which the worth of a further one is half."""

Part = Literal["own", "answer", "amended", "refused"]

_ANSWERED = re.compile(r"(.+?) \((answer|amended): (.+)\)")
_REFUSED = re.compile(r"(.+?) \(refused: (.+)\)")
_CLAUSE = re.compile(
    r"(?<=[,;:—–])\s+|\s+(?=[(|—–])|(?<=\))\s+"
    r"|\s+(?=(?:and|but|so|because|since|which|while|where|when|if|unless|until|instead|then)\s)",
    re.IGNORECASE,
)
_FILLERS = re.compile(
    r"(?<![\w`'’/.-])(?:the|an?|this|that|these|those|which|its?|(?:it|that|there|let)['’]s|is|are|was|were|be|been|being|am"
    r"|I|I['’](?:m|ve|d|ll)|(?:we|you|they)(?:['’](?:re|ve|d|ll))?|he|she|me|us|my|our|your|their|his|her|them|who|what"
    r"|how|where|there|here|will|would|could|can|has|have|had|do|does|did|and|as|at|in|on|of|about|because|since|so|then"
    r"|just|really|also|very|quite|already|actually|basically|simply|well|some|like|think|ok|okay)"
    r"(?![\w'’`/-]),? (?=[^\s.,;:!?)])",
    re.IGNORECASE,
)
_CODE = re.compile(r"`|\w[._/]\w|[a-z][A-Z]|_")
_NAME = re.compile(r"(?<=\S )[A-ZÀ-Ž][\w-]+")
_CONDITION = re.compile(r"(?:and |but )?(?:if|when|unless|until|once|while|where)\b", re.IGNORECASE)

BIAS = -1.92
WEIGHTS: Mapping[str, float] = {
    "digit": 0.21, "code": 0.3, "names": 0.29, "choice": 0.35, "must": 0.41, "no": 0.28, "maybe": -0.47,
    "condition": -0.54, "row": -0.88, "last sentence": 0.69, "sentence": -0.4, "place": -0.29, "stems": 0.16,
    "shared": 0.54, "question": 0.75, "proposes": 0.33, "unanswered": 0.68, "answer": 0.37,
}  # fmt: skip
"""Fitted on 4,867 clauses of recognized items of 41 labeled conversations of `train/`: does a clause hold a keyword of
the item's label? AUC .72 on conversations that were left out."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An item to shorten: `weight` is its worth compared with others, `probability` the recognizer's, 0 to 1. Of an
    item with `all_words` only clauses are left out."""

    text: str
    weight: float = 1.0
    probability: float = 1.0
    all_words: bool = False


@dataclass(frozen=True, slots=True)
class _Clause:
    text: str
    part: Part
    sentence: int
    place: int


def condensed(entries: Sequence[Entry], tokens: int, meter: Meter) -> list[str]:
    """Returns a line for each entry, empty if there is no room for it. Together the lines have at most `tokens`."""
    clauses = [_clauses(one_line(entry.text, LONGEST_ITEM)) for entry in entries]
    worths = [
        [share * entry.weight * entry.probability**SURENESS for share in _shares(some)]
        for entry, some in zip(entries, clauses, strict=True)
    ]
    chosen: list[frozenset[int]] = [frozenset() for _ in entries]
    lines = [""] * len(entries)
    queue: list[tuple[float, int, frozenset[int], str, int]] = []

    def offer(item: int) -> None:
        """Puts the clause with the most worth per token into the queue."""
        before = meter.line(lines[item]) if lines[item] else 0
        best = None
        for place in _allowed(clauses[item], chosen[item]):
            wanted = chosen[item] | {place}
            line = "- " + _joined(clauses[item], wanted, entries[item].all_words)
            cost = max(1, meter.line(line) - before)
            found = (-worths[item][place] / (1 + len(chosen[item]) / FURTHER) / cost, item, wanted, line, cost)
            best = min(best, found, key=lambda one: one[0]) if best else found
        if best:
            heapq.heappush(queue, best)

    for item in range(len(entries)):
        offer(item)
    while queue:
        _, item, wanted, line, cost = heapq.heappop(queue)
        if cost <= tokens:
            tokens -= cost
            chosen[item], lines[item] = wanted, line
            offer(item)
    for item, wanted in enumerate(chosen):  # with room left the words that say little come back
        line = "- " + _joined(clauses[item], wanted, all_words=True)
        if wanted and (cost := meter.line(line) - meter.line(lines[item])) <= tokens:
            tokens -= cost
            lines[item] = line
    return lines


def _allowed(clauses: Sequence[_Clause], chosen: Collection[int]) -> list[int]:
    """Returns the clauses that may be added: the user's words before the proposal that they change or refuse."""
    answer = [place for place, one in enumerate(clauses) if one.part in ("answer", "amended")]
    refusal = [place for place, one in enumerate(clauses) if one.part == "own" and clauses[-1].part == "refused"]
    places = range(len(clauses)) if chosen else answer or refusal or range(len(clauses))
    return [place for place in places if place not in chosen]


def _clauses(text: str) -> list[_Clause]:
    parts: list[tuple[Part, str]] = [("own", text)]
    if answered := _ANSWERED.fullmatch(text):
        parts = [("own", answered[1]), ("amended" if answered[2] == "amended" else "answer", answered[3])]
    elif refused := _REFUSED.fullmatch(text):
        parts = [("own", refused[1]), ("refused", refused[2])]
    found: list[_Clause] = []
    for part, said in parts:
        for number, sentence in enumerate(split(said)):
            texts: list[str] = []
            for clause in filter(None, _CLAUSE.split(sentence)):
                if texts and (len(texts[-1]) < SHORTEST_CLAUSE or _is_fragment(texts[-1]) or _is_fragment(clause)):
                    texts[-1] += " " + clause
                else:
                    texts.append(clause)
            known = {one.text for one in found}
            found += [_Clause(clause, part, number, place) for place, clause in enumerate(texts) if clause not in known]
    return found


def _is_fragment(clause: str) -> bool:
    return len(content_stems(word_list(clause))) < LEAST_STEMS


def _shares(clauses: Sequence[_Clause]) -> list[float]:
    """Returns for each clause the probability that it holds what was decided."""
    sentences = [
        " ".join(other.text for other in clauses if (other.part, other.sentence) == (one.part, one.sentence))
        for one in clauses
    ]
    stems = [content_stems(word_list(one.text)) for one in clauses]
    last = max((one.sentence for one in clauses), default=0)
    unanswered = all(one.part == "own" for one in clauses)
    shares = []
    for one, own, sentence in zip(clauses, stems, sentences, strict=True):
        features: Mapping[str, float] = {
            "digit": any(map(str.isdigit, one.text)),
            "code": _CODE.search(one.text) is not None,
            "names": min(3, len(_NAME.findall(one.text))),
            **{cue: CUES[cue].search(one.text) is not None for cue in ("choice", "must", "no", "maybe")},
            "condition": _CONDITION.match(one.text) is not None,
            "row": " | " in one.text,
            "last sentence": one.sentence == last,
            "sentence": min(one.sentence, 5),
            "place": min(one.place, 5),
            "stems": min(len(own), 12),
            "shared": max((len(own & other) for other in stems if other is not own), default=0),
            "question": one.text.rstrip().endswith("?"),
            "proposes": CUES["propose"].search(sentence) is not None,
            "unanswered": unanswered,
            "answer": one.part in ("answer", "amended") or (one.part == "own" and clauses[-1].part == "refused"),
        }
        total = BIAS + sum(WEIGHTS[name] * value for name, value in features.items())
        shares.append(1 / (1 + math.exp(-total)))
    return shares


def _joined(clauses: Sequence[_Clause], chosen: Collection[int], all_words: bool) -> str:
    """Returns the chosen clauses in their order; an ellipsis stands for those between them."""
    text = ""
    part: Part = "own"
    for place in sorted(chosen):
        one = clauses[place]
        if one.part != part:
            text += f"{' ' if text else ''}({one.part}: "
            part = one.part
        elif text:
            text += " " if place - 1 in chosen else " … "
        text += one.text
    return (text if all_words else telegraphic(text)) + (")" if part != "own" else "")


def telegraphic(text: str) -> str:
    """Returns a text without the words that say little; the text itself if nothing is left."""
    return " ".join(_FILLERS.sub("", text).split()) or text
