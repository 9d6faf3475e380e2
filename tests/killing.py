"""For programs that tests kill in the middle: `die_at` in the program, which runs in a Python of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def die_at(step: int, *places: tuple[object, str], word: str | None = None) -> None:
    """From now on the process kills itself, as `kill -9` does, at the call number `step` (1..) of these functions, each
    by what holds it and its name, counted together; with `word`, only calls with this argument count."""
    calls = 0

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += word is None or word in arguments
            if calls == step and (word is None or word in arguments):
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return counted

    for holder, name in places:
        setattr(holder, name, counting(getattr(holder, name)))
