"""The frame of the torture suite: a case, the trial that it runs in, and the tally that it keeps.

A case is data: a name, the promise that it tries to break, and a function that runs one round. A round gets an empty
folder and a random number generator of its own, so that the seed which the table names repeats it.
"""

from __future__ import annotations

import random
import shutil
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import pytest


@dataclass(slots=True)
class Tally:
    """What a case has done so far.

    `load`: acknowledged writes and calls that were checked. `faults`: kills and injected faults that were survived.
    `inputs`: generated or hostile inputs. `lost`: a sentence for each broken promise.
    """

    rounds: int = 0
    load: int = 0
    faults: int = 0
    inputs: int = 0
    lost: list[str] = field(default_factory=list)
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One round: an empty `folder`, a `kept` folder that all rounds of the case share, and the case's tally."""

    folder: Path
    kept: Path
    chance: random.Random
    tally: Tally
    short: bool = False
    """Whether the round should take some seconds at most, for the run in CI."""

    @property
    def root(self) -> Path:
        """The workspace of this round."""
        return self.folder / "memory"


@dataclass(frozen=True, slots=True)
class Case:
    """One way to break the memory. `rounds`: how many of them the run in CI makes; 0 if another test shows
    the same."""

    name: str
    promise: str
    run: Callable[[Trial], Awaitable[None]]
    rounds: int = 1


async def run_round(case: Case, tally: Tally, work: Path, seed: int, *, short: bool = False) -> None:
    """Runs one round of a case and adds to its tally. A failed round becomes a sentence in `lost`, a skipped one the
    reason why the case cannot run on this machine."""
    kept = work / "kept" / case.name.replace(" ", "-")
    kept.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix="round-", dir=work))
    try:
        await case.run(Trial(folder, kept, random.Random(f"{case.name} {seed}"), tally, short))
    except pytest.skip.Exception as reason:
        tally.skipped = str(reason)
    except Exception as error:
        tally.lost.append(f"{case.name}, seed {seed}: {_reason(error)}")
    finally:
        tally.rounds += 1
        shutil.rmtree(folder, ignore_errors=True)


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {str(error)[:2000]}"


def table(tallies: Sequence[tuple[Case, Tally]]) -> str:
    """Returns the results as a markdown table, one case a row."""
    lines = [
        "| case | promise | rounds | load held | faults survived | inputs tried | lost |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for case, tally in tallies:
        if tally.skipped:
            lines.append(f"| {case.name} | {case.promise} | skipped: {tally.skipped} | | | | |")
            continue
        figures = (tally.rounds, tally.load, tally.faults, tally.inputs, len(tally.lost))
        lines.append(f"| {case.name} | {case.promise} | {' | '.join(f'{number:,}' for number in figures)} |")
    return "\n".join(lines)
