"""Settings: read once, checked knob by knob, given to everybody as one frozen value.

`memory-config.yaml` and `CONTEXT_MANAGER_<SECTION>__<KEY>` say what differs from the defaults below. A wrong key or
value never stops a start: that knob keeps its default, and the problem is kept in `Settings.problems` for `status` and
`doctor`.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

ENVIRONMENT_PREFIX = "CONTEXT_MANAGER_"
PAUSE_VARIABLE = "CONTEXT_MANAGER_PAUSE"
"""The one variable that switches off what is pushed, whatever the settings say."""

Auto = Literal["auto"]


class Section(BaseModel):
    """One block of `memory-config.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ContextCompiler(Section):
    """How a token budget is shared out."""

    token_budget: Annotated[int, Field(ge=128, le=1_000_000, description="Tokens of a compiled context")] = 8192
    identity_budget_kb: Annotated[float, Field(gt=0, description="Most that identity may take, in KB of text")] = 17
    memory_budget_kb: Annotated[float, Field(gt=0, description="Most that MEMORY.md may take, in KB of text")] = 3
    journal_budget_kb: Annotated[float, Field(gt=0, description="Most that the journal may take, in KB of text")] = 4
    identity_share: Annotated[float, Field(ge=0, le=1, description="Most that identity may take of the budget")] = 0.15
    memory_share: Annotated[
        float, Field(ge=0, le=1, description="Most that memory, journal and projects take together")
    ] = 0.20
    knowledge_floor: Annotated[
        float, Field(ge=0, le=1, description="Kept free for scored knowledge (delivery: replace)")
    ] = 0.25
    knowledge_floor_add: Annotated[
        float, Field(ge=0, le=1, description="Kept free for scored knowledge (delivery: add)")
    ] = 0.35
    history_floor: Annotated[
        float, Field(ge=0, le=1, description="Kept free for the session's own turns (replace)")
    ] = 0.25


class Search(Section):
    """Which embedder, and how its similarity is weighed against keywords."""

    embedder: Annotated[Literal["wordllama", "none"], Field(description="wordllama (local, offline) or none")] = (
        "wordllama"
    )
    bm25_weight: Annotated[float | Auto, Field(description="Weight of keywords; auto follows the embedder")] = "auto"
    vector_weight: Annotated[float | Auto, Field(description="Weight of similarity; auto follows the embedder")] = (
        "auto"
    )
    gate_threshold: Annotated[
        float | Auto, Field(description="Below it nothing is relevant; auto follows the embedder")
    ] = "auto"


class Lifecycle(Section):
    """When sessions end and how long the memory file may grow."""

    session_idle_hours: Annotated[float, Field(gt=0, description="A session without a turn for so long is closed")] = 6
    memory_line_cap: Annotated[
        int, Field(ge=20, description="At so many lines the oldest entries of MEMORY.md are archived")
    ] = 200


class Knowledge(Section):
    """What agents may write by themselves."""

    approve: Annotated[bool, Field(description="Changes of identity and topics wait for your approval")] = True


class Git(Section):
    """The workspace's own repository."""

    auto_commit: Annotated[bool, Field(description="Commit a conversation when it is closed")] = True


class Server(Section):
    """How calls without a session handle are understood."""

    unnamed_sessions: Annotated[
        Literal["auto", "connection", "explicit"],
        Field(description="connection: one session a connection; explicit: each unnamed observe opens one"),
    ] = "auto"


class Hooks(Section):
    """What a client's hooks record, and how much they may push into its prompts."""

    inject: Annotated[
        bool, Field(description="Push what is relevant into prompts; CONTEXT_MANAGER_PAUSE=1 stops it")
    ] = True
    capture: Annotated[bool, Field(description="Record what is said in the client")] = True
    start_tokens: Annotated[
        int, Field(ge=0, le=4000, description="Most tokens at a start and after a compaction; 0: none")
    ] = 1200
    turn_tokens: Annotated[int, Field(ge=0, le=4000, description="Most tokens with one prompt; 0: none")] = 400


class WorkspaceSection(Section):
    """Where this machine's own files lie, and whose day it is."""

    local_dir: Annotated[
        str | None, Field(description="Folder for index and state; default: .local in the workspace")
    ] = None
    timezone: Annotated[str | Auto, Field(description="IANA name for journal dates; auto: the machine's")] = "auto"


class Settings(BaseModel):
    """Every knob. `problems` are sentences about what was wrong in the file or the environment."""

    model_config = ConfigDict(frozen=True)

    context_compiler: ContextCompiler = ContextCompiler()
    search: Search = Search()
    lifecycle: Lifecycle = Lifecycle()
    knowledge: Knowledge = Knowledge()
    git: Git = Git()
    server: Server = Server()
    hooks: Hooks = Hooks()
    workspace: WorkspaceSection = WorkspaceSection()
    problems: tuple[str, ...] = ()

    def digest(self) -> str:
        """SHA-256 of what these settings change in a compilation."""
        return hashlib.sha256(
            self.model_dump_json(exclude={"problems", "workspace", "server", "git", "hooks", "knowledge"}).encode()
        ).hexdigest()


SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def read_settings(document: Mapping[str, Any], environ: Mapping[str, str], where: str) -> Settings:
    """Settings from a parsed YAML document and the environment; what is wrong in them ends up in `problems`."""
    problems: list[str] = []
    chosen: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, values in document.items():
        if name not in SECTIONS:
            problems.append(f"{where}: no section {name!r}{_nearest(str(name), SECTIONS)}; it is ignored")
        elif isinstance(values, Mapping):
            _choose(chosen[name], SECTIONS[name], values, f"{where}: {name}.", problems)
        elif values is not None:
            problems.append(f"{where}: {name} must hold keys and values, not {values!r}; its defaults are used")
    for variable, text in environ.items():
        section, _, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        if variable.startswith(ENVIRONMENT_PREFIX) and key and section in SECTIONS:
            _choose(
                chosen[section], SECTIONS[section], {key: text}, f"{ENVIRONMENT_PREFIX}{section.upper()}__", problems
            )
    if environ.get(PAUSE_VARIABLE, "").strip().lower() not in ("", "0", "false", "no", "off"):
        chosen["hooks"]["inject"] = False
    sections = {name: kind(**chosen[name]) for name, kind in SECTIONS.items()}
    return Settings.model_validate({**sections, "problems": tuple(problems)})


def _choose(
    chosen: dict[str, Any], kind: type[Section], values: Mapping[str, Any], where: str, problems: list[str]
) -> None:
    for key, value in values.items():
        field = kind.model_fields.get(key)
        if field is None:
            problems.append(f"{where}{key} is not a setting{_nearest(str(key), kind.model_fields)}; it is ignored")
            continue
        try:
            kind(**{key: value})
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            problems.append(f"{where}{key} = {value!r}: {reason}; the default {field.default!r} is used")
        else:
            chosen[key] = value


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f" (there are {', '.join(known)})"


def default_document() -> str:
    """`memory-config.yaml` as `init` writes it: every knob at its default, commented."""
    lines = ["# Settings of this memory. Every knob is here, at its default; change what you like.", ""]
    for name, kind in SECTIONS.items():
        lines += [f"# {(kind.__doc__ or '').splitlines()[0]}", f"{name}:"]
        for key, field in kind.model_fields.items():
            value = TypeAdapter(Any).dump_json(field.default).decode().strip('"')
            lines.append(f"  {f'{key}: {value}':<30} # {field.description}")
        lines.append("")
    return "\n".join(lines)
