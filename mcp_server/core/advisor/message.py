"""What the advisor says to a model and its user: at most five candidates, what they save, and what can be done.

In `add` the client keeps its own window and nothing here can change it: the text says so, and what the user can do.
"""

from __future__ import annotations

from mcp_server.core.advisor.advise import Advice, Recommendation
from mcp_server.core.model import Delivery
from mcp_server.core.text.fencing import neutralise

IN_ADD = (
    "This memory cannot take anything out of your client's window: use /compact there, or clear the files that are no "
    "longer needed."
)
IN_REPLACE = (
    '`prune(strategy="advisor", dry_run=false)` moves what is marked `prune` to cold storage, from where `recover` '
    "brings it back."
)
REVIEW_IN_REPLACE = "Nothing of this goes by itself; `anchor` what must stay."
COMPACT_IN_REPLACE = '`prune(strategy="compact", dry_run=false)` compacts it; `recover` brings back what leaves.'


def message(advice: Advice, share: float, delivery: Delivery) -> str:
    """The advice as text; empty if there is none."""
    if not (advice.recommendations or advice.warnings):
        return ""
    lines = [f"Context at {share:.0%}.", *advice.warnings]
    if advice.recommendations:
        lines.append(f"Least needed now (about {advice.savings:,} tokens in all):")
        lines += [_line(one) for one in advice.recommendations]
    if advice.left_out:
        lines.append(f'- … and {advice.left_out} more: `prune(strategy="advisor")` lists them')
    return "\n".join([*lines, *_what_to_do(advice, delivery)])


def _what_to_do(advice: Advice, delivery: Delivery) -> list[str]:
    if delivery == "add":
        return [IN_ADD]
    if any(one.proposal == "prune" for one in advice.recommendations):
        return [IN_REPLACE]
    if advice.recommendations:
        return [REVIEW_IN_REPLACE]
    return [COMPACT_IN_REPLACE] if advice.phase == "too late" else []


def _line(one: Recommendation) -> str:
    verb = "review" if one.proposal == "review" else "prune"
    what = f"{one.item.type} {neutralise(one.item.path)}"
    return f"- {verb} {what}: {one.score.total} points, {one.item.tokens:,} tokens ({one.reason})"
