"""For programs that tests kill in the middle: `die_at` in the program, which runs in a Python of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from typing import Any


def die_at(step: int, *places: tuple[object, str], having: Collection[str] = ()) -> None:
    """From now on the process kills itself, as `kill -9` does, at the call number `step` (1..) of these functions, each
    by what holds it and its name, counted together. With `having`, only calls with one of these arguments count."""
    calls = 0

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            if not having or any(word in arguments for word in having):
                calls += 1
                if calls == step:
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return counted

    for holder, name in places:
        setattr(holder, name, counting(getattr(holder, name)))
