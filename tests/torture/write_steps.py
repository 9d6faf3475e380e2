"""A command is killed at one of its write steps: each file opened for writing, renamed, linked or deleted, and each
program started, is a step (`tests/end_to_end/killed.py` counts them)."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.model import Caller
from mcp_server.status.status import status
from tests.end_to_end.killed import Killed
from tests.end_to_end.servers import assert_clear, command, done, facts, turns
from tests.serving import PLAIN
from tests.torture.frame import Case, Trial

VERBS: dict[str, tuple[str, ...]] = {
    "observe": ("observe", "The red boat lies in Rab.", "--session", "s", "--turn-id", "t9"),
    "observe in a new session": ("observe", "The red boat lies in Rab.", "--session", "new", "--turn-id", "t9"),
    "remember": ("remember", "The red boat lies in Rab."),
    "end a session": ("session", "end", "s"),
    "checkpoint": ("checkpoint", "create", "--session", "s"),
    "extract": ("extract", "--apply"),
    "condense": ("condense", "daily", "--apply"),
    "rebuild the index": ("reset", "--index", "--apply"),
    "reset": ("reset", "--apply"),
    "forget": ("forget", "Senj", "--apply"),
}
"""Commands by what they do. Each may be given twice: the second time repeats or continues the first."""

SAID = [(1, "The blue boat lies in Senj."), (2, "Ana paid 40 euros for the mooring.")]
KNOWN = "Ivo keeps the keys."


async def base(kept: Path) -> Path:
    """Makes the workspace that each round copies, once for all cases."""
    root = kept / "base" / "memory"
    if not root.exists():
        making = kept / "base" / "making"
        making.parent.mkdir()
        async with open_memory(making, PLAIN) as memory:
            for number, content in SAID:
                await observe(memory, NewTurn("user", content, session="s", turn_id=f"t{number}"), Caller(source="cli"))
        await done(making, "remember", KNOWN)
        making.rename(root)
    return root


async def killed_at_a_step(trial: Trial) -> None:
    """Kills one command at one step, repeats the command, and checks everything that was acknowledged before."""
    root, name = trial.root, trial.chance.choice(list(VERBS))
    shutil.copytree(await base(trial.kept.parent), root)
    counted = trial.kept / f"steps of {name}"
    steps = int(counted.read_text()) if counted.exists() else 40
    at = trial.chance.randint(1, steps)
    killed = Killed(trial.folder / "kill")
    killed.arm()
    ended = await command(root, *VERBS[name], env=killed.env(at))
    killed.disarm()
    if ended.returncode == -signal.SIGKILL:
        trial.tally.faults += 1
        if at == steps:
            counted.write_text(str(steps * 2))
    else:
        assert ended.returncode == 0, f"{name}: {ended.stderr}"
        counted.write_text(str(at))
    again = await command(root, *VERBS[name])
    if again.returncode:
        assert_clear(again.stderr)
    async with open_memory(root, PLAIN) as memory:
        assert_clear((await status(memory)).markdown)
    check(root, name, f"{name}, killed at step {at}")
    trial.tally.load += len(SAID) + 2


def check(root: Path, name: str, where: str) -> None:
    """Asserts that earlier turns and facts are there, and those of the repeated command exactly once."""
    spoken = turns(root)
    if name == "forget":
        assert "Senj" not in "".join(content for _, content in spoken["s"]), where
    else:
        assert spoken["s"][: len(SAID)] == SAID, where
    for said in spoken.values():
        assert [number for number, _ in said] == list(range(1, len(said) + 1)), where
    red = [content for said in spoken.values() for _, content in said if "red boat" in content]
    assert len(red) == name.startswith("observe"), where
    known = facts(root)
    assert known[KNOWN] == 1, where
    assert known["The red boat lies in Rab."] == (name == "remember"), where


CASES = (
    Case(
        "killed at a write step",
        "a command killed at any file operation can be repeated: earlier turns and facts stay, its own effect is "
        "there once",
        killed_at_a_step,
    ),
)
