"""`review` goes through the new lines in a terminal, one key each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import anyio
import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.knowledge.review import unreviewed
from mcp_server.model import Caller
from mcp_server.text.destinations import archived_path
from tests.conftest import KEYWORDS_ONLY, Clock, Run
from tests.knowledge.test_items import FIRST, JWT, PAGE, RULE, VAULT, talk
from tests.preloaded import context_manager
from tests.understanding.talks import BERTH

BACKUP = "Run the backup of the ledger every night at 02:00 and keep the last 30 copies on the NAS."
ERASE_LINE = "\x15"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


def test_review_keeps_edits_moves_removes_and_forgets_lines_with_one_key_each(
    workspace: Path,
) -> None:
    """The process has a pseudo-terminal."""

    async def prepare() -> list[str]:
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            await talk(memory, Clock(), "first", 0, *FIRST, JWT, "OK.")
            await extract(memory)
            await remember(memory, NewFact("I sing.", kind="identity"), Caller())
            return [one.entry.said for one in await unreviewed(memory)]

    lines = anyio.run(prepare)
    assert len(lines) == 4, lines
    keys = {RULE: ("k",), BERTH: ("m", "r"), JWT: ("f", "n", "f", "y")}
    edit = ("e", f"{ERASE_LINE}\n", "e", f"{ERASE_LINE}{BACKUP}\n")
    printed = in_terminal(workspace, "f", *(key for said in lines for key in keys.get(said, edit)))
    assert "I sing." in printed
    assert "1/4  projects/atlas/context" in printed
    assert printed.count("/4  projects/atlas/context") == 6, "what was not done is asked again"
    assert "there is nothing to remember" in printed
    assert "5 reviewed." in printed

    async def after() -> tuple[str, str, list[str]]:
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            page = memory.files.read_text(PAGE)
            await extract(memory, anew=True)
            return page, memory.files.read_text(PAGE), [one.entry.said for one in await unreviewed(memory)]

    page, again, left = anyio.run(after)
    assert f": {RULE} [src:" in page
    assert BERTH in page.partition("## Rules")[2].partition("\n## ")[0]
    assert f": {BACKUP}\n" in page
    assert "JWT" not in page
    assert "forgotten" not in page.partition("\n## ")[0], "the state on top goes with the line that it shortens"
    assert not (workspace / ".local/pending").exists() or not list((workspace / ".local/pending").iterdir())
    assert (again.count(BERTH), again.count("backup of the ledger"), "JWT" in again) == (1, 1, False)
    assert left == [VAULT], (
        "in force again, since what replaced it is forgotten; nothing that was reviewed is new again"
    )
    in_terminal(workspace, "r")
    assert "nothing new to review" in in_terminal(workspace)
    assert VAULT not in anyio.run(after)[1], "what was removed does not come back when its conversation is read again"
    archived = (workspace / archived_path(PAGE)).read_text("utf-8")
    assert VAULT in archived.partition("## Removed\n")[2]

    async def pushed() -> str:
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            await catch_up(memory)
            found = await compile_context(memory, CompileRequest("where do the AppRole secrets live?"), Caller())
            return found.text

    assert "archive/" not in anyio.run(pushed), "no context quotes what was removed"


@pytest.mark.usefixtures("empty_memory")
def test_without_a_terminal_review_says_what_works_instead(run: Run) -> None:
    assert "approve" in run("review", code=2)
    assert run("review", "--json").split() == ["{", '"lines":', "[],", '"proposals":', "[]", "}"]


def in_terminal(workspace: Path, *pressed: str) -> str:
    """Returns what `review` prints if these keys and lines are typed in its terminal."""
    import pty
    import termios

    master, slave = pty.openpty()
    ended = subprocess.Popen(
        context_manager("--workspace", str(workspace), "review"),
        env={**os.environ, **KEYWORDS_ONLY, "TERM": "xterm", "COLUMNS": "200"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.set_blocking(master, False)
    printed, shown = "", 0

    def read_until(is_enough: Callable[[], bool]) -> None:
        nonlocal printed
        deadline = monotonic() + 60
        while not is_enough():
            assert monotonic() < deadline, printed
            sleep(0.01)
            with suppress(BlockingIOError):
                printed += os.read(master, 65_536).decode()

    def is_asked(keys: str) -> bool:
        asks = ("[q]uit ", "[o]pen items ", "[n]o ") if len(keys) == 1 else ("new words: ",)
        is_raw = not termios.tcgetattr(slave)[3] & termios.ICANON
        return is_raw and any(one in printed[shown:] for one in asks)

    try:
        for keys in pressed:
            read_until(partial(is_asked, keys))
            shown = len(printed)
            os.write(master, keys.encode())
        read_until(lambda: ended.poll() is not None)
        read_until(lambda: "review" in printed.rpartition("[q]uit")[2])
        assert ended.returncode == 0, printed
        return printed
    finally:
        ended.kill()
        ended.wait()
        os.close(slave)
        os.close(master)
