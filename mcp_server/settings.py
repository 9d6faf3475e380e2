"""Settings: every knob with its default, its limits and its description, as one frozen value.

`settings_file` reads what differs from these defaults.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

Auto = Literal["auto"]


class Section(BaseModel):
    """One block of the settings files."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ContextCompiler(Section):
    """How a token budget is shared out."""

    token_budget: Annotated[int, Field(ge=128, le=1_000_000, description="Tokens of a compiled context")] = 8192
    identity_budget_kb: Annotated[
        float, Field(gt=0, description="Most that identity may take while others need the room, in KB of text")
    ] = 17
    memory_budget_kb: Annotated[
        float, Field(gt=0, description="Most that MEMORY.md may take while others need the room, in KB of text")
    ] = 3
    journal_budget_kb: Annotated[
        float, Field(gt=0, description="Most that the journal may take while others need the room, in KB of text")
    ] = 4
    topic_budget_kb: Annotated[float, Field(gt=0, description="Most that active topics may take, in KB of text")] = 6
    identity_share: Annotated[
        float, Field(ge=0, le=1, description="Most that identity may take of the budget while others need the room")
    ] = 0.15
    memory_share: Annotated[
        float,
        Field(
            ge=0, le=1, description="Most that memory, journal and projects take together while others need the room"
        ),
    ] = 0.20
    topic_share: Annotated[
        float, Field(ge=0, le=1, description="Most that active topics, what they subscribe to and corrections take")
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

    embedder: Annotated[
        Literal["wordllama", "none", "openai", "sentence-transformers"],
        Field(description="wordllama (local, offline), openai (any compatible endpoint), sentence-transformers, none"),
    ] = "wordllama"
    embedding_model: Annotated[str | None, Field(description="Its model; default: the provider's own")] = None
    embedding_dimensions: Annotated[
        int | None, Field(ge=1, le=8192, description="Numbers of a vector; default: as the model is known")
    ] = None
    embedding_url: Annotated[str | None, Field(description="Another endpoint for openai")] = None
    embedding_price: Annotated[float, Field(ge=0, description="US dollars for a million tokens; 0: not known")] = 0
    bm25_weight: Annotated[float | Auto, Field(description="Weight of keywords; auto follows the embedder")] = "auto"
    vector_weight: Annotated[float | Auto, Field(description="Weight of similarity; auto follows the embedder")] = (
        "auto"
    )
    gate_threshold: Annotated[
        float | Auto, Field(description="Below it nothing is relevant; auto follows the embedder")
    ] = "auto"


class Lifecycle(Section):
    """When sessions end and how long the memory file may grow."""

    session_idle_hours: Annotated[
        float, Field(gt=0, le=1_000_000, description="A session without a turn for so long is closed")
    ] = 6
    memory_line_cap: Annotated[
        int, Field(ge=20, description="At so many lines the oldest entries of MEMORY.md are archived")
    ] = 200
    extraction_trigger: Annotated[
        Literal["on_session_end", "hourly", "manual"],
        Field(description="on_session_end, hourly, or manual: when closed conversations become knowledge"),
    ] = "on_session_end"
    condensation_schedule: Annotated[
        str | None, Field(description="Cron expression for the day's condensation; null: never by itself")
    ] = "0 23 * * *"
    pruning_schedule: Annotated[
        str | None, Field(description="Cron expression for the week's; files that nobody needs go to archive/, too")
    ] = "0 0 * * 0"
    monthly_schedule: Annotated[str | None, Field(description="Cron expression for the month's")] = "30 0 1 * *"
    journal_retention_days: Annotated[
        int, Field(ge=2, description="Older journals move to archive/ when the month is condensed")
    ] = 90
    commit_interval_minutes: Annotated[
        float, Field(gt=0, le=10_000_000, description="What changed is committed so often, and when a server ends")
    ] = 30


class Knowledge(Section):
    """What agents may write by themselves."""

    approve: Annotated[bool, Field(description="Changes of identity and topics wait for your approval")] = True


class Context(Section):
    """When a session's live context is too full, and what leaves it then (S1). Shares are of `limit_tokens`."""

    limit_tokens: Annotated[int, Field(ge=1000, description="Tokens that a session's live context may have")] = 200_000
    curation_trigger_pct: Annotated[float, Field(gt=0, le=1, description="From here on irrelevant chunks go cold")] = (
        0.40
    )
    compaction_trigger_pct: Annotated[float, Field(gt=0, le=1, description="From here on the context is compacted")] = (
        0.50
    )
    max_context_pct: Annotated[float, Field(gt=0, le=1, description="Never left standing over this")] = 0.85
    relevance_keep: Annotated[float, Field(ge=0, le=1, description="Score from which a chunk is kept whole")] = 0.5
    relevance_cutoff: Annotated[float, Field(ge=0, le=1, description="Score up to which a chunk is dropped")] = 0.3
    recency_bonus: Annotated[float, Field(ge=0, description="Weight of a chunk's last hour")] = 0.2
    importance_boost: Annotated[float, Field(ge=0, description="Weight of a flag or an anchor")] = 0.1
    memfas_weight: Annotated[float, Field(ge=0, description="Weight of a chunk's similarity to the message")] = 0.6
    memfas_min_score: Annotated[float, Field(ge=0, le=1, description="Similarity under this counts as none")] = 0.05
    min_chunks_to_keep: Annotated[int, Field(ge=1, description="So many of the newest chunks always stay")] = 5
    summarize_medium_chunks: Annotated[bool, Field(description="Summarise what lies between cutoff and keep")] = True
    summary_target_tokens: Annotated[int, Field(ge=20, description="Most that a summary may have")] = 500
    cold_storage_enabled: Annotated[bool, Field(description="Off: nothing is ever dropped")] = True
    recoverable_for_days: Annotated[int, Field(ge=1, le=36_500, description="Cold records are kept for so long")] = 30
    auto_recover: Annotated[int, Field(ge=0, description="Cold chunks that come back by themselves, a turn")] = 3
    log_compaction: Annotated[bool, Field(description="Write compaction.jsonl and context-health.jsonl")] = True
    log_curation: Annotated[bool, Field(description="Write curation.jsonl")] = True
    log_drops: Annotated[bool, Field(description="Write drops.jsonl")] = True
    log_recovery: Annotated[bool, Field(description="Write recovery.jsonl")] = True


class ClarityScoring(Section):
    """Points of S0's formula; `half_life` and `recency_window` in exchanges."""

    half_life: Annotated[float, Field(gt=0, description="Exchanges in which an unused item loses half its base")] = 5
    recency_window: Annotated[int, Field(ge=0, description="Exchanges in which a mention still earns a bonus")] = 3
    recency_bonus: Annotated[float, Field(ge=0, description="Points for a mention just now")] = 20
    reference_weight: Annotated[float, Field(ge=0, description="Points for each reference by an answer")] = 15
    frequency_scale: Annotated[float, Field(ge=0, description="Points for each doubling of the mentions")] = 10
    anchor_bonus: Annotated[float, Field(ge=0, description="Points for an anchor")] = 100


class ClarityPruning(Section):
    """Which items stay in the block: points and numbers of items."""

    prune_threshold: Annotated[float, Field(ge=0, description="Items under so many points go")] = 8
    strict_mode_preserve_threshold: Annotated[
        float, Field(ge=0, description="In strict mode items of so many points outlive the cap of their kind")
    ] = 25
    max_items_per_category: Annotated[int, Field(ge=1, description="Most of one kind")] = 20
    target_context_items: Annotated[int, Field(ge=1, description="Left after pruning for number")] = 30
    max_context_items: Annotated[int, Field(ge=1, description="Over so many, items are pruned for number")] = 50
    min_mentions_preserve: Annotated[int, Field(ge=1, description="Items mentioned so often stay")] = 3


class Clarity(Section):
    """What a conversation is about, as running scores (S0)."""

    enabled: Annotated[bool, Field(description="Track items and show the block")] = True
    strict_mode: Annotated[bool, Field(description="Essential items always stay")] = False
    block_tokens: Annotated[int, Field(ge=0, description="Most that the block may take")] = 150
    scoring: ClarityScoring = ClarityScoring()
    pruning: ClarityPruning = ClarityPruning()


class Advisor(Section):
    """Advice on what to take out of a full context (S2)."""

    enabled: Annotated[bool, Field(description="Advise from 70% on, in observe's answer")] = True
    lexicon: Annotated[
        str | None, Field(description="File of technologies, layers and generic words; default: the one that ships")
    ] = None


class Checkpoints(Section):
    """What is kept of a conversation's state, to go back to."""

    keep: Annotated[
        int, Field(ge=1, description="Automatic checkpoints kept of a session; those that were asked for all stay")
    ] = 20


class Watchers(Section):
    """Which topics a message brings in, and for how long (S4)."""

    topic_ttl: Annotated[int, Field(ge=0, description="Exchanges that a topic stays after it last fired")] = 3
    similarity_threshold: Annotated[
        float, Field(ge=0, le=1, description="A topic without triggers is asked about from this likeness on")
    ] = 0.15
    gate_margin: Annotated[
        float, Field(ge=0, le=1, description="Without an LLM a topic needs so much more than its threshold")
    ] = 0.13
    gate_calls: Annotated[int, Field(ge=0, le=20, description="Topics of a message that an LLM is asked about")] = 3
    gate_timeout_seconds: Annotated[
        float, Field(gt=0, le=60, description="Longest wait for the gate's LLM; then it does without")
    ] = 2.0
    gate_model: Annotated[str | None, Field(description="The gate's LLM; default: `llm.small_model`")] = None
    gate_max_tokens: Annotated[int, Field(ge=1, le=100, description="Most tokens of the LLM's yes or no")] = 1
    log_gate: Annotated[bool, Field(description="Write gate.jsonl")] = True
    regex_ms: Annotated[
        int, Field(ge=1, le=10_000, description="Milliseconds that one pattern may take with a message")
    ] = 20
    webhooks: Annotated[bool, Field(description="Accept /webhook/SOURCE/EVENT where the server speaks HTTP")] = False
    webhook_max_kb: Annotated[int, Field(ge=1, le=10_000, description="Most that one webhook may send, in KB")] = 256


class Git(Section):
    """The workspace's own repository."""

    auto_commit: Annotated[
        bool, Field(description="Commit closed conversations at once, the rest on a cadence; false: you commit")
    ] = True
    auto_tag_daily: Annotated[
        bool, Field(description="Tag the last commit of every day and week in which something changed")
    ] = True
    hooks: Annotated[bool, Field(description="Keep our pre-commit, commit-msg and post-commit hooks beside yours")] = (
        True
    )
    remote: Annotated[str | None, Field(description="Name of the remote that sync and auto_push use")] = None
    auto_push: Annotated[bool, Field(description="Push to that remote after commits; never by force")] = False
    commit_message_model: Annotated[
        str | None, Field(description="The LLM that words commit messages; default: `llm.small_model`")
    ] = None


class LlmSection(Section):
    """An LLM for what it does better; nothing needs one. Its key stands in an environment variable, never here."""

    provider: Annotated[
        Literal["none", "anthropic", "openai"],
        Field(description="none, anthropic, or openai (any compatible endpoint)"),
    ] = "none"
    model: Annotated[str | None, Field(description="Writes texts; default: the provider's own")] = None
    small_model: Annotated[str | None, Field(description="Answers yes or no; default: a small one, or `model`")] = None
    base_url: Annotated[str | None, Field(description="Another endpoint, such as http://localhost:11434/v1")] = None
    key_variable: Annotated[
        str | None, Field(description="Variable with the key; default: ANTHROPIC_API_KEY or OPENAI_API_KEY")
    ] = None
    timeout_seconds: Annotated[
        float, Field(gt=0, le=600, description="Longest wait for an answer, retries included")
    ] = 30
    retries: Annotated[int, Field(ge=0, le=10, description="Tries again after a refusal or a broken connection")] = 2
    daily_tokens: Annotated[int, Field(ge=0, description="Most tokens in a day")] = 1_000_000
    daily_usd: Annotated[float, Field(ge=0, description="Most US dollars in a day, as far as prices are set")] = 1.0
    input_price: Annotated[float, Field(ge=0, description="US dollars for a million tokens in; 0: not known")] = 0
    output_price: Annotated[float, Field(ge=0, description="US dollars for a million tokens out; 0: not known")] = 0
    small_input_price: Annotated[float, Field(ge=0, description="The same for the small model")] = 0
    small_output_price: Annotated[float, Field(ge=0, description="The same for the small model")] = 0


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
    start_tokens: Annotated[int, Field(ge=0, le=4000, description="Most tokens at the start of a window; 0: none")] = (
        600
    )
    compaction_tokens: Annotated[
        int, Field(ge=0, le=4000, description="Most tokens after the client compacted its window; 0: none")
    ] = 1200
    turn_tokens: Annotated[int, Field(ge=0, le=4000, description="Most tokens with one prompt; 0: none")] = 300
    session_tokens: Annotated[
        int, Field(ge=0, le=40000, description="Most tokens with all prompts of one window; 0: none")
    ] = 3000


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

    def digest(self) -> str:
        """SHA-256 of what these settings change in a compilation."""
        return hashlib.sha256(
            self.model_dump_json(
                exclude={"problems", "workspace", "server", "git", "llm", "hooks", "knowledge", "watchers"}
            ).encode()
        ).hexdigest()


MACHINE_FILE = ".local/settings.yaml"
"""The settings of this machine. They stay in this folder when `workspace.local_dir` moves the rest of it."""

MACHINE = frozenset(
    {
        "advisor.lexicon",
        "git.auto_push",
        "git.commit_message_model",
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
"""Settings, and whole sections, that name an endpoint, a provider, a key, a path or an approval. They belong to the
machine: git may bring the other settings from anywhere, these never."""


def belongs_to_machine(section: str, key: str) -> bool:
    """Whether a setting is read from this machine's own file and the environment only."""
    return section in MACHINE or f"{section}.{key}" in MACHINE


def sections_of(of: type[BaseModel]) -> dict[str, type[Section]]:
    """The blocks of a model by their names."""
    return {
        name: field.annotation
        for name, field in of.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


SECTIONS = sections_of(Settings)


def knobs(kind: type[Section], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """Every knob of a block and of the blocks in it, by its whole name (`clarity.scoring.half_life`)."""
    inner = sections_of(kind)
    for key, field in kind.model_fields.items():
        if key in inner:
            yield from knobs(inner[key], f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}", field


def split_document(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a settings file's content without the settings that belong to the machine, and those by whole name."""
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
    """Returns the settings of a file that belong to the machine and are not at their default, by whole name."""
    known = {name: field.default for section, kind in SECTIONS.items() for name, field in knobs(kind, section)}
    found = split_document(document)[1]
    return {name: value for name, value in found.items() if name in known and value != known[name]}
