"""All settings with their defaults, limits and descriptions, as one frozen value. `settings_file` reads the files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

Auto = Literal["auto"]


class Section(BaseModel):
    """A section of the settings files."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ContextCompiler(Section):
    """How a context's token budget is divided."""

    token_budget: Annotated[int, Field(ge=128, le=1_000_000, description="Tokens of a compiled context")] = 8192
    identity_budget_kb: Annotated[float, Field(gt=0, description="KB for identity, more if tokens are left")] = 17
    memory_budget_kb: Annotated[float, Field(gt=0, description="KB for MEMORY.md, more if tokens are left")] = 3
    journal_budget_kb: Annotated[float, Field(gt=0, description="KB for the journal, more if tokens are left")] = 4
    topic_budget_kb: Annotated[float, Field(gt=0, description="KB for active topics at most")] = 6
    identity_share: Annotated[
        float, Field(ge=0, le=1, description="Share of the budget for identity, more if tokens are left")
    ] = 0.15
    memory_share: Annotated[
        float, Field(ge=0, le=1, description="Share for memory, journal and projects, more if tokens are left")
    ] = 0.20
    topic_share: Annotated[
        float, Field(ge=0, le=1, description="Share for active topics, their files and corrections at most")
    ] = 0.20
    knowledge_floor: Annotated[
        float, Field(ge=0, le=1, description="Share kept free for scored knowledge (delivery: replace)")
    ] = 0.25
    knowledge_floor_add: Annotated[
        float, Field(ge=0, le=1, description="Share kept free for scored knowledge (delivery: add)")
    ] = 0.35
    history_floor: Annotated[
        float, Field(ge=0, le=1, description="Share kept free for the session's own turns (replace)")
    ] = 0.25


class Search(Section):
    """The embedder, and the weights of similarity and keywords."""

    embedder: Annotated[
        Literal["wordllama", "none", "openai", "sentence-transformers"],
        Field(description="wordllama (local, offline), openai (any compatible endpoint), sentence-transformers, none"),
    ] = "wordllama"
    embedding_model: Annotated[str | None, Field(description="The embedder's model; default: the provider's")] = None
    embedding_dimensions: Annotated[
        int | None, Field(ge=1, le=8192, description="Numbers per vector; default: the model's")
    ] = None
    embedding_url: Annotated[str | None, Field(description="Another endpoint for openai")] = None
    embedding_price: Annotated[float, Field(ge=0, description="US dollars per million tokens; 0: unknown")] = 0
    bm25_weight: Annotated[float | Auto, Field(description="Weight of keywords; auto: the default ranking")] = "auto"
    vector_weight: Annotated[float | Auto, Field(description="Weight of similarity; auto: the default ranking")] = (
        "auto"
    )
    gate_threshold: Annotated[
        float | Auto, Field(description="Value below which nothing is relevant; auto: the embedder's")
    ] = "auto"


class Lifecycle(Section):
    """When sessions end, and when knowledge is extracted and condensed."""

    session_idle_hours: Annotated[
        float, Field(gt=0, le=1_000_000, description="Hours without a turn after which a session is closed")
    ] = 6
    memory_line_cap: Annotated[int, Field(ge=20, description="Lines of MEMORY.md; older entries are archived")] = 200
    extraction_trigger: Annotated[
        Literal["on_session_end", "hourly", "manual"],
        Field(description="on_session_end, hourly, or manual: when closed conversations become knowledge"),
    ] = "on_session_end"
    condensation_schedule: Annotated[
        str | None, Field(description="Cron expression of the daily condensation; null: off")
    ] = "0 23 * * *"
    pruning_schedule: Annotated[
        str | None, Field(description="Cron expression of the weekly one, which also archives unused files")
    ] = "0 0 * * 0"
    monthly_schedule: Annotated[str | None, Field(description="Cron expression of the monthly condensation")] = (
        "30 0 1 * *"
    )
    journal_retention_days: Annotated[
        int, Field(ge=2, description="Days after which the monthly condensation archives journals")
    ] = 90
    commit_interval_minutes: Annotated[
        float, Field(gt=0, le=10_000_000, description="Minutes between commits; a server also commits when it ends")
    ] = 30


class Knowledge(Section):
    """What agents may write without your approval."""

    approve: Annotated[bool, Field(description="Changes of identity and topics wait for your approval")] = True


class Context(Section):
    """When chunks leave a session's full live context. Shares are of `limit_tokens`."""

    limit_tokens: Annotated[int, Field(ge=1000, description="Tokens that a session's live context may have")] = 200_000
    curation_trigger_pct: Annotated[
        float, Field(gt=0, le=1, description="Share above which irrelevant chunks are dropped")
    ] = 0.40
    compaction_trigger_pct: Annotated[
        float, Field(gt=0, le=1, description="Share above which the context is compacted")
    ] = 0.50
    max_context_pct: Annotated[float, Field(gt=0, le=1, description="Share that is never exceeded")] = 0.85
    relevance_keep: Annotated[float, Field(ge=0, le=1, description="Score at which a chunk is kept whole")] = 0.5
    relevance_cutoff: Annotated[float, Field(ge=0, le=1, description="Score at or below which a chunk is dropped")] = (
        0.3
    )
    recency_bonus: Annotated[float, Field(ge=0, description="Weight of a chunk's last hour")] = 0.2
    importance_boost: Annotated[float, Field(ge=0, description="Weight of a flag or an anchor")] = 0.1
    memfas_weight: Annotated[float, Field(ge=0, description="Weight of a chunk's similarity to the message")] = 0.6
    memfas_min_score: Annotated[float, Field(ge=0, le=1, description="Similarity below this counts as 0")] = 0.05
    min_chunks_to_keep: Annotated[int, Field(ge=1, description="Newest chunks that are always kept")] = 5
    summarize_medium_chunks: Annotated[bool, Field(description="Summarize chunks between cutoff and keep")] = True
    summary_target_tokens: Annotated[int, Field(ge=20, description="Tokens of a summary at most")] = 500
    cold_storage_enabled: Annotated[bool, Field(description="Off: nothing is ever dropped")] = True
    recoverable_for_days: Annotated[int, Field(ge=1, le=36_500, description="Days that cold records are kept")] = 30
    auto_recover: Annotated[int, Field(ge=0, description="Cold chunks recovered automatically per turn")] = 3
    log_compaction: Annotated[bool, Field(description="Write compaction.jsonl and context-health.jsonl")] = True
    log_curation: Annotated[bool, Field(description="Write curation.jsonl")] = True
    log_drops: Annotated[bool, Field(description="Write drops.jsonl")] = True
    log_recovery: Annotated[bool, Field(description="Write recovery.jsonl")] = True


class ClarityScoring(Section):
    """Points of an item's score; `half_life` and `recency_window` in exchanges."""

    half_life: Annotated[float, Field(gt=0, description="Exchanges in which an unused item loses half its base")] = 5
    recency_window: Annotated[int, Field(ge=0, description="Exchanges in which a mention still earns a bonus")] = 3
    recency_bonus: Annotated[float, Field(ge=0, description="Points for a mention just now")] = 20
    reference_weight: Annotated[float, Field(ge=0, description="Points for each reference by an answer")] = 15
    frequency_scale: Annotated[float, Field(ge=0, description="Points for each doubling of the mentions")] = 10
    anchor_bonus: Annotated[float, Field(ge=0, description="Points for an anchor")] = 100


class ClarityPruning(Section):
    """Which items stay in the block: by points and by number."""

    prune_threshold: Annotated[float, Field(ge=0, description="Items with fewer points are removed")] = 8
    strict_mode_preserve_threshold: Annotated[
        float, Field(ge=0, description="In strict mode items with this many points exceed the cap of their kind")
    ] = 25
    max_items_per_category: Annotated[int, Field(ge=1, description="Items of one kind at most")] = 20
    target_context_items: Annotated[int, Field(ge=1, description="Items left after pruning by number")] = 30
    max_context_items: Annotated[int, Field(ge=1, description="Items above which pruning by number begins")] = 50
    min_mentions_preserve: Annotated[int, Field(ge=1, description="Mentions after which an item is kept")] = 3


class Clarity(Section):
    """The subjects of a conversation, with scores."""

    enabled: Annotated[bool, Field(description="Track items and show the block")] = True
    strict_mode: Annotated[bool, Field(description="Always keep essential items")] = False
    block_tokens: Annotated[int, Field(ge=0, description="Tokens of the block at most")] = 150
    scoring: ClarityScoring = ClarityScoring()
    pruning: ClarityPruning = ClarityPruning()


class Advisor(Section):
    """Advice on what to remove from a full context."""

    enabled: Annotated[bool, Field(description="Advise above 70%, in observe's answer")] = True
    lexicon: Annotated[
        str | None, Field(description="File of technologies, layers and generic words; default: the shipped file")
    ] = None


class Checkpoints(Section):
    """Checkpoints of a conversation's state."""

    keep: Annotated[
        int, Field(ge=1, description="Automatic checkpoints kept per session; requested ones are all kept")
    ] = 20


class Watchers(Section):
    """Which topics a message activates, and for how long."""

    topic_ttl: Annotated[int, Field(ge=0, description="Exchanges that a topic stays after it last fired")] = 3
    similarity_threshold: Annotated[
        float, Field(ge=0, le=1, description="Similarity at which a topic without triggers is considered")
    ] = 0.15
    gate_margin: Annotated[
        float, Field(ge=0, le=1, description="Similarity above the threshold that a topic needs without an LLM")
    ] = 0.13
    gate_calls: Annotated[int, Field(ge=0, le=20, description="Topics per message that an LLM is asked about")] = 3
    gate_timeout_seconds: Annotated[
        float, Field(gt=0, le=60, description="Longest wait for the gate's LLM; then it decides without")
    ] = 2.0
    gate_model: Annotated[str | None, Field(description="The gate's LLM; default: `llm.small_model`")] = None
    gate_max_tokens: Annotated[int, Field(ge=1, le=100, description="Tokens of the LLM's answer at most")] = 1
    log_gate: Annotated[bool, Field(description="Write gate.jsonl")] = True
    regex_ms: Annotated[int, Field(ge=1, le=10_000, description="Milliseconds per pattern and message at most")] = 20
    webhooks: Annotated[bool, Field(description="Accept /webhook/SOURCE/EVENT (HTTP server only)")] = False
    webhook_max_kb: Annotated[int, Field(ge=1, le=10_000, description="KB of one webhook at most")] = 256


class Git(Section):
    """The workspace's own repository."""

    auto_commit: Annotated[
        bool, Field(description="Commit closed conversations at once, the rest at intervals; false: you commit")
    ] = True
    auto_tag_daily: Annotated[bool, Field(description="Tag the last commit of every day and week with changes")] = True
    hooks: Annotated[
        bool, Field(description="Install our pre-commit, commit-msg and post-commit hooks; yours still run")
    ] = True
    remote: Annotated[
        str | None,
        Field(description="Name of the remote that sync and auto_push use; on PostgreSQL the address of a mirror"),
    ] = None
    auto_push: Annotated[bool, Field(description="Push to that remote after commits; never by force")] = False
    commit_message_model: Annotated[
        str | None, Field(description="The LLM for commit messages; default: `llm.small_model`")
    ] = None
    export_folder: Annotated[
        str | None, Field(description="On PostgreSQL: the folder for git repositories with the history; null: none")
    ] = None


class LlmSection(Section):
    """An optional LLM. Its key is in an environment variable, never in a file."""

    provider: Annotated[
        Literal["none", "anthropic", "openai"],
        Field(description="none, anthropic, or openai (any compatible endpoint)"),
    ] = "none"
    model: Annotated[str | None, Field(description="The model for texts; default: the provider's")] = None
    small_model: Annotated[
        str | None, Field(description="The model for yes or no; default: a small one, or `model`")
    ] = None
    base_url: Annotated[str | None, Field(description="Another endpoint, such as http://localhost:11434/v1")] = None
    key_variable: Annotated[
        str | None, Field(description="Variable with the key; default: ANTHROPIC_API_KEY or OPENAI_API_KEY")
    ] = None
    timeout_seconds: Annotated[
        float, Field(gt=0, le=600, description="Longest wait for an answer, including retries")
    ] = 30
    retries: Annotated[int, Field(ge=0, le=10, description="Retries after a refusal or a broken connection")] = 2
    daily_tokens: Annotated[int, Field(ge=0, description="Tokens per day at most")] = 1_000_000
    daily_usd: Annotated[float, Field(ge=0, description="US dollars per day at most, if prices are set")] = 1.0
    input_price: Annotated[float, Field(ge=0, description="US dollars per million input tokens; 0: unknown")] = 0
    output_price: Annotated[float, Field(ge=0, description="US dollars per million output tokens; 0: unknown")] = 0
    small_input_price: Annotated[float, Field(ge=0, description="Input price of the small model")] = 0
    small_output_price: Annotated[float, Field(ge=0, description="Output price of the small model")] = 0


class Server(Section):
    """Which session a call without a session id belongs to."""

    unnamed_sessions: Annotated[
        Literal["auto", "connection", "explicit"],
        Field(description="connection: one session per connection; explicit: each unnamed observe opens one"),
    ] = "auto"


class Hooks(Section):
    """What a client's hooks record, and how much they push into its prompts."""

    inject: Annotated[
        bool, Field(description="Push relevant memory into prompts; CONTEXT_MANAGER_PAUSE=1 stops it")
    ] = True
    capture: Annotated[bool, Field(description="Record the client's conversations")] = True
    start_tokens: Annotated[
        int, Field(ge=0, le=4000, description="Tokens at the start of a window at most; 0: none")
    ] = 600
    compaction_tokens: Annotated[
        int, Field(ge=0, le=4000, description="Tokens after the client compacted its window at most; 0: none")
    ] = 1200
    turn_tokens: Annotated[int, Field(ge=0, le=4000, description="Tokens with one prompt at most; 0: none")] = 300
    session_tokens: Annotated[
        int, Field(ge=0, le=40000, description="Tokens with all prompts of one window at most; 0: none")
    ] = 3000


class WorkspaceSection(Section):
    """The folder of this machine's own files, and the time zone."""

    local_dir: Annotated[
        str | None, Field(description="Folder for index and state; default: .local in the workspace")
    ] = None
    timezone: Annotated[str | Auto, Field(description="IANA name for journal dates; auto: the machine's")] = "auto"


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
