"""The long run: `python -m tests.torture --minutes 30` runs the cases in turn and prints a table."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import anyio

from tests.torture.cases import CASES
from tests.torture.frame import Case, Tally, run_round, table


def main() -> int:
    """Runs until the time is over; returns 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to run (default: 30)")
    parser.add_argument("--rounds", type=int, help="run each case this many times instead")
    parser.add_argument("--only", default="", help="run only cases whose name contains this text")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first round (default: 1)")
    given = parser.parse_args()
    chosen = [case for case in CASES if given.only in case.name]
    if not chosen:
        parser.error(f"no case matches {given.only!r}; there are {', '.join(case.name for case in CASES)}")
    work = Path(mkdtemp(prefix="torture-"))
    try:
        results = anyio.run(_run, chosen, work, given.minutes * 60, given.rounds, given.seed)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(table(results))
    lost = [sentence for _, tally in results for sentence in tally.lost]
    print(*(f"LOST: {sentence}" for sentence in lost), sep="\n")
    return 1 if lost else 0


async def _run(
    chosen: list[Case], work: Path, seconds: float, rounds: int | None, seed: int
) -> list[tuple[Case, Tally]]:
    """Gives the next round to the case that has used the least time so far."""
    end = time.monotonic() + seconds
    used = dict.fromkeys(chosen, 0.0)
    tallies = {case: Tally() for case in chosen}
    while True:
        left = [
            case for case in chosen if not tallies[case].skipped and (rounds is None or tallies[case].rounds < rounds)
        ]
        if not left or (rounds is None and time.monotonic() > end):
            return list(tallies.items())
        case = min(left, key=used.__getitem__)
        begun = time.monotonic()
        tally = tallies[case]
        await run_round(case, tally, work, seed + tally.rounds)
        used[case] += time.monotonic() - begun
        print(f"{case.name}: round {tally.rounds}, lost {len(tally.lost)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
