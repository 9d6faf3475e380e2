"""Memory: the ports that actions use, as one frozen value. Only `app.py` creates it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from mcp_server.settings import Settings

if TYPE_CHECKING:
    from mcp_server.context.inputs import LeftOff
    from mcp_server.conversations.observe import ContextChunk
    from mcp_server.embed import Embedder
    from mcp_server.llm import Llm
    from mcp_server.model import Turn
    from mcp_server.relevance.advisor_items import Lexicon
    from mcp_server.storage.files import Files
    from mcp_server.storage.forgotten import ForgottenTexts
    from mcp_server.storage.live_sets import ColdStorage, LiveSets
    from mcp_server.storage.local.folders import ProjectFolders
    from mcp_server.storage.ports import History, Index, Locks
    from mcp_server.storage.state import State
    from mcp_server.storage.topics import TopicFiles
    from mcp_server.storage.transcripts import Transcripts
    from mcp_server.storage.values import Changes, Folder, SessionRow
    from mcp_server.tokens import TokenCounter
    from mcp_server.understanding.model import Model


@dataclass(frozen=True, slots=True)
class Rooms:
    """Functions of higher rooms (docs/architecture.md) that lower rooms call without an import. `app.py` sets them."""

    after_turn: Callable[[Memory, SessionRow, Sequence[Turn], Sequence[ContextChunk]], Awaitable[tuple[str, ...]]]
    """Processes recorded turns, oldest first, and the chunks that entered the client's context with the last one.

    Called under the transcript's lock. Returns notes for the answer; a failure becomes a note.
    """
    watch_topics: Callable[[Memory, SessionRow, Sequence[Turn], Sequence[ContextChunk]], Awaitable[tuple[str, ...]]]
    """Activates topics for recorded turns. Called without the lock, because it may call an LLM. Returns notes."""
    close_session: Callable[[Memory, SessionRow], Awaitable[SessionRow]]
    """Closes a session under its transcript's lock: checkpoint, front matter, cold storage. Returns the new row."""
    left_off: Callable[[Memory, SessionRow, Sequence[Turn], int | None, int | None], Awaitable[LeftOff | None]]
    """`checkpoints.stored.left_off`: the state of a session before its window was compacted."""
    last_checkpoint: Callable[[Memory, str], Awaitable[LeftOff | None]]
    """`checkpoints.stored.last_checkpoint`: the state of a session at its last checkpoint."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The ports of one workspace. Heavy ones (index, git, embedder, tokens) load on first use."""

    settings: Settings
    disk: Folder
    """The workspace's folders on this machine, for parts that work only there: hooks, watchers, branch folders."""
    files: Files
    transcripts: Transcripts
    state: State
    live: LiveSets
    cold: ColdStorage
    lexicon: Callable[[], tuple[Lexicon, str]]
    """Returns the advisor's word lists, and the problem of the user's own file if the built-in lists are used."""
    topics: TopicFiles
    locks: Locks
    index: Index
    git: History
    folders: ProjectFolders
    embedder: Embedder | None
    tokens: TokenCounter
    changes: Changes
    forgotten: ForgottenTexts
    rooms: Rooms
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    timezone: str
    """The user's time zone as an IANA name; UTC if it is unknown."""
    local_date: Callable[[datetime], str]
    """Returns the user's date of a moment, as YYYY-MM-DD."""
    templates: Callable[[str], str]
    """Returns an LLM template by its name: `review_items` is `prompts/review_items.md`."""
    recognizer: Callable[[], Model]
    """Returns the model that finds decisions, rules, facts and open items. Loads it on first use."""
    llm: Llm | None = None
    startup_problems: tuple[str, ...] = ()
    """Sentences about problems found while opening this memory: settings, disk, git, a missing embedder."""

    def problems(self) -> tuple[str, ...]:
        """Returns the problems that `status` shows first."""
        damage = self.state.damage
        return (*self.startup_problems, *((damage,) if damage else ()))
