"""All settings with their defaults, limits and descriptions, as one frozen value. `settings_file` reads the files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

Auto = Literal["auto"]


class Section(BaseModel):
    """A section of the settings files."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def setting(default: Any, description: str, **limits: float) -> Any:
    """Returns the field of a setting. `limits` are pydantic's `ge`, `gt` and `le`."""
    return Field(default, description=description, **limits)  # type: ignore[call-overload]


def is_schedule(value: str) -> bool:
    """Returns whether a text is a cron expression of five fields that matches some time."""
    from cronsim import CronSim, CronSimError  # most workspaces have the default, which is not checked

    try:
        return len(value.split()) == 5 and bool(next(CronSim(value, datetime(2000, 1, 1, tzinfo=UTC))))
    except (CronSimError, StopIteration):
        return False


class ContextCompiler(Section):
    """How a context's token budget is divided."""

    token_budget: int = setting(8192, "Tokens of a compiled context", ge=128, le=1_000_000)
    identity_budget_kb: float = setting(17, "KB for identity, more if tokens are left", gt=0)
    memory_budget_kb: float = setting(3, "KB for MEMORY.md, more if tokens are left", gt=0)
    journal_budget_kb: float = setting(4, "KB for the journal, more if tokens are left", gt=0)
    topic_budget_kb: float = setting(6, "KB for active topics at most", gt=0)
    identity_share: float = setting(0.15, "Share of the budget for identity, more if tokens are left", ge=0, le=1)
    memory_share: float = setting(0.20, "Share for memory, journal and projects, more if tokens are left", ge=0, le=1)
    topic_share: float = setting(0.20, "Share for active topics, their files and corrections at most", ge=0, le=1)
    knowledge_floor: float = setting(0.25, "Share kept free for scored knowledge (delivery: replace)", ge=0, le=1)
    knowledge_floor_add: float = setting(0.35, "Share kept free for scored knowledge (delivery: add)", ge=0, le=1)
    history_floor: float = setting(0.25, "Share kept free for the session's own turns (replace)", ge=0, le=1)


class Search(Section):
    """The embedder, and the weights of similarity and keywords."""

    embedder: Literal["wordllama", "none", "openai", "sentence-transformers"] = setting(
        "wordllama", "wordllama (local, offline), openai (any compatible endpoint), sentence-transformers, none"
    )
    embedding_model: str | None = setting(None, "The embedder's model; default: the provider's")
    embedding_dimensions: int | None = setting(None, "Numbers per vector; default: the model's", ge=1, le=8192)
    embedding_url: str | None = setting(None, "Another endpoint for openai")
    embedding_price: float = setting(0, "US dollars per million tokens; 0: unknown", ge=0)
    bm25_weight: float | Auto = setting("auto", "Weight of keywords; auto: the default ranking")
    vector_weight: float | Auto = setting("auto", "Weight of similarity; auto: the default ranking")
    gate_threshold: float | Auto = setting("auto", "Value below which nothing is relevant; auto: the embedder's")


class Lifecycle(Section):
    """When sessions end, and when knowledge is extracted and condensed."""

    session_idle_hours: float = setting(6, "Hours without a turn after which a session is closed", gt=0, le=1_000_000)
    memory_line_cap: int = setting(200, "Lines of MEMORY.md; older entries are archived", ge=20)
    extraction_trigger: Literal["on_session_end", "hourly", "manual"] = setting(
        "on_session_end", "on_session_end, hourly, or manual: when closed conversations become knowledge"
    )
    condensation_schedule: str | None = setting("0 23 * * *", "Cron expression of the daily condensation; null: off")
    pruning_schedule: str | None = setting(
        "0 0 * * 0", "Cron expression of the weekly one, which also archives unused files"
    )
    monthly_schedule: str | None = setting("30 0 1 * *", "Cron expression of the monthly condensation")
    journal_retention_days: int = setting(90, "Days after which the monthly condensation archives journals", ge=2)
    commit_interval_minutes: float = setting(
        30, "Minutes between commits; a server also commits when it ends", gt=0, le=10_000_000
    )

    @field_validator("condensation_schedule", "pruning_schedule", "monthly_schedule")
    @classmethod
    def _check_schedule(cls, value: str | None) -> str | None:
        if value is not None and not is_schedule(value):
            raise PydanticCustomError(
                "schedule", "must be a cron expression of five fields that matches, such as 0 23 * * *"
            )
        return value


class Knowledge(Section):
    """What agents may write without your approval."""

    approve: bool = setting(True, "Changes of identity and topics wait for your approval")


class Context(Section):
    """When chunks leave a session's full live context. Shares are of `limit_tokens`."""

    limit_tokens: int = setting(200_000, "Tokens that a session's live context may have", ge=1000)
    curation_trigger_pct: float = setting(0.40, "Share above which irrelevant chunks are dropped", gt=0, le=1)
    compaction_trigger_pct: float = setting(0.50, "Share above which the context is compacted", gt=0, le=1)
    max_context_pct: float = setting(0.85, "Share that is never exceeded", gt=0, le=1)
    relevance_keep: float = setting(0.5, "Score at which a chunk is kept whole", ge=0, le=1)
    relevance_cutoff: float = setting(0.3, "Score at or below which a chunk is dropped", ge=0, le=1)
    recency_bonus: float = setting(0.2, "Weight of a chunk's last hour", ge=0)
    importance_boost: float = setting(0.1, "Weight of a flag or an anchor", ge=0)
    memfas_weight: float = setting(0.6, "Weight of a chunk's similarity to the message", ge=0)
    memfas_min_score: float = setting(0.05, "Similarity below this counts as 0", ge=0, le=1)
    min_chunks_to_keep: int = setting(5, "Newest chunks that are always kept", ge=1)
    summarize_medium_chunks: bool = setting(True, "Summarize chunks between cutoff and keep")
    summary_target_tokens: int = setting(500, "Tokens of a summary at most", ge=20)
    cold_storage_enabled: bool = setting(True, "Off: nothing is ever dropped")
    recoverable_for_days: int = setting(30, "Days that cold records are kept", ge=1, le=36_500)
    auto_recover: int = setting(3, "Cold chunks recovered automatically per turn", ge=0)
    log_compaction: bool = setting(True, "Write compaction.jsonl and context-health.jsonl")
    log_curation: bool = setting(True, "Write curation.jsonl")
    log_drops: bool = setting(True, "Write drops.jsonl")
    log_recovery: bool = setting(True, "Write recovery.jsonl")


class ClarityScoring(Section):
    """Points of an item's score; `half_life` and `recency_window` in exchanges."""

    half_life: float = setting(5, "Exchanges in which an unused item loses half its base", gt=0)
    recency_window: int = setting(3, "Exchanges in which a mention still earns a bonus", ge=0)
    recency_bonus: float = setting(20, "Points for a mention just now", ge=0)
    reference_weight: float = setting(15, "Points for each reference by an answer", ge=0)
    frequency_scale: float = setting(10, "Points for each doubling of the mentions", ge=0)
    anchor_bonus: float = setting(100, "Points for an anchor", ge=0)


class ClarityPruning(Section):
    """Which items stay in the block: by points and by number."""

    prune_threshold: float = setting(8, "Items with fewer points are removed", ge=0)
    strict_mode_preserve_threshold: float = setting(
        25, "In strict mode items with this many points exceed the cap of their kind", ge=0
    )
    max_items_per_category: int = setting(20, "Items of one kind at most", ge=1)
    target_context_items: int = setting(30, "Items left after pruning by number", ge=1)
    max_context_items: int = setting(50, "Items above which pruning by number begins", ge=1)
    min_mentions_preserve: int = setting(3, "Mentions after which an item is kept", ge=1)


class Clarity(Section):
    """The subjects of a conversation, with scores."""

    enabled: bool = setting(True, "Track items and show the block")
    strict_mode: bool = setting(False, "Always keep essential items")
    block_tokens: int = setting(150, "Tokens of the block at most", ge=0)
    scoring: ClarityScoring = ClarityScoring()
    pruning: ClarityPruning = ClarityPruning()


class Advisor(Section):
    """Advice on what to remove from a full context."""

    enabled: bool = setting(True, "Advise above 70%, in observe's answer")
    lexicon: str | None = setting(None, "File of technologies, layers and generic words; default: the shipped file")


class Checkpoints(Section):
    """Checkpoints of a conversation's state."""

    keep: int = setting(20, "Automatic checkpoints kept per session; requested ones are all kept", ge=1)


class Watchers(Section):
    """Which topics a message activates, and for how long."""

    topic_ttl: int = setting(3, "Exchanges that a topic stays after it last fired", ge=0)
    similarity_threshold: float = setting(
        0.15, "Similarity at which a topic without triggers is considered", ge=0, le=1
    )
    gate_margin: float = setting(0.13, "Similarity above the threshold that a topic needs without an LLM", ge=0, le=1)
    gate_calls: int = setting(3, "Topics per message that an LLM is asked about", ge=0, le=20)
    gate_timeout_seconds: float = setting(2.0, "Longest wait for the gate's LLM; then it decides without", gt=0, le=60)
    gate_model: str | None = setting(None, "The gate's LLM; default: `llm.small_model`")
    gate_max_tokens: int = setting(1, "Tokens of the LLM's answer at most", ge=1, le=100)
    log_gate: bool = setting(True, "Write gate.jsonl")
    regex_ms: int = setting(20, "Milliseconds per pattern and message at most", ge=1, le=10_000)
    webhooks: bool = setting(False, "Accept /webhook/SOURCE/EVENT (HTTP server only)")
    webhook_max_kb: int = setting(256, "KB of one webhook at most", ge=1, le=10_000)


class Git(Section):
    """The workspace's own repository."""

    auto_commit: bool = setting(True, "Commit closed conversations at once, the rest at intervals; false: you commit")
    auto_tag_daily: bool = setting(True, "Tag the last commit of every day and week with changes")
    hooks: bool = setting(True, "Install our pre-commit, commit-msg and post-commit hooks; yours still run")
    remote: str | None = setting(
        None, "Name of the remote that sync and auto_push use; on PostgreSQL the address of a mirror"
    )
    auto_push: bool = setting(False, "Push to that remote after commits; never by force")
    commit_message_model: str | None = setting(None, "The LLM for commit messages; default: `llm.small_model`")
    export_folder: str | None = setting(
        None, "On PostgreSQL: the folder for git repositories with the history; null: none"
    )


class LlmSection(Section):
    """An optional LLM. Its key is in an environment variable, never in a file."""

    provider: Literal["none", "anthropic", "openai"] = setting(
        "none", "none, anthropic, or openai (any compatible endpoint)"
    )
    model: str | None = setting(None, "The model for texts; default: the provider's")
    small_model: str | None = setting(None, "The model for yes or no; default: a small one, or `model`")
    base_url: str | None = setting(None, "Another endpoint, such as http://localhost:11434/v1")
    key_variable: str | None = setting(None, "Variable with the key; default: ANTHROPIC_API_KEY or OPENAI_API_KEY")
    timeout_seconds: float = setting(30, "Longest wait for an answer, including retries", gt=0, le=600)
    retries: int = setting(2, "Retries after a refusal or a broken connection", ge=0, le=10)
    daily_tokens: int = setting(1_000_000, "Tokens per day at most", ge=0)
    daily_usd: float = setting(1.0, "US dollars per day at most, if prices are set", ge=0)
    input_price: float = setting(0, "US dollars per million input tokens; 0: unknown", ge=0)
    output_price: float = setting(0, "US dollars per million output tokens; 0: unknown", ge=0)
    small_input_price: float = setting(0, "Input price of the small model", ge=0)
    small_output_price: float = setting(0, "Output price of the small model", ge=0)


class Server(Section):
    """Which session a call without a session id belongs to."""

    unnamed_sessions: Literal["auto", "connection", "explicit"] = setting(
        "auto", "connection: one session per connection; explicit: each unnamed observe opens one"
    )


class Hooks(Section):
    """What a client's hooks record, and how much they push into its prompts."""

    inject: bool = setting(True, "Push relevant memory into prompts; CONTEXT_MANAGER_PAUSE=1 stops it")
    capture: bool = setting(True, "Record the client's conversations")
    start_tokens: int = setting(600, "Tokens at the start of a window at most; 0: none", ge=0, le=4000)
    compaction_tokens: int = setting(
        1200, "Tokens after the client compacted its window at most; 0: none", ge=0, le=4000
    )
    turn_tokens: int = setting(300, "Tokens with one prompt at most; 0: none", ge=0, le=4000)
    session_tokens: int = setting(3000, "Tokens with all prompts of one window at most; 0: none", ge=0, le=40000)


class WorkspaceSection(Section):
    """The folder of this machine's own files, and the time zone."""

    local_dir: str | None = setting(None, "Folder for index and state; default: .local in the workspace")
    timezone: str | Auto = setting("auto", "IANA name for journal dates; auto: the machine's")

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, value: str) -> str:
        if value != "auto":
            try:
                ZoneInfo(value)
            except (KeyError, OSError, ValueError):
                raise PydanticCustomError(
                    "timezone", "must be the IANA name of a time zone, such as Europe/Belgrade, or auto"
                ) from None
        return value


class Settings(BaseModel):
    """All settings. `problems` are sentences about errors in the files or the environment."""

    model_config = ConfigDict(frozen=True)

    context_compiler: ContextCompiler = ContextCompiler()
    search: Search = Search()
    lifecycle: Lifecycle = Lifecycle()
    knowledge: Knowledge = Knowledge()
    context: Context = Context()
    clarity: Clarity = Clarity()
    advisor: Advisor = Advisor()
    checkpoints: Checkpoints = Checkpoints()
    watchers: Watchers = Watchers()
    git: Git = Git()
    llm: LlmSection = LlmSection()
    server: Server = Server()
    hooks: Hooks = Hooks()
    workspace: WorkspaceSection = WorkspaceSection()
    problems: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Returns a SHA-256 of the settings that can change a compilation."""
        return hashlib.sha256(
            self.model_dump_json(
                exclude={"problems", "workspace", "server", "git", "llm", "hooks", "knowledge", "watchers"}
            ).encode()
        ).hexdigest()


MACHINE_FILE = ".local/settings.yaml"
"""The settings of this machine. The file stays here if `workspace.local_dir` moves the rest of `.local/`."""

MACHINE = frozenset(
    {
        "advisor.lexicon",
        "git.auto_push",
        "git.commit_message_model",
        "git.export_folder",
        "git.remote",
        "knowledge.approve",
        "llm",
        "search.embedder",
        "search.embedding_dimensions",
        "search.embedding_model",
        "search.embedding_price",
        "search.embedding_url",
        "server",
        "watchers.gate_model",
        "watchers.webhook_max_kb",
        "watchers.webhooks",
        "workspace.local_dir",
    }
)
"""Settings and sections with an endpoint, a provider, a key, a path or an approval. Each machine has its own: git may
bring the other settings from another machine, but not these."""


def belongs_to_machine(section: str, key: str) -> bool:
    """Returns whether a setting is read only from this machine's file and the environment."""
    return section in MACHINE or f"{section}.{key}" in MACHINE


def sections_of(of: type[BaseModel]) -> dict[str, type[Section]]:
    """Returns the sections of a model by name."""
    return {
        name: field.annotation
        for name, field in of.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


SECTIONS = sections_of(Settings)


def knobs(kind: type[Section], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """Yields every setting of a section and its inner sections, with its full name (`clarity.scoring.half_life`)."""
    inner = sections_of(kind)
    for key, field in kind.model_fields.items():
        if key in inner:
            yield from knobs(inner[key], f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}", field


def split_document(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a settings file's content without the machine's settings, and the machine's settings by full name."""
    shared: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    for section, values in document.items():
        if section not in SECTIONS or not isinstance(values, Mapping):
            shared[section] = values
            continue
        shared[section] = {}
        for key, value in values.items():
            known = str(key).lower()
            if belongs_to_machine(section, known):
                machine[f"{section}.{known}"] = value
            else:
                shared[section][key] = value
    return shared, machine


def machine_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a file's machine settings that differ from their defaults, by full name."""
    known = {name: field.default for section, kind in SECTIONS.items() for name, field in knobs(kind, section)}
    found = split_document(document)[1]
    return {name: value for name, value in found.items() if name in known and value != known[name]}
