"""Enrichment: the request that lets an LLM review a checkpoint's entries, and the reading of its answer.

The request shows the 20 newest messages, or 15 if it would exceed about 1,500 tokens, and allows 500 tokens of answer.
Only real messages are shown, each cut and neutralized; the template tells the model that they are data.

Any answer but the requested JSON object is ignored. Its entries are merged with the recognized ones (`merge`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_server.knowledge.duplicates import covered, normalised
from mcp_server.model import Turn
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import clipped, entry, is_injected
from mcp_server.tokens import Count


def merge(captured: Sequence[str], enriched: Sequence[str]) -> list[str]:
    """Returns the entries of both lists without duplicates, in their order."""
    kept: list[str] = []
    for entries in (enriched, captured):
        for candidate in sorted(set(entries), key=_firmness):
            if normalised(candidate) and not covered(candidate, kept):
                kept.append(candidate)
    return [one for one in dict.fromkeys([*enriched, *captured]) if one in kept]


def _firmness(entry: str) -> tuple[int, str, str]:
    """Returns the sort key: of duplicates the longest is kept, because it says most; then the first by alphabet."""
    plain = normalised(entry)
    return -len(plain), plain, entry


MOST_MESSAGES, FEWER_MESSAGES = 20, 15
LONG_PROMPT = 1_500  # tokens above which a prompt shows fewer messages
ANSWER_TOKENS = 500
LONGEST_MESSAGE = 400  # characters shown of a message
MOST_ENTRIES = 40
"""Entries of a kind that an answer may have. An answer with more is invalid."""

_PLACE = re.compile(r"\{(decisions|open_items|messages)\}")
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)
_TALK = re.compile(
    r"(?:you're right|you are right|ohoho|haha|hmm|well,|okay(?: so|[,.!])|sure[,.!]|yeah|ok[ ,.!]|ah[ ,!]|oh[ ,!]"
    r"|great[ ,.!]|good (?:question|point)|absolutely|certainly|of course|sorry)",
    re.IGNORECASE,
)
"""Beginnings of conversational sentences, which some models copy into the lists."""
_NONE = frozenset(("none", "n/a", "-", "nothing"))


@dataclass(frozen=True, slots=True)
class Enrichment:
    """Decisions and open items, from a model or after the merge."""

    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()


def request(
    template: str, decisions: Iterable[str], open_items: Iterable[str], turns: Sequence[Turn], count: Count
) -> str:
    """Returns the prompt: the template, filled in. `count` counts tokens; `turns` are in order, newest last."""
    said = [turn for turn in turns if turn.role != "system" and turn.content.strip() and not is_injected(turn.content)]
    shown = [f"{turn.role}: {_short(turn.content)}" for turn in said[-MOST_MESSAGES:]]
    lists = {"decisions": decisions, "open_items": open_items}
    texts = {name: "\n".join(f"- {_short(one)}" for one in some) or "(none)" for name, some in lists.items()}

    def filled(messages: Sequence[str]) -> str:
        values = {**texts, "messages": "\n".join(messages) or "(none)"}
        # In one pass, so that a message's text is never taken for a placeholder.
        return _PLACE.sub(lambda place: values[place[1]], template)

    prompt = filled(shown)
    return filled(shown[-FEWER_MESSAGES:]) if count(prompt) > LONG_PROMPT else prompt


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    decisions: Annotated[list[str], Field(max_length=MOST_ENTRIES)]
    open_items: Annotated[list[str], Field(max_length=MOST_ENTRIES)] = []


def parse(answer: str) -> Enrichment | None:
    """Returns the cleaned entries of a model's answer, or None if it has another form."""
    try:
        found = _Answer.model_validate_json(unfenced(answer))
    except ValidationError:
        return None
    return Enrichment(_cleaned(found.decisions), _cleaned(found.open_items))


def unfenced(answer: str) -> str:
    """Returns the JSON of a model's answer, which may be in a code fence."""
    fenced = _FENCED.fullmatch(answer)
    return fenced[1] if fenced else answer.strip()


def merged(decisions: Sequence[str], open_items: Sequence[str], enriched: Enrichment) -> Enrichment:
    """Merges the recognized entries with a model's review."""
    return Enrichment(
        tuple(merge(decisions, [one for one in enriched.decisions if is_entry(one)])),
        tuple(merge(open_items, [one for one in enriched.open_items if is_entry(one)])),
    )


def is_entry(text: str) -> bool:
    """Returns whether a model's entry is usable: not empty, a question, talk, or text that a program injected."""
    said = text.strip().replace("’", "'")
    return bool(said) and not said.endswith("?") and _TALK.match(said) is None and not is_injected(text)


def _cleaned(entries: Iterable[str]) -> tuple[str, ...]:
    cleaned = (entry(one) for one in entries if not is_injected(one))
    return tuple(dict.fromkeys(one for one in cleaned if one.strip(" .()").lower() not in ("", *_NONE)))


def _short(text: str) -> str:
    return clipped(neutralise(text), LONGEST_MESSAGE)
