"""Imports NumPy on first use: it takes a tenth of a second."""

from __future__ import annotations

import importlib
import threading

_importing = threading.Lock()


numpy_is_there = threading.Event()


def import_numpy() -> None:
    """Imports NumPy, one thread at a time: two first imports at once break it."""
    with _importing:
        importlib.import_module("numpy")
        numpy_is_there.set()
