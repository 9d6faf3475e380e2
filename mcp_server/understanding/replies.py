"""Judges a user's answer to the agent's message before it: is it about that message, does it accept, change or refuse
what the agent proposes? Joins proposal and answer into one text."""

from __future__ import annotations

import re

from mcp_server.understanding.cues import cues, subject_stems
from mcp_server.understanding.features import Message
from mcp_server.understanding.judging import chosen_options, text_of
from mcp_server.understanding.sentences import clipped_at_clause, is_question, split

AMENDS = 0.45
"""An answer accepts the proposal, changed or not, if acceptance plus amendment have at least this probability."""

AGREES = 8
"""An answer changes nothing if acceptance is at least this many times as likely as amendment and as refusal."""

REFUSES = 0.5
"""An answer refuses the proposal if the probability of a refusal is at least this."""

CHANGES = 0.5
"""An answer is quoted with each part of the proposal if amendment plus refusal have at least this probability. Less is
enough if acceptance is even less likely."""

LONGEST_ANSWER = 240
"""Most characters of an answer that is quoted with the proposal; a longer one is an item of its own."""

PLAIN_ANSWER, ACCEPTS = 3, 0.5
"""An answer only accepts if it has at most this many words, and acceptance at least this probability."""

LONGEST = 480
"""Most characters of an item's text."""

_IT_IS = re.compile(r"((?:\S+ ){1,5})it is(?: then)?[.!]?", re.IGNORECASE)
"""A sentence that takes what it names: "Connect sink it is."."""

ADDS = re.compile(r"(?:(?:oh|ah|ok|okay|and)[, ]+)?(?:and|also|plus|nor|n|btw|by the way|und|auch)\b", re.IGNORECASE)
"""The beginning of a sentence that adds something: "By the way, …"."""


def refers(answer: Message, before: Message, said: str) -> bool:
    """Returns whether `said`, a part of the user's answer, refers to the agent's message before: the answer accepts it,
    changed or not, refuses it, or chooses one of its options, or the message ends with a question, or both share a word
    about their subject. An addition ("By the way, …") that shares none is about something else."""
    related = not subject_stems(said).isdisjoint(subject_stems(before.content))
    if chosen_options(before):
        return True
    if ADDS.match(said) and not related:
        return False
    acts = answer.acts
    if acts.get("accept", 0.0) + acts.get("amend", 0.0) >= AMENDS or acts.get("refuse", 0.0) >= REFUSES:
        return True
    return related or is_question(before.sentences[-1].text)


def is_change(answer: Message) -> bool:
    """Returns whether an answer changes or refuses a part of a proposal."""
    changes = answer.acts.get("amend", 0.0) + answer.acts.get("refuse", 0.0)
    return changes >= min(CHANGES, answer.acts.get("accept", 0.0))


def is_refusal(answer: Message) -> bool:
    """Returns whether an answer refuses the proposal before it."""
    accepts, amends, refuses = _verdicts(answer)
    return refuses >= max(REFUSES, accepts + amends) and not (begins_with_yes(answer) or _takes_by_name(answer))


def _is_kept(proposal: str, answer: Message) -> bool:
    """Returns whether an answer that refuses something keeps this proposal: "No website. Paper slips, as people know
    it." keeps the paper slip. Its sentences without a "no" then share more words with the proposal than the others."""
    stems = subject_stems(proposal)
    shared = {True: 0, False: 0}
    for one in answer.sentences:
        shared["no" in cues(answer.in_english(one.text))] += len(stems & subject_stems(one.text))
    return shared[False] > shared[True]


def begins_with_yes(answer: Message) -> bool:
    """Returns whether the first sentence accepts the proposal: "Sounds right. Without Netlify, though."."""
    first = cues(answer.in_english(answer.sentences[0].text)) if answer.sentences else []
    return "yes" in first and "no" not in first


def only_agrees(answer: Message, said: str) -> bool:
    """Returns whether `said`, an answer or its first sentence, only accepts the message before, in few words ("Very
    well.", "sim"): it chooses no option, and has no number and no word about the subject."""
    before = answer.previous
    if before is None or len(said.split()) > PLAIN_ANSWER or answer.choice.options:
        return False
    if not _numbers(said) <= _numbers(before.content) or "no" in cues(answer.in_english(said)):
        return False
    takes = answer.acts.get("accept", 0.0) >= ACCEPTS or said != text_of(answer)  # the rest has acts of its own
    return takes and subject_stems(said).isdisjoint(subject_stems(before.content))


def has_new_number(answer: Message) -> bool:
    """Returns whether an answer has a number that the message before does not have and that chooses no option of it:
    "ok, 4 weeks" changes "6 weeks"."""
    before = answer.previous
    if before is None or chosen_options(before):
        return False
    return not _numbers(answer.content[:LONGEST_ANSWER]) <= _numbers(before.content)


def with_answer(proposal: str, said: str, answer: Message) -> str:
    """Returns a proposal with the user's words; the words go first if they refuse the proposal."""
    left = clipped_at_clause(proposal, LONGEST - len(said) - 12)
    if is_refusal(answer):
        return f"{left} (answer: {said})" if _is_kept(proposal, answer) else f"{said} (refused: {left})"
    accepts, amends, refuses = _verdicts(answer)
    is_changed = accepts < AGREES * max(amends, refuses) or has_new_number(answer)
    rest = _without_yes(said, answer)
    if accepts + amends < AMENDS:
        word = "answer" if rest == said else "agreed"
    else:
        word = "amended" if is_changed else "agreed"
    return f"{left} ({word}: {said if word == 'amended' else rest})"


def _without_yes(said: str, answer: Message) -> str:
    """Returns an agreeing answer without a first sentence that only agrees, if there is another one."""
    first, *others = split(said)
    is_yes = "yes" in cues(answer.in_english(first)) and not subject_stems(first) and not _numbers(first)
    return " ".join(others) if others and is_yes else said


def _verdicts(answer: Message) -> tuple[float, float, float]:
    """Returns the probabilities that an answer accepts, amends and refuses the message before."""
    accepts, amends, refuses = (answer.acts.get(act, 0.0) for act in ("accept", "amend", "refuse"))
    if answer.previous is not None and chosen_options(answer.previous):
        return 1 - amends, amends, 0.0  # it refuses only the other options
    return accepts, amends, refuses


def _takes_by_name(answer: Message) -> bool:
    """Returns whether a sentence of an answer takes what it names: "Nobody here runs Flink. Connect sink it is."."""
    before = answer.previous
    named = " ".join(found[1] for one in answer.sentences if (found := _IT_IS.fullmatch(one.text)))
    return before is not None and not subject_stems(named).isdisjoint(subject_stems(before.content))


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text))
