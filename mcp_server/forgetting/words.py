"""The texts about forgetting for people: the receipt, the copies that remain, and the question before deleting."""

from __future__ import annotations

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.forgetting.forget import Receipt, plan_forget
from mcp_server.forgetting.target import ForgetTarget, transcripts
from mcp_server.memory import Memory
from mcp_server.text.prose import clipped, counted

ELSEWHERE = (
    "Out of reach: the client's own records of the conversation (a new import leaves the forgotten words out), "
    "your other machines and backups, and overwritten blocks that a drive keeps."
)
MOST_FILES = 40
LONGEST_NAMED = 300
"""Characters of a text or message that a question shows."""

ADD_HISTORY = "Add --history to rewrite the history."
IN_A_TERMINAL = "`context-manager forget`, in a terminal, rewrites the history with --history."


def as_text(receipt: Receipt, history: bool = False, advice: str = IN_A_TERMINAL) -> str:
    """Returns the receipt in markdown. It contains forgotten words only as parts of old file names. `history` and
    `advice` as in `git_sentences`."""
    if receipt.nothing and not receipt.done:
        return "No copy was found: nothing would change."
    lines = [f"Forgotten ({receipt.id}):" if receipt.done else "This would be forgotten:", *places(receipt)]
    lines += [f"- the state: {receipt.state_rows} rows"] if receipt.state_rows else []
    lines += [f"Not deleted: {sentence}" for sentence in receipt.left]
    return "\n".join([*lines, *git_sentences(receipt, history, advice), ELSEWHERE])


def places(receipt: Receipt) -> list[str]:
    """Returns a line for every file: the places in it and what happens there."""
    lines = []
    for copy in receipt.copies[:MOST_FILES]:
        parts = [place.what if place.line is None else f"line {place.line}: {place.what}" for place in copy.places[:5]]
        parts += [f"and {len(copy.places) - 5:,} more places"] if len(copy.places) > 5 else []
        parts += [f"renamed to {copy.new_path.rsplit('/', 1)[-1]}"] if copy.new_path else []
        parts += [f"STAYS: {copy.stuck}; delete it with its path"] if copy.stuck else []
        lines.append(f"- `{copy.path}`: {'; '.join(parts)}")
    more = len(receipt.copies) - MOST_FILES
    return [*lines, f"- and {more:,} more files"] if more > 0 else lines


def git_sentences(receipt: Receipt, history: bool, advice: str = ADD_HISTORY) -> list[str]:
    """Returns sentences about the copies in git; `advice` says how to remove them from the history."""
    past = receipt.history
    if receipt.versions is not None:
        what = counted(receipt.versions, "earlier version")
        return [
            f"{what} of files with it {'were' if receipt.done else 'would be'} deleted too. Backups of the server, its "
            "write-ahead log and free space in its files hold it until they are overwritten (docs/team.md)."
        ]
    said: list[str] = []
    if receipt.commit:
        said.append(f"Committed as {receipt.commit[:10]}, with the trailer `Forget: {receipt.id}`.")
    if receipt.rewritten:
        said.append("Git's history was rewritten: commits have new ids, and no object contains the forgotten words.")
    if receipt.backup:
        said.append(
            f"The backup {receipt.backup} STILL HOLDS ALL OF IT. When you have seen that all is well, "
            f"delete it: rm '{receipt.backup}'"
        )
    if past.commits:
        since = f"{past.since[:10]} of {past.at:%Y-%m-%d}" if past.at else past.since[:10]
        files = [one for one in past.paths if not any(other.startswith(f"{one}/") for other in past.paths)]
        holds = "holds" if not receipt.done else "still holds"
        said.append(
            f"Git {holds} it: {past.commits:,} commits, the oldest {since} ({', '.join(files)}). Whoever has "
            "this repository can read it there. " + ("It is rewritten too." if history and not receipt.done else advice)
        )
    elif not receipt.rewritten and not receipt.left:
        said.append("Git's history does not hold it.")
    for remote in past.remotes:
        said.append(
            f"What was pushed to the remote {remote!r} stays there: after --history, `git push --force --all {remote}` "
            f"and `git push --force --tags {remote}`, and ask its host to delete what it keeps."
        )
    return said


async def question(memory: Memory, target: ForgetTarget) -> str:
    """Returns the question to the user before an agent's request to forget is carried out.

    It lists the files. The text stays the same while nothing changes. Empty if there is nothing to forget. Raises as
    `plan_forget` does.
    """
    receipt = await plan_forget(memory, target)
    if receipt.nothing:
        return ""
    asked = f"An agent wants to delete this from your memory, permanently: {await _named(memory, target)}"
    return "\n".join([asked, "", f"It is in {counted(len(receipt.copies), 'file')}:", *places(receipt)])


async def _named(memory: Memory, target: ForgetTarget) -> str:
    """Returns the target in words that a person recognizes."""
    if target.secrets:
        return "every secret that is stored"
    if target.text is not None:
        return repr(clipped(target.text, LONGEST_NAMED))
    if target.path is not None:
        lines = f", lines {target.lines[0]} to {target.lines[1]}" if target.lines else ""
        return f"the file {target.path!r}{lines}"
    session, _, number = (target.session or target.turn or "").partition("#" if target.turn else "\0")
    row = await sessions.require(memory, session)
    if not number:
        return f"the whole conversation {row.title or row.session!r}"
    said = await run_sync(_turn, memory, row.session, int(number))
    return f"message {number} of {row.title or row.session!r}: {clipped(said, LONGEST_NAMED)!r}"


def _turn(memory: Memory, session: str, number: int) -> str:
    turns = (placed.turn for _, whole in transcripts(memory, session) for placed in whole.turns)
    return next((turn.content for turn in turns if turn.number == number), "")
