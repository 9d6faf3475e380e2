"""Projects: finds the project of a call, and maintains the map file from raw keys to slugs. People can rename and merge
projects."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.model import GLOBAL, PREFIXES, Caller, Project, shown_name, slug_of, slugify, unused
from mcp_server.text.destinations import link_to_project
from mcp_server.text.markdown import load, split_front_matter, yaml_line
from mcp_server.text.prose import did_you_mean
from mcp_server.text.redaction import redact

MAP = "knowledge/projects/_map.yaml"
MOST_NAMED = 10  # maximum number of projects that the error for an unknown project names
HEADER = "# Which project is which: raw key → folder under knowledge/projects/. `context-manager project` edits this.\n"

WITHOUT_WORDS = ("root:", "dir:")
"""Prefixes of keys that are a commit's hash or a random id."""


@dataclass(frozen=True, slots=True)
class ListedProject:
    """A slug, all its keys, and the number of conversations with one of them."""

    slug: str
    keys: tuple[str, ...]
    sessions: int


def argument_key(argument: str) -> str:
    """Returns the raw key of a project that the caller named: a full key as it is, anything else as a name."""
    argument = argument.strip()
    if not argument or argument == "global":
        return GLOBAL
    return argument if argument.startswith(PREFIXES) else f"name:{argument}"


def known_as(names: tuple[str, ...], keys: Mapping[str, str]) -> str | None:
    """Returns the map's slug of any of a folder's keys, or None. So a repository that gets an `origin` later keeps the
    slug of its root commit's key."""
    return next((keys[name] for name in names if name in keys), None)


async def project_of(memory: Memory, caller: Caller, argument: str | None = None) -> Project:
    """Returns the project of a call: the argument, else the project of the caller's folder, else the global one.

    Writes only the random id of a folder that has no other name.
    """
    is_global = caller.folder is None if argument is None else argument.strip() in (GLOBAL, "global")
    if is_global:
        return Project()
    given = None if argument is None else argument_key(redact(argument).text)
    names, nameless, keys, called = await run_sync(_look_up, memory, caller.folder, given)  # a single thread hop
    if nameless:
        known = (await memory.state.directory_ids()).get(nameless)
        names = (f"dir:{known or await memory.state.name_directory(nameless, memory.new_id())}",)
    if not names:
        return Project()
    if argument and argument.strip() in keys.values():
        slug: str | None = argument.strip()
    else:
        slug = known_as(names, keys)
    slug = slug or unused(called or await _named_after(memory, names[0]), {*keys.values()})
    return Project(names[0], slug, frozenset({names[0], *(key for key, value in keys.items() if value == slug)}))


async def project_asked(memory: Memory, caller: Caller, argument: str | None = None) -> Project:
    """Returns the same as `project_of`, for a call that only reads. Raises NotFound if no project has the name."""
    project = await project_of(memory, caller, argument)
    if argument is not None and project.slug is not None:
        must_know((await run_sync(_readable_map, memory)).values(), project.slug)
    return project


async def claim(memory: Memory, project: Project) -> None:
    """Adds the project to the map if it is missing: from then on its key has that slug on every machine."""
    if project.slug is None or (await run_sync(_readable_map, memory)).get(project.key) == project.slug:
        return
    async with memory.locks.files():
        try:
            keys = await run_sync(_read_map, memory)
        except Invalid:
            return  # the map is invalid: `status` reports it, and recording goes on without it
        if project.key not in keys:
            await run_sync(_write_map, memory, {**keys, project.key: project.slug})


async def claimed(memory: Memory, caller: Caller, argument: str | None) -> str:
    """Returns the key of a call's project, and adds the project to the map if it is missing."""
    project = await project_of(memory, caller, argument)
    await claim(memory, project)
    return project.key


async def list_projects(memory: Memory) -> list[ListedProject]:
    """Returns every slug of the map, in alphabetical order."""
    keys = await run_sync(_read_map, memory)
    sessions = await memory.state.sessions()
    return [
        ListedProject(
            slug,
            tuple(key for key, value in keys.items() if value == slug),
            sum(keys.get(row.project) == slug for row in sessions),
        )
        for slug in sorted(set(keys.values()))
    ]


async def rename_project(memory: Memory, old: str, new: str) -> str:
    """Renames a project in the map and its folder; transcripts keep their raw keys. Returns the slug."""
    slug = slugify(new)
    if not slug:
        raise Invalid(f"{new!r} has no letter or digit to make a folder name of; choose another name")
    async with memory.locks.files():
        keys = await run_sync(_read_map, memory)
        must_know(keys.values(), old)
        if slug in keys.values():
            raise Conflict(f"there is a project {slug!r} already; to join the two: project merge {old} {slug}")
        await run_sync(_move_folder, memory, old, slug)
        await run_sync(_write_map, memory, {key: slug if value == old else value for key, value in keys.items()})
        await run_sync(_retitle, memory, old, slug)
        await run_sync(_relink, memory, old, slug)
    return slug


async def merge_projects(memory: Memory, source: str, into: str) -> str:
    """Gives every key of `source` the slug `into`, and moves its files there. Returns the remaining slug."""
    async with memory.locks.files():
        keys = await run_sync(_read_map, memory)
        must_know(keys.values(), source)
        must_know(keys.values(), into)
        if source == into:
            raise Invalid("a project cannot be merged into itself; name two different ones (project list)")
        await run_sync(_move_folder, memory, source, into)
        await run_sync(_write_map, memory, {key: into if value == source else value for key, value in keys.items()})
        await run_sync(_relink, memory, source, into)
    return into


def must_know(known: Collection[str], slug: str) -> None:
    """Raises NotFound if a slug is not among the known ones. The message names a similar one, or else some of them."""
    if slug not in known:
        slugs = sorted(set(known))
        some = f"; there are: {', '.join(slugs[:MOST_NAMED])}" if slugs else "; there are none yet"
        shown = did_you_mean(slug, slugs) or some
        raise NotFound(f"no project {slug!r}{shown} (project list)")


def _look_up(
    memory: Memory, folder: str | None, given: str | None
) -> tuple[tuple[str, ...], str | None, Mapping[str, str], str]:
    """Returns the raw keys of a call, best first; the folder if it needs a random id; the map; and the name of the
    folder, for a new project whose keys have no words."""
    nameless: list[str] = []

    def directory_id(place: str) -> str:
        nameless.append(place)
        return ""

    names = (given,) if given else memory.folders.keys(folder or "", directory_id)
    keys = _readable_map(memory) if names else {}
    has_no_words = folder and not given and all(name.startswith(WITHOUT_WORDS) for name in names)
    called = slugify(memory.folders.name(folder)) if folder and has_no_words and known_as(names, keys) is None else ""
    return names, nameless[0] if nameless else None, keys, called


async def _named_after(memory: Memory, key: str) -> str:
    """Returns the preferred slug of a key: the name of its folder if the key has no words."""
    known = {f"dir:{name}": folder for folder, name in (await memory.state.directory_ids()).items()}
    folder = known.get(key) if key.startswith(WITHOUT_WORDS) else None
    return (slugify(await run_sync(memory.folders.name, folder)) if folder else "") or slug_of(key)


async def names_of(memory: Memory) -> Callable[[str], str]:
    """Returns a function that returns a project's name for its raw key; the name of the global project is empty."""
    keys = await run_sync(_readable_map, memory)
    return lambda key: "" if key == GLOBAL else keys.get(key) or shown_name(key)


def slugs_of(memory: Memory) -> frozenset[str]:
    return frozenset(_readable_map(memory).values())


def map_problems(memory: Memory) -> tuple[str, ...]:
    """Returns the problems of the map, for `status` and `doctor`."""
    try:
        _read_map(memory)
    except Invalid as error:
        return (str(error),)
    return ()


def _readable_map(memory: Memory) -> dict[str, str]:
    try:
        return _read_map(memory)
    except Invalid:
        return {}


def _read_map(memory: Memory) -> dict[str, str]:
    text = memory.files.text_or_none(MAP)
    return {} if text is None else dict(_keys_in(text))


@functools.lru_cache(maxsize=4)  # every call needs it, and parsing fifty lines of YAML takes 15 ms
def _keys_in(text: str) -> Mapping[str, str]:
    """Returns the keys in the map's text with their slugs. Raises Invalid."""
    try:
        document = load(text, MAP)
    except Invalid as error:
        raise Invalid(f"{error}; repair it by hand or restore it from git") from error
    keys = document.get("keys") or {}
    if not isinstance(keys, dict) or not all(isinstance(v, str) and slugify(v) == v for v in keys.values()):
        raise Invalid(
            f"{MAP}: `keys:` must map project keys to lower-case names; repair it by hand or restore it from git"
        )
    return {str(key): str(value) for key, value in keys.items()}


def _write_map(memory: Memory, keys: dict[str, str]) -> None:
    lines = [f"  {yaml_line(key)}: {yaml_line(value)}\n" for key, value in sorted(keys.items())]
    memory.files.write_atomic(MAP, HEADER + "keys:\n" + "".join(lines))


def _move_folder(memory: Memory, old: str, new: str) -> None:
    """Moves the files of the old slug to the new one. If a name is taken, the text of the file is appended to the other
    one, without its front matter and without the project's name as its title."""
    prefix = f"knowledge/projects/{old}/"
    for stat in list(memory.files.walk(prefix)):
        target = f"knowledge/projects/{new}/{stat.path.removeprefix(prefix)}"
        if memory.files.exists(target):
            said = split_front_matter(memory.files.read_text(stat.path)).body.strip().removeprefix(f"# {old}\n")
            joined = f"{memory.files.read_text(target).rstrip()}\n\n## From {old}\n\n{said.strip()}\n"
            memory.files.write_atomic(target, joined)
            memory.files.remove(stat.path)
        else:
            memory.files.move(stat.path, target)
    memory.files.remove_empty(prefix)


def _retitle(memory: Memory, old: str, new: str) -> None:
    """Writes the new name into the front matter and the title of a project's page."""
    named = re.compile(rf"^(project: |# ){re.escape(old)}$", re.MULTILINE)
    path = f"knowledge/projects/{new}/context.md"
    _rewrite(memory, path, lambda text: named.sub(rf"\g<1>{new}", text, count=2))


def _relink(memory: Memory, old: str, new: str) -> None:
    """Changes the links of all pages to the new folder of a project."""

    def pointed(text: str) -> str:
        return text.replace(link_to_project(old), link_to_project(new)).replace(f"[[{old}/", f"[[{new}/")

    for stat in list(memory.files.walk("knowledge/")):
        if stat.path.endswith(".md"):
            _rewrite(memory, stat.path, pointed)


def _rewrite(memory: Memory, path: str, change: Callable[[str], str]) -> None:
    """Replaces a file's text by the result of `change`. If another program writes the file meanwhile, tries once more;
    if that fails too, leaves the file as it is."""
    for _ in range(2):
        text = memory.files.readable(path)
        if text is None or (changed := change(text)) == text:
            return
        with contextlib.suppress(Conflict):
            memory.files.write_atomic(path, changed, text)
            return
