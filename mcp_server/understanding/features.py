"""Features for the linear models: words and word pairs of a message, its shape, cue words, and the messages around it.

A feature is a short text; its value is 1 unless said otherwise. Names are readable on purpose: the weights file lists
them, so that a person can see why a sentence was taken for a decision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from math import log
from pathlib import Path

from mcp_server.text.words import ENGLISH, fold
from mcp_server.understanding.cues import CUES, WORD, content_stems, cues, subject_stems, word_list
from mcp_server.understanding.sentences import Choice, Sentence, choice_of, sentences

Features = dict[str, float]

HEAD, TAIL = 14, 18
"""Number of words of the next message's beginning and of the last message's end that count as context."""

TOLD, READ = 4_000, 3_000
"""Characters of a message in which cues are looked for, and whose words count."""

MAX_WORDS = 60
"""Words of a sentence that count."""

STEM = 4
"""Letters of a longer word that count as its stem."""

COMMON_WORDS = Path(__file__).parent.parent / "data" / "common_words.tsv"
"""A table: an English word, and the words for it in a column for each other language."""

_OPENING = re.compile(r"[^\w\s]{1,3}")
_TAG = re.compile(r"</?[a-z][\w-]*[^>]*>", re.IGNORECASE)
_LABELED = re.compile(r"\W*[\w -]{3,40}(?:\]|:)\s")
"""A message that begins with a label, as programs write it: "[ci-bot] …", "Session summary: …"."""
_NAMES = re.compile(r"(?<=[^\W\d_A-Z][ ,;])[A-ZÀ-Ž][\w-]+")
_DIGIT = re.compile(r"\d")


@cache
def common_words() -> Mapping[str, Mapping[str, str]]:
    """Returns the common words of other languages, each with an English one, by language: as they are written, and
    folded if no other word is written so."""
    header, *rows = (line.split("\t") for line in COMMON_WORDS.read_text("utf-8").splitlines())
    found: dict[str, dict[str, str]] = {language: {} for language in header[1:]}
    for write in (str, fold):
        for english, *cells in rows:
            for known, cell in zip(found.values(), cells, strict=True):
                for word in cell.split():
                    known.setdefault(write(word), english)
    return found


@dataclass(eq=False)
class Message:
    """A message of the conversation, read once: its words, sentences and content words."""

    role: str
    content: str
    has_tools: bool = False
    previous: Message | None = None
    next: Message | None = None
    acts: Mapping[str, float] = field(default_factory=dict)
    language: str = ENGLISH
    estimates: Sequence[Features] = ()
    """The logits that the encoder estimates for each sentence that it read."""
    estimates_of_all: Features = field(default_factory=dict)
    """The logits that the encoder estimates for the whole message."""

    @cached_property
    def sentences(self) -> list[Sentence]:
        return sentences(self.content)

    def in_english(self, text: str) -> str:
        """Returns a text of the message with its common words in English, which the weights know."""
        known = common_words().get(self.language)
        if not known:
            return text

        def translated(found: re.Match[str]) -> str:
            word = found[0].lower().replace("’", "'")
            return known.get(word) or known.get(fold(word), found[0])

        return WORD.sub(translated, text)

    @cached_property
    def english(self) -> str:
        """The beginning of the content, with its common words in English."""
        return self.in_english(self.content[:TOLD])

    @cached_property
    def words(self) -> list[str]:
        return word_list(self.english[:READ])

    @cached_property
    def stems(self) -> frozenset[str]:
        return content_stems(self.words)

    @cached_property
    def sentence_texts(self) -> list[str]:
        """The text of each sentence, with its common words in English."""
        return [self.in_english(one.text) for one in self.sentences]

    @cached_property
    def sentence_words(self) -> list[list[str]]:
        return [word_list(text) for text in self.sentence_texts]

    @cached_property
    def sentence_stems(self) -> list[frozenset[str]]:
        return [content_stems(words) for words in self.sentence_words]

    @cached_property
    def as_next(self) -> Features:
        """The features that the message gives to each sentence of the message before it."""
        head = [_shown(word) for word in self.words[:HEAD]]
        found: Features = {f"nw={word}": 1.0 for word in head}
        found.update((f"nb={one} {two}", 1.0) for one, two in pairwise(head))
        found.update((f"nf{at}={word}", 1.0) for at, word in enumerate(head[:2]))
        _flags(found, ("nq", self.content.rstrip().endswith("?")))
        found.update((f"ncue={name}", 1.0) for name in cues(self.english[:120]))
        return found

    @cached_property
    def as_previous(self) -> Features:
        """The features that the message gives to each sentence of the message after it."""
        found: Features = {f"pw={_shown(word)}": 1.0 for word in self.words[-HEAD:]}
        _flags(found, ("pq", "?" in self.content[-200:]), ("poptions", self.has_options))
        found.update((f"pcue={name}", 1.0) for name in cues(self.in_english(self.content[-250:])))
        return found

    @cached_property
    def choice(self) -> Choice:
        """The options of the message before that this message chooses."""
        listed = self.previous.sentences if self.previous is not None else ()
        last = max((one.option or (one.point if one.layout == "bullet" else 0) for one in listed), default=0)
        return choice_of(self.content, self.words, [one.text for one in self.sentences], last)

    @cached_property
    def has_options(self) -> bool:
        return any(one.option for one in self.sentences)

    @cached_property
    def repeated(self) -> list[int]:
        """How many content words of each sentence the next message repeats. Empty if there is no next message."""
        if self.next is None:
            return []
        return [len(stems & self.next.stems) for stems in self.sentence_stems]

    @cached_property
    def recommendation(self) -> frozenset[str]:
        """The content stems of the sentences outside the list that recommend something."""
        said = [one.text for one in self.sentences if not one.option and CUES["propose"].search(one.text)]
        return content_stems(word for text in said for word in word_list(text))

    @cached_property
    def recommended_option(self) -> int:
        """The number of the option whose first sentence shares most with the recommendation, or 0."""
        shares: dict[int, float] = {}
        for one in self.sentences:
            if one.option and one.option not in shares:
                shares[one.option] = _overlap(content_stems(word_list(one.text)), self.recommendation)
        best = max(shares.values(), default=0.0)
        return next((option for option, share in shares.items() if share == best), 0) if best else 0


def message_features(message: Message) -> Features:
    """Returns the features of a whole message, for its dialogue acts."""
    words = [_shown(word) for word in message.words[:80]]
    found: Features = {f"w={word}": 1.0 for word in words}
    found.update((f"b={one} {other}", 1.0) for one, other in pairwise(words))
    found.update((f"f{place}={word}", 1.0) for place, word in enumerate(words[:4]))
    found.update((f"l={word}", 1.0) for word in words[-6:])
    if len(words) > 1:
        found[f"ff={words[0]} {words[1]}"] = 1.0
    found[f"len={_bucket(len(message.words), (1, 2, 4, 7, 12, 20, 35, 60, 120))}"] = 1.0
    content = message.content
    _flags(
        found,
        ("q", "?" in content),
        ("qend", content.rstrip().endswith("?")),
        ("digit", _DIGIT.search(content) is not None),
        ("tools", message.has_tools),
        ("picks", bool(message.choice.options)),
    )
    if opening := _OPENING.match(content):
        found[f"opens={opening[0]}"] = 1.0
    _flags(found, ("tagged", _TAG.search(content) is not None), ("labeled", _LABELED.match(content) is not None))
    found.update((f"cue={name}", 1.0) for name in cues(message.english))
    found.update((f"cue0={name}", 1.0) for name in cues(message.english[:60]))
    if message.previous is None:
        found["pnone"] = 1.0
    else:
        before = message.previous
        found.update((f"pl={_shown(word)}", 1.0) for word in before.words[-TAIL:])
        found.update((f"pcue={name}", 1.0) for name in cues(before.in_english(before.content[-400:])))
        found[f"plen={_bucket(len(before.words), (8, 20, 40, 80, 160))}"] = 1.0
        _flags(
            found,
            ("pq", "?" in before.content[-250:]),
            ("plist", any(one.layout != "paragraph" for one in before.sentences)),
            ("poptions", before.has_options),
        )
        found["pov"] = _overlap(content_stems(message.words[:60]), before.stems)
    if message.next is None:
        found["nnone"] = 1.0
    else:
        after = message.next
        found.update((f"nw={_shown(word)}", 1.0) for word in after.words[:10])
        found[f"nlen={_bucket(len(after.words), (8, 20, 40, 80, 160))}"] = 1.0
        _flags(found, ("ntools", after.has_tools))
        found["nov"] = _overlap(content_stems(message.words[:60]), after.stems)
    return found


def sentence_features(message: Message, place: int) -> Features:
    """Returns the features of sentence number `place` of a message.

    A name begins with the speaker's letter, or with * for words that count the same for both speakers.
    """
    sentence = message.sentences[place]
    text, role, count = sentence.text, message.role[0], len(message.sentences)
    words = [_shown(word) for word in message.sentence_words[place][:MAX_WORDS]]
    found: Features = {"": 1.0, f"lay={sentence.layout}": 1.0}
    found[f"len={_bucket(len(words), (3, 6, 10, 15, 22, 30, 45))}"] = 1.0
    position = "first" if place == 0 else "last" if place == count - 1 else "mid"
    found[f"pos={position}"] = 1.0
    found[f"n={_bucket(count, (1, 2, 3, 5, 8, 14))}"] = 1.0
    found.update((f"w={word}", 1.0) for word in words)
    _flags(
        found,
        ("q", text.rstrip().endswith("?")),
        ("colon", text.rstrip().endswith(":")),
        ("code", "`" in text),
        ("bold", "**" in text),
        ("digit", _DIGIT.search(text) is not None),
        ("name", _NAMES.search(text) is not None),
        ("tools", message.has_tools),
    )
    own = cues(message.sentence_texts[place])
    found.update((f"cue={name}", 1.0) for name in own)
    stems = message.sentence_stems[place]
    for side, other in (("p", message.previous), ("n", message.next)):
        if other is None:
            found[f"{side}none"] = 1.0
            continue
        found[f"{side}len={_bucket(len(other.words), (2, 5, 10, 20, 40, 80, 160))}"] = 1.0
        overlap = _overlap(stems, other.stems)
        found[f"{side}ov"] = overlap
        _flags(found, (f"{side}tools", other.has_tools), (f"{side}ov3", overlap > 0.3))
        found.update(other.as_next if side == "n" else other.as_previous)
        found.update((f"{side}act={name}", share) for name, share in other.acts.items())
    found.update((f"act={name}", share) for name, share in message.acts.items())
    _products(found, message, place, own, position)
    _taken_up(found, message, place)
    named = {f"{role}:{name}": value for name, value in found.items()}
    named.update((f"*:w={word}", 1.0) for word in words)
    named.update((f"*:b={one} {other}", 1.0) for one, other in pairwise(words))
    named.update((f"*:f{at}={word}", 1.0) for at, word in enumerate(words[:3]))
    if len(words) > 1:
        named[f"*:ff={words[0]} {words[1]}"] = 1.0
    named.update((f"*:cue={name}", 1.0) for name in own)
    named.update((f"*:st={word[:STEM]}", 1.0) for word in words if len(word) > STEM)
    return named


def _products(found: Features, message: Message, place: int, own: Sequence[str], position: str) -> None:
    """Adds products of two signals: a sentence of a proposal counts if the next message accepts it, and so on."""
    sentence, after = message.sentences[place], message.next
    if message.role == "agent" and after is not None:
        _recommended(found, message, place)
        accepted = after.acts.get("accept", 0.0) + 0.7 * after.acts.get("amend", 0.0)
        offered = max(message.acts.get(act, 0.0) for act in ("propose", "options", "decides")) if message.acts else 0.0
        found["accepted"] = accepted
        found["accepted*offered"] = accepted * offered
        for name in (f"lay={sentence.layout}", f"pos={position}", *(f"cue={cue}" for cue in own)):
            found[f"accepted*{name}"] = accepted
        if message.has_options:
            picks = after.choice.options
            verdict = "open" if not picks else "yes" if sentence.option in picks else "no" if sentence.option else "out"
            found[f"choice={verdict}"] = 1.0
            found[f"accepted*choice={verdict}"] = accepted
    elif message.role == "user":
        settles = max((message.acts.get(act, 0.0) for act in ("directive", "revise", "refuse", "amend")), default=0.0)
        found["settles"] = settles
        for name in (f"pos={position}", *(f"cue={cue}" for cue in own)):
            found[f"settles*{name}"] = settles


def _recommended(found: Features, message: Message, place: int) -> None:
    """Tells the recommended option from the others, and what the agent's next message takes up."""
    sentence, stems = message.sentences[place], message.sentence_stems[place]
    if message.has_options and message.recommendation:
        overlap = _overlap(stems, message.recommendation)
        found[f"recommended={'option' if sentence.option else 'text'}"] = overlap
        if sentence.option:
            named = message.recommended_option
            found[f"recommends={'open' if not named else 'this' if named == sentence.option else 'other'}"] = 1.0
    later = message.next.next if message.next is not None else None
    if later is not None and later.role == "agent":
        found["n2ov"] = _overlap(stems, later.stems)


def features_in_context(alone: Mapping[str, float], estimates: Features, role: str = "") -> Features:
    """Returns the features of a sentence or message that the encoder has read: the logits of the probabilities that
    other models give (`alone`), and the encoder's `estimates`, each also with the speaker's letter, if one is given."""
    found = {"": 1.0} | {f"alone={name}": _logit(share) for name, share in alone.items()}
    found.update((f"encoder={name}", value) for name, value in estimates.items())
    return found | {f"{role[0]}:{name}": value for name, value in found.items()} if role else found


def line_features(
    text: str, said: Sequence[Message], shares: Sequence[Mapping[str, float]], probability: float
) -> Features:
    """Returns the features of the line of an item, which distinguish a line that states a decision from others.

    `said` are the messages that the line quotes, `shares` the probabilities of each quoted sentence by kind, and
    `probability` that of the likeliest sentence.
    """
    first, last = said[0], said[-1]
    after = last.next
    found: Features = {
        "probability": _logit(probability),
        "subjects": min(len(subject_stems(text)), 20) / 10,
        "sentences": min(len(shares), 8) / 4,
    }
    _flags(
        found, ("agent", first.role == "agent"), ("exchange", len(said) > 1), ("digit", _DIGIT.search(text) is not None)
    )
    for kind in shares[0]:
        of_kind = [share[kind] for share in shares]
        found[f"most={kind}"] = _logit(max(of_kind))
        found[f"sum={kind}"] = sum(of_kind)
        found[f"mean={kind}"] = sum(of_kind) / len(of_kind)
    for side, message in (("1", first), ("2", last), ("n", after)):
        if message is not None:
            found.update((f"{side}act={name}", share) for name, share in message.acts.items())
    found["1len"] = min(len(first.words), 200) / 50
    found["2len"] = min(len(last.words), 200) / 50
    found["2sentences"] = min(len(last.sentences), 10) / 5
    if after is not None:
        found["nov"] = len(content_stems(word_list(text)) & after.stems) / 8
        _flags(found, ("ntools", after.has_tools))
    return found


def _logit(probability: float) -> float:
    return log((probability + 0.001) / (1.001 - probability))


def _taken_up(found: Features, message: Message, place: int) -> None:
    """Tells whether the next message repeats words of this sentence, and whether it repeats more of another one."""
    counts = message.repeated
    if not counts:
        return
    most = max(counts)
    mine = counts[place]
    _flags(found, ("ovall0", not most), ("ovbest", 0 < most == mine), ("ovnone", 0 == mine < most))
    found["ovn"] = min(mine, 4) / 4


def _flags(found: Features, *flags: tuple[str, bool]) -> None:
    found.update((name, 1.0) for name, holds in flags if holds)


def _shown(word: str) -> str:
    return word if word.isalpha() or not _DIGIT.search(word) else "#"


def _overlap(mine: frozenset[str], other: frozenset[str]) -> float:
    """Returns the number of shared content words, divided by the number of `mine` or by 8, whichever is less."""
    return len(mine & other) / max(1, min(8, len(mine))) if mine else 0.0


def _bucket(number: int, cuts: Sequence[int]) -> int:
    return next((place for place, cut in enumerate(cuts) if number <= cut), len(cuts))
