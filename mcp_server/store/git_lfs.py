"""Git LFS keeps attachments out of the repository, where it is installed."""

from __future__ import annotations

import shutil
from pathlib import Path


def lfs_problem(root: Path) -> str:
    """What is wrong with large files, in a sentence; empty if nothing is."""
    folder = root / "attachments"
    if shutil.which("git-lfs") is not None or not folder.is_dir():
        return ""
    try:
        attributes = (root / ".gitattributes").read_text("utf-8", "replace")
    except OSError:
        return ""
    if "filter=lfs" not in attributes or not any(file.is_file() for file in folder.rglob("*")):
        return ""
    return "git-lfs is not installed: attachments are kept in git itself; install it, then `git lfs install`"
