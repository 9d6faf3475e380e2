"""For programs that tests kill in the middle: `die_at` in the program, which runs in a Python of its own, and
`killed_at_each_step` in the test."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator
from typing import Any

from tests.preloaded import python


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


def killed_at_each_step(
    program: str, *arguments: str, before: Callable[[int], object] = lambda step: None
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Runs a program that kills itself at the step which its last argument names: at the first one, then at the second
    one, and so on until it ends by itself. Yields each run; `before(step)` is called before it."""
    for step in range(1, 40):
        before(step)
        done = subprocess.run(python("-c", program, *arguments, str(step)), capture_output=True, text=True, check=False)
        yield done
        if done.returncode == 0:
            return
        assert done.returncode == -signal.SIGKILL, done.stderr
    raise AssertionError("never finished")
