"""Our git hooks, which run the user's hooks as well.

The user's hooks are never changed. A hook in `.git/hooks` is renamed to `NAME.chained`, and our hook runs it. If
`core.hooksPath` names a folder of the user, which is often used for all repositories, nothing is written there: the
repository's own `core.hooksPath` is set to our folder, in which every hook runs the user's hook. If the command
`context-manager` is missing, the scripts only run the user's hooks. `remove` restores everything.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path

from mcp_server import __version__
from mcp_server.errors import Unavailable
from mcp_server.history.commit_rules import MOST_LINES, WARN_LINES
from mcp_server.storage.git_process import GitFailed
from mcp_server.storage.local.git.repository import OPEN, Repository

OURS = ("pre-commit", "commit-msg", "post-commit")
STAMP = "# context-manager "
MARK = "context-manager-commit"
"""The file in git's folder with the id of the newest commit made by hand; the post-commit hook writes it."""

_FOLDER = "context-manager-hooks"
_KEY = "contextmanager.hooksPath"
"""The setting that keeps the repository's own `core.hooksPath` while ours replaces it."""

_OTHERS = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-merge-commit", "prepare-commit-msg", "pre-rebase"),
    *("post-checkout", "post-merge", "pre-push", "post-rewrite", "sendemail-validate", "pre-auto-gc"),
    "push-to-checkout",
)


class Hooks:
    """The hooks of one repository. Methods are synchronous; call those that write under `locks.git()`."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def in_place(self) -> bool:
        """Returns whether this version's hooks are in place. Quick: does not run git."""
        git = self._repository.common_folder()
        if str(git / _FOLDER) in (_read(git / "config") or ""):
            return all(_read(git / _FOLDER / name) == self._script(name, _asked(name)) for name in OURS)
        return all(_read(git / "hooks" / n) == self._script(n, str(git / "hooks" / f"{n}.chained")) for n in OURS)

    def ensure(self) -> None:
        """Writes our hooks if they are not in place. Raises Unavailable."""
        try:
            if self._foreign_folder() is None:
                self._into_git_folder()
            else:
                self._into_folder_of_ours()
            self._hide_local()
        except (GitFailed, OSError) as error:
            raise Unavailable(
                f"the git hooks could not be written: {error}; commits by hand are not checked"
            ) from error

    def remove(self) -> None:
        """Removes our hooks and restores the user's. Raises Unavailable."""
        try:
            folder = self._repository.common_folder() / "hooks"
            for name in OURS:
                place, chained = folder / name, folder / f"{name}.chained"
                if _is_ours(place):
                    place.unlink()
                    if chained.exists():
                        chained.rename(place)
            if self._config("--local", "core.hooksPath") == str(self._folder()):
                before = self._config("--local", _KEY)
                if before is None:
                    self._repository.run("config", "--local", "--unset", "core.hooksPath")
                else:
                    self._repository.run("config", "--local", "core.hooksPath", before)
                    self._repository.run("config", "--local", "--unset", _KEY)
                shutil.rmtree(self._folder(), ignore_errors=True)
        except (GitFailed, OSError) as error:
            raise Unavailable(f"the git hooks could not be removed: {error}") from error

    def state(self) -> str:
        if not self.in_place():
            return "not in place: commits by hand are not checked"
        ours = str(self._folder()) in (_read(self._repository.common_folder() / "config") or "")
        return "in place; they also run the hooks in your core.hooksPath" if ours else "in .git/hooks"

    def take_mark(self) -> str | None:
        """Returns the id of the newest commit made by hand since the last call, or None."""
        place = self._repository.folder() / MARK
        found = _read(place)
        if found is not None:
            place.unlink(missing_ok=True)
        return found.strip() or None if found else None

    # ------------------------------------------------------------ inside

    def _folder(self) -> Path:
        return self._repository.common_folder() / _FOLDER

    def _foreign_folder(self) -> str | None:
        """Returns the user's `core.hooksPath`, also if ours has replaced it; None without one."""
        chosen = self._config("core.hooksPath")
        if chosen is None:
            return None
        if chosen != str(self._folder()):
            return chosen
        scopes = (("--local", _KEY), ("--global", "core.hooksPath"), ("--system", "core.hooksPath"))
        return next((path for scope in scopes if (path := self._config(*scope)) is not None), None)

    def _into_git_folder(self) -> None:
        if self._config("--local", "core.hooksPath") == str(self._folder()):  # the user has removed their own setting
            self._repository.run("config", "--local", "--unset", "core.hooksPath")
        folder = self._repository.common_folder() / "hooks"
        folder.mkdir(exist_ok=True)
        for name in OURS:
            place, chained = folder / name, folder / f"{name}.chained"
            if place.exists() and not _is_ours(place) and not chained.exists():
                place.rename(chained)
            if not place.exists() or _is_ours(place):
                _write(place, self._script(name, str(chained)))

    def _into_folder_of_ours(self) -> None:
        """Writes all hooks into our own folder, because git searches only the folder in `core.hooksPath`."""
        local = self._config("--local", "core.hooksPath")
        self._folder().mkdir(exist_ok=True)
        for name in (*OURS, *_OTHERS):
            _write(self._folder() / name, self._script(name, _asked(name)))
        if local is not None and local != str(self._folder()):
            self._repository.run("config", "--local", _KEY, local)
        self._repository.run("config", "--local", "core.hooksPath", str(self._folder()))

    def _script(self, name: str, chained: str) -> str:
        fields = {
            "VERSION": __version__,
            "COMMAND": shlex.quote(command()),
            "CHAINED": chained if chained.startswith("$(") else re.sub(r'([\\"$`])', r"\\\1", chained),
            "NEXT": '[ -x "$chained" ] && exec "$chained" "$@"',
            "MOST": str(MOST_LINES),
            "WARN": str(WARN_LINES),
            "OPEN": OPEN,
        }
        template = resources.files("mcp_server.data").joinpath("hooks", name if name in OURS else "other")
        text = template.read_text("utf-8").replace("\r\n", "\n")
        for field, value in fields.items():
            text = text.replace(f"@{field}@", value)
        return text

    def hides_local(self) -> bool:
        """Returns whether git's exclude file has `/.local/`, which `ensure` writes. A clone does not copy that file."""
        return "/.local/" in (_read(self._repository.common_folder() / "info" / "exclude") or "").split("\n")

    def _hide_local(self) -> None:
        """Excludes `.local/` from git, also in a repository whose .gitignore is not ours."""
        place = self._repository.common_folder() / "info" / "exclude"
        text = _read(place) or ""
        if not self.hides_local():
            place.parent.mkdir(exist_ok=True)
            place.write_text(f"{text.rstrip()}\n/.local/\n".lstrip(), "utf-8")

    def _config(self, *name: str) -> str | None:
        try:
            return self._repository.text("config", "--get", *name)
        except GitFailed:
            return None


def _asked(name: str) -> str:
    """Returns the shell expression for a hook in the user's hooks folder, which is evaluated when the hook runs."""
    hooks = "--type=path core.hooksPath"
    scopes = (f"--local --type=path {_KEY}", f"--global {hooks}", f"--system {hooks}")
    return f"$({' || '.join(f'git config {scope}' for scope in scopes)})/{name}"


def command() -> str:
    """Returns the path of the installed `context-manager`: next to the interpreter, else on PATH."""
    beside = Path(sys.executable).with_name("context-manager.exe" if os.name == "nt" else "context-manager")
    return str(beside) if beside.exists() else shutil.which("context-manager") or "context-manager"


def _is_ours(place: Path) -> bool:
    text = _read(place) or ""
    return any(line.startswith(STAMP) for line in text.split("\n")[1:3])


def _read(place: Path) -> str | None:
    try:
        return place.read_text("utf-8", "replace")
    except OSError:
        return None


def _write(place: Path, text: str) -> None:
    if _read(place) != text:
        fresh = place.with_name(f"{place.name}.new")
        fresh.write_text(text, "utf-8", newline="\n")
        fresh.chmod(0o755)
        fresh.replace(place)
