"""Decisions: what an agent's answer settled, in its own words, or nothing at all        (S3 "Issue 1", A; SPEC §11)

A decision is a choice made, an approach selected, a trade-off accepted, a direction confirmed. Of an answer's lines,
code left out, the first of the best tier that passes the gate is taken:

    1  Decision: …, Plan: …, Going with …, Chose …
    2  I'll use …, Let's keep …, The fix is …, … is the better choice
    3  **a bold line** or - **bold** bullet
    4  a bullet or a numbered item with a verb of the lexicon; those with the verb among their first five words first

Deviations from S3, which taken literally captures four of five long answers, nearly all of them noise:

    tier 1  also "Decided …"; bold marks do not hide a marker, and two words or more must follow it
    tier 2  sentences count, not lines; what is intended must be a verb of the lexicon ("Let's go through the code" is
            talk); a verdict counts too; not what is an example, a condition, a possibility, or a list to come (":")
    3 and 4 must hold a verb of the lexicon outside code spans, may not end in ":", explain code or leave it open
            ("consider", "you can"), and count in an answer that teaches or offers (steps, tips, examples) only if they
            say what was done and why: there the others are instructions and options
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mcp_server.core.checkpoints.gate import ANSWER, PAST, VERBS, VERDICT, accepts, first_verb, is_filler
from mcp_server.core.checkpoints.messages import is_injected
from mcp_server.core.checkpoints.prose import bare, entry, is_bullet, is_task, prose, sentences

BUILDING = {"added", "created", "implemented", "wrapped", "stored", "wrote", "updated", "fixed", "deployed"}
"""Verbs that tell how something was made rather than what was chosen: only a purpose makes a choice of it."""
TASK = {"create", "write", "update", "track", "read", "move", "fix", "extract", "filter", "change"}
"""Verbs that in an answer that teaches say what comes next rather than what was chosen."""
EARLY = 5
"""Words among which the verb of a bullet stands that is about to act."""

_MARKER = re.compile(r"(?:(?:decision|plan|approach)\s*:|(?:going with|chose|choosing|decided)\b)\W*", re.IGNORECASE)
_INTENT = re.compile(
    r"(?:(?!first|then|next|now|finally|after)[^,.;:]{3,60}, )?"
    r"(?P<who>i'll|we'll|let's|i will|we will|i'm going to|we're going to)\s+"
    rf"(?:(?:also|always|just|only|now|instead)\s+)*(?P<verb>{VERBS})\b(?! on\b)",
    re.IGNORECASE,
)
_INSTEAD = re.compile(
    rf"(?:instead, (?:we|you) should|instead of [^,;]{{3,80}}, (?:(?:i|we)(?:'ll| will| now)? )?) ?{VERBS}\b",
    re.IGNORECASE,
)
_UNSETTLED = re.compile(
    r"\b(?:example|illustrat\w+|demonstrat\w+|debug\w*|if|might|may|could|can|consider\w*|suppose|assum\w+|generally"
    r"|typically|depend\w*|whether|either|optional\w*|would you|some|various|step[- ]by[- ]step)\b",
    re.IGNORECASE,
)
_WHY = re.compile(r"\b(?:so(?: that)?|because|since)\b|, which\b|;", re.IGNORECASE)
"""Where what was settled ends and why begins."""
_REASON = re.compile(
    r"\b(?:so that|because|since|instead of|rather than|for (?:better|easier|faster)"
    r"|to (?!(?:the|an?|each|every|all|your|our|its|this|that)\b)[a-z]+)\b",
    re.IGNORECASE,
)
_PURPOSE = re.compile(
    r"\b(?:so that|because|instead of|rather than|to (?:ensure|prevent|avoid|handle|support|allow|improve|reduce|keep"
    r"|protect|validate|limit|simplify|provide|make|catch))\b",
    re.IGNORECASE,
)
_BOLD = re.compile(r"\*\*[^*]+\*\*")
_LABEL = re.compile(r"\*\*[^*]+\*\*\s*[:–—-]?\s*")
_CODE = re.compile(r"`[^`]*`")
_DONE = re.compile(rf"(?P<verb>{'|'.join(PAST)})\b(?! (?:in|when|within|by|for|to)\b)", re.IGNORECASE)
_DESCRIBES = re.compile(
    r"(?:the|this) (?:x|code|function|method|class|setup)\b"
    r"|(?:returns|retrieves|handles|updates|uses|ensures|creates|defines|checks|fetches|sets|displays"
    r"|stores|contains|adds|removes|makes|provides|allows|gets|shows|runs|sends|reads|writes|represents|specifies|enables)\b",
    re.IGNORECASE,
)
"""How a line begins that explains code."""
_TEACHES = re.compile(
    r"\bhere(?:'s| is| are) (?:how|an? |some|several|the (?:steps|complete|updated|changes|full))"
    r"|\bstep[- ]by[- ]step\b|\bstep 1\b|\byou can\b|\bfeel free\b|\bwould you like\b|\bfor example\b|\btips\b"
    r"|\bby (?:following|implementing|applying|using|understanding|practicing) th|\bbest practices\b|\\\(|\\\["
    r"|\blet's (?:go|walk|break|verify|dive)\b",
    re.IGNORECASE,
)


def extract(answer: str) -> str | None:
    """The decision in an agent's answer, at most 200 characters, or None; nothing from what a program injected."""
    if is_injected(answer):
        return None
    teaches = _TEACHES.search(answer.replace("’", "'")) is not None
    found = [(rank, said) for rank, said in _candidates(answer, teaches) if accepts(said)]
    return entry(min(found, key=lambda one: one[0])[1]) if found else None


def explicit(text: str) -> str | None:
    """The decision that a message marks as one (tier 1), whoever wrote it and whatever follows; or None."""
    if is_injected(text):
        return None
    return next((entry(line) for line in prose(text) if _is_marked(_plain(line)) and accepts(line)), None)


def _candidates(answer: str, teaches: bool) -> Iterator[tuple[tuple[int, int], str]]:
    """(tier, lateness) and text of everything that may be a decision, in the order of the answer."""
    for line in prose(answer):
        if _is_marked(_plain(line)):
            yield (1, 0), line
            continue
        talk = teaches or is_filler(line)
        intended = next((said for said in sentences(bare(line)) if _settles(_plain(said), teaches, talk)), None)
        if intended:
            yield (2, 0), intended
        elif _acts(line) and (not teaches or _done_for_a_reason(line)):
            if _BOLD.match(bare(line)):
                yield (3, 0), line
            elif is_bullet(line):
                yield (4, int(first_verb(_plain(line)) >= EARLY)), line


def _plain(text: str) -> str:
    return bare(text).replace("**", "").replace("’", "'").strip()


def _is_marked(plain: str) -> bool:
    marker = _MARKER.match(plain)
    return marker is not None and len(plain[marker.end() :].split()) >= 2 and not plain.endswith(":")


def _settles(sentence: str, teaches: bool, talk: bool) -> bool:
    """Tier 2: an intent, an answer or a verdict, and nothing that leaves it open."""
    if sentence.endswith(":") or _is_open(sentence):
        return False
    if ANSWER.match(sentence) or _INSTEAD.match(sentence) or VERDICT.search(sentence):
        return True
    intent = _INTENT.match(sentence)
    if intent is None or (talk and intent["who"].lower() == "let's"):
        return False
    return not (teaches and intent["verb"].lower() in TASK)


def _is_open(said: str) -> bool:
    return _UNSETTLED.search(_WHY.split(said, maxsplit=1)[0]) is not None


def _acts(line: str) -> bool:
    """Tiers 3 and 4: a verb of the lexicon in words, and nothing that leaves it open, to come, or explains code."""
    words = _CODE.sub("x", _plain(line))
    if words.endswith(":") or is_task(line) or _is_open(words) or _DESCRIBES.match(_CODE.sub("x", _told(line))):
        return False
    return first_verb(words) >= 0


def _done_for_a_reason(line: str) -> bool:
    told = _CODE.sub("x", _told(line))
    done = _DONE.match(told)
    return done is not None and (_PURPOSE if done["verb"].lower() in BUILDING else _REASON).search(told) is not None


def _told(line: str) -> str:
    """What a line says after its bold label; all of it if there is nothing else."""
    return _plain(_LABEL.sub("", bare(line), count=1)) or _plain(line)
