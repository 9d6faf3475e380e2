"""A progress bar on stderr for what takes longer than a second, if somebody watches."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 1.0
"""Seconds that may pass in silence."""


@contextmanager
def working(label: str) -> Iterator[None]:
    """Shows `label` with a spinner while the block runs, from the second second on."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(label)
    timer = threading.Timer(PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def progress(title: str) -> Iterator[Callable[[float, float, str], None]]:
    """Gives a function to call with (done, total, label); a bar appears when the first second is over."""
    bars: list[Progress] = []
    began = time.monotonic()
    visible = sys.stderr.isatty()

    def update(done: float, total: float, label: str = "") -> None:
        if not visible or (not bars and time.monotonic() - began < PATIENCE):
            return
        if not bars:
            bars.append(_bar())
            bars[0].start()
            bars[0].add_task(title, total=total)
        bars[0].update(
            bars[0].task_ids[0], completed=done, total=total, description=f"{title} [dim]{_plain(label)}[/dim]"
        )

    try:
        yield update
    finally:
        for bar in bars:
            bar.stop()


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _plain(label: str) -> str:
    from rich.markup import escape

    return escape(label if len(label) <= 40 else "…" + label[-39:])
