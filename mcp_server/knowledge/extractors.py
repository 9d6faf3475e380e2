"""Extractors: each reads a conversation and returns lines for the pages. The same turns give the same lines.

To add one, write a function `extract(turns, context)` that makes lines with `context.line(kind, text, turn)`, and add
its `Extractor` to REGISTRY. Other packages publish extractors under the entry point group ENTRY_POINTS; an extractor
with the name of a built-in one replaces it.

Decisions, rules, facts, open items and reports are the items of the recognizer. Only items that are worth a line go to
a page (`is_worth_a_line`). On 881 labeled sentences (`benchmarks/worth.jsonl`), a threshold on the item's probability
by kind and role separates useful from trivial items nearly as well as a model with 200 features (AUC .757 and .770).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cache

from mcp_server.knowledge.duplicates import is_duplicate, keywords
from mcp_server.knowledge.people import LONGEST as LONGEST_OF_SELF
from mcp_server.knowledge.people import of_self, statements
from mcp_server.knowledge.summaries import JOURNAL_LINES, PREFIXES, QUOTED, shortened
from mcp_server.model import Turn
from mcp_server.text.destinations import link_to
from mcp_server.text.entries import OPENING, Line, LineKind, tidied
from mcp_server.text.forgotten import MARK
from mcp_server.text.prose import bare, clipped, prose, sentences
from mcp_server.text.words import content_words
from mcp_server.understanding import recognizer
from mcp_server.understanding.cues import cues, subject_stems
from mcp_server.understanding.features import READ, Message
from mcp_server.understanding.judging import MIN_WORDS, ItemKind, clean
from mcp_server.understanding.model import Model
from mcp_server.understanding.recognizer import Item, is_real
from mcp_server.understanding.sentences import is_question
from mcp_server.understanding.settling import Statement, settle, settled_in

TAKEN_OUT = ("[redacted:", MARK)
"""Marks of passages that were removed: a sentence with one of them becomes no line."""


@dataclass(frozen=True, slots=True)
class Context:
    """The information that an extractor gets besides the turns: the transcript's path and title, the slug of its
    project (None without one), a function that returns the date of a time in the user's time zone, the names of the
    people who speak, and the recognized items."""

    path: str
    title: str
    project: str | None
    day_of: Callable[[datetime], str]
    speakers: frozenset[str]
    items: tuple[Item, ...] = ()
    settled: Mapping[Item, int] = field(default_factory=dict)
    """By item, the number of the turn that replaced or closed it according to a review."""

    def line(self, kind: LineKind, text: str, turn: Turn, **more: object) -> Line:
        """Returns a line of this conversation; its day is that of the turn."""
        day = self.day_of(turn.at)
        more = {"project": self.project, **more}
        return Line(kind, text, day, turn.number, self.path, said=day, **more)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Extractor:
    """A named function that derives lines from a conversation. Increase `version` whenever the same turns would give
    other lines."""

    name: str
    version: int
    extract: Callable[[Sequence[Turn], Context], list[Line]]

    def lines(self, turns: Sequence[Turn], context: Context) -> list[Line]:
        """Returns the lines of a conversation, without those that quote a removed passage."""
        return [line for line in self.extract(turns, context) if not any(mark in line.text for mark in TAKEN_OUT)]


def context_of(
    turns: Sequence[Turn],
    path: str,
    title: str,
    project: str | None,
    day_of: Callable[[datetime], str],
    model: Model,
    earlier: Sequence[Turn] = (),
) -> Context:
    """Returns the context of a conversation. If named people speak, no items are recognized.

    `earlier` are the last turns of the transcript that this one continues: a "yes" may answer their proposal.
    """
    speakers = frozenset(turn.name for turn in turns if turn.name and turn.role == "user")
    items = recognizer.read([*earlier, *turns], model) if turns and not speakers else ()
    here = tuple(item for whole in items if (item := part_of(whole, turns[0].number)))
    return Context(path, title, project, day_of, speakers, here)


def part_of(item: Item, first: int) -> Item | None:
    """Returns an item with only those sources that are in the transcript that begins with turn `first`; None if the
    item was settled in an earlier transcript."""
    sources = tuple(number for number in item.sources if number >= first) or (item.turn,)
    return replace(item, sources=sources) if item.turn >= first else None


# ---------------------------------------------------------------- items

VERSION = 30

LEAST: Mapping[tuple[ItemKind, str], float] = {("fact", "user"): 0.22, ("fact", "agent"): 0.25}
"""Minimum probability of an item that is worth a line, by kind and role. For other items the recognizer's threshold is
enough."""

_PROGRESS = re.compile(
    r"(?:(?:and|so|but|plus|also|well|ok|hmm|hi|hello)[, ]+)*"
    r"(?:I(?:['’]m| am) (?:\w+ly |also |just |still )?(?:trying|having (?:trouble|issues|problems)|struggling"
    r"|getting an?|looking for|wondering|stuck|confused|not sure|working on)\b"
    r"|I(?:['’]ve| have) (?:\w+ly |also |just )?(?:tried|heard|checked)\b|I need (?:some )?(?:help|advice)\b"
    r"|how (?:can|do|would|should) I\b|do I (?:need|have)\b"
    r"|(?:including|considering|especially|given|which|like|similar to)\b)"
    r"|.*\b(?:can|could) you (?:please |also )?(?:explain|help|show|verify|give|walk|provide|review|suggest)\b"
    r"|.*\b(?:let me know|I need (?:some )?help|how (?:can|should|would) I|I(?:['’]m| am) not sure)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Sentences in which a user describes the current task or asks for help, and fragments of such sentences. They are not
worth keeping."""

_WISH = re.compile(
    r"(?:(?:and|so|but|plus|also|well|ok)[, ]+)*"
    r"I(?:['’]d| would)? (?:\w+ly |also |just )?(?:want|like|need)\b(?! you\b)",
    re.IGNORECASE,
)
"""A wish of the user for the current task. It is neither a rule nor a fact, unless a word such as "always" says that it
lasts (`_LASTS`)."""

_NEVER_YET = re.compile(r"\bI(?:['’]ve| have| had) never \w+", re.IGNORECASE)
"""An experience of the user. It is not a rule."""

_LASTS = re.compile(
    r"\b(?:always|ever|every|each time|whenever|any ?more|henceforth|from (?:now|today|here) on|(?<!I )(?<!['’]ve )"
    r"(?<!have )(?<!had )never)\b",
    re.IGNORECASE,
)

_PASSED_OVER = re.compile(
    r"\balternatives? (?:I|we) (?:looked|considered)|\b(?:considered|looked at) \w.* and (?:rejected|wouldn['’]t)\b"
    r"|\b(?:wouldn['’]t (?:take|choose)|would not (?:take|choose))\b",
    re.IGNORECASE,
)
"""The agent names an option that it rejected."""

_EXPLAINED = re.compile(r"(?:An?|The) (?:[\w-]+ ){1,4}(?:is|means|refers to) (?:an?|the)\b")
"""The agent defines a term. A definition is not a decision."""

LEAST_STATED = 0.4
"""Minimum probability of a decision of the agent that has no word of choosing or proposing."""

_FORMULA = re.compile(r"\\[(\[]|\\(?:frac|text|times|sqrt)\b")
"""TeX: the text is part of an exercise."""

LABELED = 1.0
"""The probability of an item that its author labeled ("Decision: …"): it always counts."""


def is_worth_a_line(item: Item) -> bool:
    """Returns whether an item belongs on a page."""
    if item.probability >= LABELED:
        return True
    return not (
        (item.kind != "rule" and _asks(item))
        or item.text.rstrip().endswith(":")  # it announces something that is not quoted
        or _FORMULA.search(item.text)
        or (_PROGRESS.match if item.role == "user" else _PASSED_OVER.search)(item.text)
        or (item.kind in ("rule", "fact") and item.role == "user" and _is_temporary(item))
        or item.probability < LEAST.get((item.kind, item.role), 0.0)
        or (item.kind == "decision" and item.role == "agent" and _is_explanation(item))
    )


def _asks(item: Item) -> bool:
    """Returns whether an item is a question. An open item is one only if each of its sentences is a question."""
    parts = sentences(item.text) if item.kind == "open" else [item.text]
    return all(map(is_question, parts))


def _is_temporary(item: Item) -> bool:
    """Returns whether a rule or fact of the user is only a wish, or a rule is only an experience, without a word that
    says that it lasts."""
    experience = item.kind == "rule" and _NEVER_YET.search(item.text)
    return bool(_WISH.match(item.text) or experience) and not _LASTS.search(item.text)


def _is_explanation(item: Item) -> bool:
    """Returns whether the agent only explains something: the item quotes no words of the user, has no word of choosing
    or proposing, and is improbable or a definition."""
    if (item.short or item.text).endswith(")") or {"propose", "choice"}.intersection(cues(item.text)):
        return False
    return item.probability < LEAST_STATED or _EXPLAINED.match(item.text) is not None


def _of_items(kind: ItemKind) -> Callable[[Sequence[Turn], Context], list[Line]]:

    def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
        by_number = {turn.number: turn for turn in turns}

        @cache
        def mentions() -> Counter[str]:
            return Counter(stem for turn in turns for stem in subject_stems(turn.content[:READ]))

        def is_topic(sentence: str) -> bool:
            return any(stem.isalpha() and mentions()[stem] > 1 for stem in subject_stems(sentence))

        def settled(item: Item) -> tuple[int, str] | None:
            number = context.settled.get(item)
            return (number, context.day_of(by_number[number].at)) if number in by_number else None

        own = [item for item in context.items if item.kind == kind]
        found = _unquoted(own, context.items) if kind == "fact" else _with_one_answer(own, context.settled)
        return [
            context.line(
                kind,
                tidied(item.short or item.text, is_whole=kind != "decision", is_topic=is_topic),
                by_number[item.sources[0]],
                weight=round(item.probability, 3),
                changes=item.changes,
                heard=item.heard,
                settled_by=settled(item),
                core=item.core,
            )
            for item in found
            if kind == "report" or is_worth_a_line(item)
            if not (kind == "fact" and item.role == "user" and _is_of_self(item.text))
            if not (kind != "rule" and _is_fragment(item.text, by_number[item.sources[0]].content))
        ]

    return extract


def _with_one_answer(items: Iterable[Item], settled: Container[Item]) -> list[Item]:
    """Returns the items after joining neighboring ones that quote the same answer of the user to parts of one proposal.
    Items that a review `settled` are not joined."""
    found: list[Item] = []
    for item in items:
        said = QUOTED.fullmatch(item.short or item.text)
        last = QUOTED.fullmatch(found[-1].short or found[-1].text) if found else None
        same = said and last and said.groups()[1:] == last.groups()[1:] and found[-1].sources == item.sources
        if said and last and same and item not in settled and found[-1] not in settled:
            text = f"{last[1].rstrip(' .;')}. {said[1]} ({said[2]}: {said[3]})"
            found[-1] = replace(max(found[-1], item, key=lambda one: one.probability), text=text, short="")
        else:
            found.append(item)
    return found


MOSTLY = 0.7
"""A clause with at least this share of a sentence's characters counts as the whole sentence."""


def _is_of_self(text: str) -> bool:
    """Returns whether every sentence of a fact only says who the user is. Such a fact is on the user's page already. A
    fact that says more is kept ("The lease is till June 2029. I'll ask my sister, she does my books")."""
    if len(text) > LONGEST_OF_SELF:
        return False
    for sentence in sentences(text):
        found = of_self(sentence)
        if found is None or found[0] != "about" or len(found[1]) < MOSTLY * len(sentence):
            return False
    return True


_SUBJECT = re.compile(
    r"(?:I|we|my|our|the|an?|it|its|there|this|that|these|those|he|she|they|his|her|their|you|your|all|every|each|no|some"
    r"|only|both)\b|(?-i:[^\W_a-z])|\d",
    re.IGNORECASE,
)
"""The beginning of a clause that has its own subject."""

SHORTEST_HEAD = 30
"""The number of characters at the beginning of a text that are searched for in its message."""


def _is_fragment(text: str, content: str) -> bool:
    """Returns whether a text begins within a sentence of its message and has no subject of its own: long sentences are
    cut at commas."""
    head = content[: max(content.find(text[:SHORTEST_HEAD]), 0)].rstrip()
    return head.endswith(",") and not _SUBJECT.match(OPENING.sub("", text))


def _unquoted(facts: Iterable[Item], items: Sequence[Item]) -> Iterator[Item]:
    """Yields the facts without those sentences at their end that a decision, a rule or an open item of the same message
    quotes. Earlier sentences stay, because a later one may refer to them ("He is our DBA."). A fact that was cut is
    left out if fewer than MIN_WORDS content words remain."""
    others = [one for one in items if one.kind in ("decision", "rule", "open") and is_worth_a_line(one)]
    for fact in facts:
        said = "\n".join(one.short or one.text for one in others if set(one.sources) & set(fact.sources))
        whole = parts = sentences(fact.text)
        while parts and parts[-1].rstrip(" .;,)") in said:
            parts = parts[:-1]
        text = " ".join(parts)
        if "(answer: " in text and not text.endswith(")"):
            text += ")"
        if parts == whole or len(subject_stems(text)) >= MIN_WORDS:
            yield replace(fact, text=text)


DECISIONS = Extractor("decisions", VERSION + 5, _of_items("decision"))
ITEMS = (
    DECISIONS,
    Extractor("rules", VERSION, _of_items("rule")),
    Extractor("facts", VERSION + 5, _of_items("fact")),
    Extractor("open items", VERSION, _of_items("open")),
    Extractor("reports", VERSION, _of_items("report")),
)

# ---------------------------------------------------------------- lessons and people


def _sentences(turn: Turn) -> Iterator[tuple[str, str]]:
    """Yields the sentences of a turn without emphasis marks, each with its layout. Yields nothing if a program wrote
    the turn."""
    if is_real(turn):
        for sentence in Message(turn.role, turn.content).sentences:
            yield clean(sentence.text), sentence.layout


def _whole(parts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the sentences after joining the parts of long sentences that were cut at a comma."""
    held, where = "", ""
    for text, layout in parts:
        if held and layout != where:
            yield held, where
            held = ""
        held, where = f"{held} {text}".lstrip(), layout
        if not text.endswith(","):
            yield held, where
            held = ""
    if held:
        yield held, where


LESSON_WEIGHT = 0.9
LEAST_LESSON = 5
"""Minimum number of content words in a lesson."""

LONGEST_LESSON = 300
LONGEST_LABELED = 201
"""Maximum number of characters of a labeled lesson, including the ellipsis if it was cut."""
LEAST_LABELED = 2
"""Minimum number of content words after the label of a lesson."""

_LESSON = re.compile(
    r"(?:(?:and|so|ok|well|yes),? )*(?:the )?(?:lesson (?:learned|learnt|here|is)\b|lesson\b[^.:!?]{1,30}:"
    r"|never again\b|root cause\b|(?:I|we)(?:['’]ve| have)? learn(?:ed|t) (?:that|the hard way|to (?:always|never))\b)",
    re.IGNORECASE,
)
_LABELED = re.compile(
    r"^\s*(?:[-*+•]\s+|\d+[.)]\s+)?(?:\*\*|__)?(?:lessons? learned|lesson|gotcha|root cause)"
    r"(?:\*\*|__)?\s*[:—–-]\s*(?:\*\*|__)?\s*(?P<text>.+)$",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s*(?:```|~~~)")


def labeled_lessons(text: str) -> list[str]:
    """Returns the labeled lessons of a text ("Lesson learned: …", "Gotcha: …", "Root cause: …") in order, each once;
    code and questions are skipped."""
    found: dict[str, str] = {}
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
            continue
        for said in () if fenced else sentences(line):
            match = _LABELED.search(said)
            lesson = clipped(match["text"].replace("**", ""), LONGEST_LABELED).strip(" *_") if match else ""
            if len(content_words(lesson)) >= LEAST_LABELED and not said.rstrip().endswith("?"):
                found.setdefault(lesson.casefold(), lesson)
    return list(found.values())


def _lessons(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns the sentences that are marked as lessons ("Lesson: …", "Root cause: …", "never again …"). Returns none if
    named people speak: their lessons go to their own pages."""
    found: list[Line] = []
    for turn in turns if not context.speakers else ():
        said = labeled_lessons(turn.content) if is_real(turn) else []
        for text, _ in _sentences(turn):
            if (
                _LESSON.match(text)
                and not text.endswith(("?", ":"))
                and len(text) <= LONGEST_LESSON
                and len(subject_stems(text)) >= LEAST_LESSON
                and not any(one in text for one in said)
            ):
                said.append(text)
        found += [context.line("lesson", text[:1].upper() + text[1:], turn, weight=LESSON_WEIGHT) for text in said]
    return found


def _people(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns the statements that named people make about themselves, or that the user of an agent makes about the
    user."""
    found: list[Line] = []
    for turn in turns:
        if turn.role == "user" and turn.name:
            for one in statements(turn.content, date.fromisoformat(context.day_of(turn.at)), context.speakers):
                text = f"{turn.name}: {one.text}"
                line = context.line(one.kind, text, turn, person=turn.name, weight=one.weight)
                found.append(replace(line, day=one.day.isoformat() if one.day else line.day))
        elif turn.role == "user" and not context.speakers:
            for text, layout in _whole(_sentences(turn)):
                kind, said = (of_self(text) if layout in ("paragraph", "bullet") else None) or (None, "")
                # In a project, a preference is about the work: the recognizer finds those that matter there.
                if kind is None or (kind == "preference" and context.project is not None):
                    continue
                if not any(one.kind == kind and keywords(one.text) <= keywords(said) for one in found):
                    found.append(context.line(kind, said, turn, project=None, weight=1.0))
    return found


LESSONS = Extractor("lessons", 5, _lessons)
PEOPLE = Extractor("people", 9, _people)

# ---------------------------------------------------------------- procedures

LEAST_STEPS, MOST_STEPS = 2, 12
LONGEST_STEP, LONGEST_TITLE = 160, 80

_STEP = re.compile(r"(?:\d{1,2}[.)]|#{1,6}\s+(?:\*\*)?Step \d+[:.]?)\s*(?P<step>\S.*)", re.IGNORECASE)
_HOW = re.compile(
    r"\bhow (?:do|can|should|would|to)\s+(?:I |we |you )?(?P<what>[^.?!\n]{6,120})|"
    r"\bhelp me (?:to )?(?P<other>[^.?!\n]{6,120})",
    re.IGNORECASE,
)
_WORKED = re.compile(
    r"\b(?:that|this|it)(?:['’]s)? (?:all |now |finally )?(?:work(?:s|ed|ing)|did it|did the trick|(?:is )?fixed"
    r"|solved)\b"
    r"|\b(?:works|worked) (?:now|fine|great|perfectly|well)\b|\b(?:fixed|solved) (?:it|the|my)\b",
    re.IGNORECASE,
)
_NOT = re.compile(r"\b(?:not|n['’]t|still|but|except|however)\b|\?", re.IGNORECASE)


def _procedures(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns procedures: the numbered steps in an answer to a "how" question, if the user then says that they
    worked."""
    found: list[Line] = []
    said = [turn for turn in turns if turn.role != "system"]
    for asked, answer, after in zip(said, said[1:], said[2:], strict=False):
        if (asked.role, answer.role, after.role) != ("user", "agent", "user"):
            continue
        how, first = _HOW.search(asked.content), next(iter(prose(after.content)), "")
        opening = next(iter(sentences(first)), "")
        if how is None or not _WORKED.search(opening) or _NOT.search(opening):
            continue
        steps = [
            clipped(bare(step["step"]).replace("**", ""), LONGEST_STEP)
            for step in map(_STEP.match, prose(answer.content))
            if step
        ]
        if not LEAST_STEPS <= len(steps) <= MOST_STEPS:
            continue
        title = clipped((how["what"] or how["other"]).strip(" ,.:;"), LONGEST_TITLE).rstrip("…").strip()
        title = title[:1].upper() + title[1:]
        text = f"{title}: " + "; ".join(f"{n}) {step.rstrip('.;:')}" for n, step in enumerate(steps, 1))
        found.append(context.line("procedure", text, answer, weight=1.0, file=title))
    return found


PROCEDURES = Extractor("procedures", 2, _procedures)

# ---------------------------------------------------------------- the journal

MOST_OF_A_KIND = 5
"""Maximum number of lines of one kind in a conversation's part of a journal, as long as lines of other kinds fill the
rest of `JOURNAL_LINES`."""

MOST_TOLD = 3
"""Maximum number of lines of the kinds in `_TOLD` in a conversation's part of a journal, besides its lines of the kinds
in `PREFIXES`."""

LONGEST = 160
"""Characters of a journal line without its link."""

LEAST_REPORT = 0.7
"""Minimum probability of a report of finished work in the journal."""

_TOLD: tuple[LineKind, ...] = ("event", "plan", "about", "fact")
"""Kinds of lines that state nothing settled: statements of people about themselves, and facts."""


def _journal(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns the journal lines of a conversation, chosen from the lines of the other extractors."""
    lines = [line for one in (*ITEMS, LESSONS, PROCEDURES, PEOPLE) for line in one.lines(turns, context)]
    return of_day(lines, context.project)


def of_day(lines: Sequence[Line], project: str | None) -> list[Line]:
    """Returns the journal lines for a conversation's lines: the most probable ones, shortened, in their order in the
    conversation. Items that the same conversation replaces or closes are left out. `project` is the slug of the
    project."""
    start = datetime.min.replace(tzinfo=UTC)
    statements = [
        Statement(
            line.kind,
            line.text,
            (start, "", settled_in(line.turn, line.text)),
            line.changes,
            frozenset(line.heard),
            key=line,
        )
        for line in lines
    ]
    settle(statements)
    told = [
        line
        for line, one in zip(lines, statements, strict=True)
        if one.is_in_force and line.settled_by is None
        if (line.kind in PREFIXES or line.kind in _TOLD) and (line.kind != "report" or line.weight >= LEAST_REPORT)
    ]
    of_kind: Counter[str] = Counter()
    ranked: list[tuple[bool, bool, Line]] = []
    for line in sorted(told, key=lambda line: (-line.weight, line.turn)):
        ranked.append((line.kind not in PREFIXES, of_kind[line.kind] >= MOST_OF_A_KIND, line))
        of_kind[line.kind] += 1
    settled = sum(line.kind in PREFIXES for line in told)
    best: list[Line] = []
    for _, _, line in sorted(ranked, key=lambda one: one[:2]):
        most = JOURNAL_LINES if line.kind in PREFIXES else min(JOURNAL_LINES, settled + MOST_TOLD)
        if len(best) < most and not any(is_duplicate(line.text, other.text) for other in best):
            best.append(line)
    return [_short(line, project) for line in sorted(best, key=lambda line: line.turn)]


def _short(line: Line, project: str | None) -> Line:
    """Returns a line shortened for the journal, with a link to its page. Reports, and lines of the project's own page,
    get no link: the heading of the journal links that page."""
    text = line.text.partition(":")[0] if line.kind == "procedure" else line.text
    link = link_to(line)
    own = line.kind == "report" or link == f"[[{project}/context]]"
    text = f"{PREFIXES.get(line.kind, '')}{shortened(text, LONGEST, line.kind, line.core)}{'' if own else f' {link}'}"
    return replace(line, text=text, day="", file="journal", project=project)


JOURNAL = Extractor("journal", 14, _journal)

REGISTRY: Mapping[str, Extractor] = {one.name: one for one in (*ITEMS, LESSONS, PEOPLE, PROCEDURES, JOURNAL)}
ENTRY_POINTS = "context_manager.extractors"
