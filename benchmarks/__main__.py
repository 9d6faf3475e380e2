"""`python -m benchmarks …`: the commands, and the tables that they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import click

from benchmarks.continuity import WITHIN, ContinuityReport, measure_continuity
from benchmarks.injection import BUDGET, LEAST_SILENT, MOST_FALL, InjectionReport, measure_injection
from benchmarks.push import PushReport, measure_push
from benchmarks.retrieval import RetrievalReport, measure_retrieval
from benchmarks.speed import SpeedReport, measure_speed
from benchmarks.team import TeamReport, measure_team
from benchmarks.topics import (
    LEAST_PRECISION,
    LEAST_RECALL,
    MEASURED,
    SET,
    TopicsReport,
    TopicsSpeed,
    measure_topics,
    measure_topics_speed,
)
from benchmarks.understand import Share, UnderstandReport, measure_understanding
from benchmarks.workbench import Workbench, mean
from mcp_server import set_up_process
from mcp_server.cli.shell import plain, print_table, progress
from mcp_server.errors import ContextManagerError
from mcp_server.understanding.model import SHIPPED, recognizer

T = TypeVar("T")

EXISTING = click.Path(exists=True, path_type=Path)
path_argument = click.argument("path", type=EXISTING)
files_argument = click.argument("files", type=EXISTING, nargs=-1, required=True)
weights_option = click.option(
    "--weights", type=EXISTING, default=SHIPPED, help="A weights file to measure instead of the shipped one."
)
to_json = click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Also write JSON to this file (- prints only JSON).",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measure pushed context, retrieval, the gate, topics, understanding and speed in temporary workspaces. Settings
    are read from CONTEXT_MANAGER_… variables; benchmarks/README.md describes the files."""
    set_up_process()  # as programs do


@cli.command()
@path_argument
@click.option(
    "--knowledge", is_flag=True, help="Extract and condense first; a line counts as the turns that it repeats."
)
@to_json
def retrieval(path: Path, knowledge: bool, json_file: Path | None) -> None:
    """Ask the questions of LoCoMo or BEAM: is the evidence found, and is it in the compiled context?"""
    report = _run("Asking", lambda bench: measure_retrieval(bench, path, knowledge))
    _deliver(report, json_file, lambda: _print_retrieval(report))


@cli.command()
@files_argument
@click.option(
    "--limit", type=click.IntRange(1000), default=12_000, show_default=True, help="Tokens of the live context."
)
@weights_option
@to_json
def continuity(files: tuple[Path, ...], limit: int, weights: Path, json_file: Path | None) -> None:
    """Does the work go on when the window fills up? LoCoMo and BEAM under a small live limit; labeled conversations and
    what brief, compaction and resume hold of them after further turns."""
    report = _run("Observing", lambda bench: measure_continuity(bench, files, limit, weights))
    _deliver(report, json_file, lambda: _print_continuity(report))


@cli.command()
@files_argument
@to_json
def injection(files: tuple[Path, ...], json_file: Path | None) -> None:
    """Send prompts that are unrelated to a memory (LoCoMo or BEAM): do they bring nothing in? Does the gate cost
    evidence?"""
    report = _run("Asking", lambda bench: measure_injection(bench, files))
    _deliver(report, json_file, lambda: _print_injection(report))


@cli.command()
@click.argument("path", type=EXISTING, default=SET)
@click.option("--mistakes", is_flag=True, help="Show wrong decisions on the half for tuning.")
@to_json
def topics(path: Path, mistakes: bool, json_file: Path | None) -> None:
    """Are the right topics activated, and how fast? Precision and recall on a labeled set, without an LLM; then the
    time per message with many topics, before the gate."""
    labeled = _run("Judging", lambda bench: measure_topics(bench, path))
    speed = _run("Measuring", measure_topics_speed)
    _deliver({"labeled": labeled, "speed": speed}, json_file, lambda: _print_topics(labeled, speed, mistakes))


@cli.command()
@files_argument
@click.option("--show", is_flag=True, help="Also print missed items and wrong lines.")
@weights_option
@to_json
def understand(files: tuple[Path, ...], show: bool, weights: Path, json_file: Path | None) -> None:
    """Are decisions, rules, facts and open items found? Precision and recall on labeled conversations, without an
    LLM."""
    report = measure_understanding(files, recognizer(weights))
    _deliver(report, json_file, lambda: _print_understanding(report, show))


@cli.command()
@files_argument
@click.option("--show", is_flag=True, help="Also print each prompt with what was pushed.")
@to_json
def push(files: tuple[Path, ...], show: bool, json_file: Path | None) -> None:
    """Does what a later prompt needs arrive in its window, and what does it cost? FILES: labeled working conversations,
    LoCoMo files, BEAM folders."""
    with progress("Sending prompts") as shown:
        report = measure_push(files, shown)
    _deliver(report, json_file, lambda: _print_push(report, show))


@cli.command()
@click.option("--passages", type=click.IntRange(100), default=10_000, show_default=True, help="How many passages.")
@to_json
def speed(passages: int, json_file: Path | None) -> None:
    """Measure start, observe, search, compile, the page, indexing, memory and hooks on made-up conversations."""
    report = _run("Measuring", lambda bench: measure_speed(bench, passages))
    _deliver(report, json_file, lambda: _print_speed(report))


@cli.command()
@click.argument("address")
@click.option("--workspaces", type=click.IntRange(1), default=20, show_default=True, help="How many workspaces.")
@click.option("--passages", type=click.IntRange(100), default=2_000, show_default=True, help="Passages in each.")
@click.option("--clients", type=click.IntRange(2), default=32, show_default=True, help="Calls at the same time.")
@click.option("--seconds", type=click.IntRange(1), default=20, show_default=True, help="Time of each measurement.")
@to_json
def team(address: str, workspaces: int, passages: int, clients: int, seconds: int, json_file: Path | None) -> None:
    """Measure turns and searches a second on PostgreSQL with one and two server processes, and in a folder. ADDRESS:
    postgresql://USER@HOST/DATABASE, in which the workspaces bench-0, bench-1, … are made and stay."""
    report = _run("Measuring", lambda bench: measure_team(address, workspaces, passages, clients, seconds, bench.show))
    _deliver(report, json_file, lambda: _print_team(report))


def _run(title: str, measure: Callable[[Workbench], Awaitable[T]]) -> T:
    with progress(title) as show:
        return anyio.run(measure, Workbench(show=show))


def _deliver(report: object, json_file: Path | None, show: Callable[[], None]) -> None:
    text = json.dumps(plain(report), ensure_ascii=False, indent=2)
    if str(json_file) == "-":
        click.echo(text)
        return
    show()
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
        click.echo(f"written to {json_file}")


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], text: Sequence[str] = ()) -> None:
    """Prints a table. The first column, those in `text` and those without a name hold text; the others hold numbers."""
    numbers = [column for column in columns[1:] if column and column not in text]
    print_table(columns, rows, right=numbers, title=title)


def _print_retrieval(report: RetrievalReport) -> None:
    click.echo(
        f"{report.questions} questions on {report.conversations} conversations of {report.path}, "
        f"embedder {report.embedder}, {report.seconds:.0f} s"
    )
    measures, plainly = list(report.scores["overall"]), ("recall@10", "ndcg@10")
    _table(
        "What search finds (plain: BM25)",
        ("category", "asked", *measures, *(f"plain {measure}" for measure in plainly)),
        [
            (
                name,
                int(scores.get("questions", report.questions)),
                *(f"{scores[measure]:.3f}" for measure in measures),
                *(f"{report.baseline[name][measure]:.3f}" for measure in plainly),
            )
            for name, scores in report.scores.items()
        ],
    )
    alone = report.turns_only["overall"]
    click.echo("Turns only: " + ", ".join(f"{measure} {alone[measure]:.3f}" for measure in measures))
    budgets = list(next(iter(report.contexts.values())))
    _table(
        "Gold turns inside the compiled context",
        ("tokens", *(f"{int(budget):,}" for budget in budgets)),
        [
            (f"{files} files, {label}", *(f"{by_budget[budget][key]:.3f}" for budget in budgets))
            for files, by_budget in report.contexts.items()
            for key, label in (
                ("inside", "inside"),
                ("turns_only", "inside, turns only"),
                ("whole", "inside whole"),
                ("turns", "of all gold turns"),
            )
        ],
    )
    latency = [(what, f"{times['p50']:.1f}", f"{times['p95']:.1f}") for what, times in report.latency_ms.items()]
    _table("Latency", ("ms", "p50", "p95"), latency)


def _print_continuity(report: ContinuityReport) -> None:
    for kind, found in report.pressure.items():
        shares = found.as_dict()
        _table(
            f"{kind}: {found.turns:,} turns, {report.limit:,} live tokens, {shares['questions']} questions",
            ("", "figure"),
            [
                ("highest live share after a turn", f"{shares['highest_share']:.3f}"),
                ("turns at 50% or more", f"{shares['share_at_least_half']:.3f}"),
                ("largest drop of earlier text in one step", f"{shares['largest_drop']:.3f}"),
                ("largest cut of a new message", f"{shares['largest_cut']:.3f}"),
                ("dropped chunks", f"{found.dropped:,}"),
                (f"back within {WITHIN} exchanges", f"{found.returned / max(1, found.dropped):.3f}"),
                ("originals that cold storage has byte for byte", f"{found.exact.right:,} of {found.exact.of:,}"),
                *((f"evidence {place}", f"{mean(some):.3f}") for place, some in found.evidence.items()),
            ],
        )
    if report.held:
        _table(
            "Items in force that a text holds after further turns",
            ("further", "text", "what", "share", "held", "tokens"),
            [
                (
                    row["further"],
                    row["text"],
                    row["what"],
                    f"{row['share']:.2f}",
                    f"{row['right']} of {row['of']}",
                    f"{row['tokens']:.0f}",
                )
                for row in report.held
            ],
            text=("text", "what"),
        )


def _print_injection(report: InjectionReport) -> None:
    click.echo(
        f"{report.conversations} conversations, contexts of {BUDGET:,} tokens, embedder {report.embedder}; "
        f"the gate opens at {report.threshold:.3f}"
    )
    _table(
        f"Prompts that bring nothing in (bar {LEAST_SILENT:.0%})",
        ("prompts", "asked", "silent", ""),
        [
            (kind, int(row["asked"]), f"{row['silent']:.1%}", _verdict(row["silent"] >= LEAST_SILENT))
            for kind, row in report.silent.items()
        ],
    )
    fall = report.evidence["fall_points"]
    found = (f"{report.evidence[key]:.3f}" for key in ("without_gate", "with_gate"))
    _table(
        f"Evidence inside the context (bar {MOST_FALL:.0f} points)",
        ("without the gate", "with it", "points lost", ""),
        [(*found, f"{fall:.1f}", _verdict(fall <= MOST_FALL))],
    )
    _table(
        f"Constants for the gate (AUC {report.auc:.3f})",
        ("constant", "answerable shut out", "others let in"),
        [
            (f"{row['threshold']:.4f}", f"{row['answerable_shut_out']:.1%}", f"{row['others_let_in']:.1%}")
            for row in report.thresholds
        ],
    )


def _print_topics(labeled: TopicsReport, speed: TopicsSpeed, mistakes: bool) -> None:
    click.echo(
        f"{sum(labeled.messages.values())} messages, {sum(labeled.near_misses.values())} of them near misses, "
        f"for {labeled.topics} topics of {labeled.path}, embedder {labeled.embedder}, no LLM"
    )
    for half, tiers in labeled.tiers.items():
        bar = f", bar {LEAST_PRECISION:.2f} at recall {LEAST_RECALL:.2f}" if half == MEASURED else ""
        verdicts = dict.fromkeys(tiers, "")
        if half == MEASURED:
            last = list(tiers)[-1]
            met = tiers[last].precision >= LEAST_PRECISION and tiers[last].recall >= LEAST_RECALL
            verdicts[last] = _verdict(met)
        _table(
            f"The half {half}: {labeled.messages[half]} messages, {labeled.near_misses[half]} near misses{bar}",
            ("", "right", "wrong", "missed", "precision", "recall", ""),
            [
                (tier, one.hits, one.false, one.missed, f"{one.precision:.3f}", f"{one.recall:.3f}", verdicts[tier])
                for tier, one in tiers.items()
            ],
        )
    if mistakes:
        wrong = [("came in" if one.false else "missed", one.topic, one.text, one.why) for one in labeled.mistakes]
        columns = ("", "topic", "message", "why")
        _table("Decided wrongly on the half for tuning", columns, wrong, text=columns)
    _table(
        f"Milliseconds a message costs before the gate: {speed.topics:,} topics, {speed.triggers} triggers each, "
        f"{speed.messages} messages, {speed.candidates:.0f} candidates a message",
        ("median", "p95", "bar", "", "p95 of a core", "of it files", "first", "after a change"),
        [
            (
                f"{speed.median_ms:.1f}",
                f"{speed.p95_ms:.1f}",
                f"≤ {speed.bar_ms:.0f}",
                _verdict(speed.p95_ms <= speed.bar_ms),
                f"{speed.cpu_p95_ms:.1f}",
                f"{speed.look_ms:.2f}",
                f"{speed.first_ms:,.0f}",
                f"{speed.changed_ms:,.0f}",
            )
        ],
    )


def _print_understanding(report: UnderstandReport, show: bool) -> None:
    click.echo(f"{report.conversations} conversations, {report.turns:,} turns, {report.ms_per_turn:.1f} ms a turn")
    _table(
        "Items found, and lines that are right",
        ("kind", "recall", "items found", "precision", "lines right"),
        [(kind, *_counted(report.recall[kind]), *_counted(report.precision[kind])) for kind in report.recall],
    )
    states = (
        ("superseded decisions that are marked", report.superseded),
        ("other decisions that are marked", report.wrongly_replaced),
        ("closed items that are marked", report.closed),
        ("open items that are marked as closed", report.wrongly_closed),
    )
    _table("States of the items that were found", ("", "share", "of"), [(name, *_counted(one)) for name, one in states])
    if found := report.false_per_100:
        decisions, rules, open_items = found["decision"], found["rule"], found["open"]
        click.echo(
            f"{decisions:.1f} decisions, {rules:.1f} rules and {open_items:.1f} open items per 100 turns "
            f"in {report.talk_turns:,} turns of conversations that have none"
        )
    for one in report.mistakes if show else ():
        click.echo(f"{one.conversation}: {one.kind} {one.what}: {one.text}")


def _print_push(report: PushReport, show: bool) -> None:
    for kind, found in report.kinds.items():
        needed = found["needed"]
        click.echo(f"{kind}: {found['conversations']} conversations, {needed} prompts that need something")
        _table(
            "What is needed arrives",
            ("", "share", "in full", "in part"),
            [
                (
                    label,
                    f"{found[name]['share']:.3f}",
                    *(f"{found[name][part]} of {needed}" for part in ("all", "some")),
                )
                for name, label in (
                    ("pushed", "brief and push"),
                    ("compiled", "compiled in 2,048 tokens"),
                    ("last_tokens", "as many last tokens of the last session"),
                    ("best_turns", "the five best turns by BM25"),
                )
            ],
        )
        _table(
            "Tokens, and prompts with which nothing comes",
            ("prompts", "asked", "brief", "push", "silent"),
            [
                (name, one["prompts"], f"{one['brief']:.0f}", f"{one['push']:.0f}", f"{found['silent'][name]:.1%}")
                for name, one in found["tokens"].items()
            ],
        )
    for name, prompts in report.prompts.items() if show else ():
        for one in prompts:
            click.echo(f"\n{name} · {one.kind} · {one.push} tokens · share {one.share:.2f}: {one.text[:200]}")
            click.echo(one.shown)


def _print_team(report: TeamReport) -> None:
    loads = " and ".join(f"{load:.1f}" for load in report.loads)
    click.echo(
        f"{report.workspaces:,} workspaces with {report.passages:,} passages each, filled in "
        f"{report.fill_seconds:,.0f} s; an index has {report.index_bytes / 1e6:,.1f} MB; "
        f"{report.clients} clients, {report.cores} cores, load {loads}"
    )
    columns = ("engine", "processes", "calls", "a second", "p50, ms", "p95, ms", "failed", "MB a process")
    rows = [
        (
            *(row.engine, row.processes, row.calls, f"{row.per_second:,.1f}", f"{row.p50:,.1f}", f"{row.p95:,.1f}"),
            *(row.failed, f"{row.resident_mb:,.0f}"),
        )
        for row in report.rows
    ]
    _table("", columns, rows, text=("engine", "calls"))


def _print_speed(report: SpeedReport) -> None:
    click.echo(f"{report.passages:,} passages, {report.cores} cores, embedder {report.embedder}")
    rows = []
    for row in report.rows:
        bar = "" if row.bar is None else f"{row.deciding} {'≥' if row.at_least else '≤'} {row.bar:,.0f}"
        baseline = "" if row.plain is None else f"{row.plain:,.1f} {row.plain_what}"
        verdict = row.note if row.met is None else _verdict(row.met)
        figures = (f"{row.median:,.1f}", f"{row.p95:,.1f}", row.runs, bar, verdict, baseline)
        rows.append((f"{row.what}, {row.unit}", *figures))
    columns = ("what", "median", "p95", "runs", "bar", "", "beside it, plain")
    _table("", columns, rows, text=("bar", "beside it, plain"))
    most = max(point.exchange_us for point in report.curve)
    _table(
        "Clarity's tracker in one conversation: neither cost nor memory grows",
        ("exchanges", "µs an exchange", "", "µs all scores", "items", "candidates", "state, KB", "process, MB"),
        [
            (
                f"{point.exchanges:,}",
                f"{point.exchange_us:,.0f}",
                "█" * round(20 * point.exchange_us / most),
                f"{point.scores_us:,.0f}",
                point.items,
                point.candidates,
                f"{point.state_bytes / 1024:,.0f}",
                "" if point.resident_mb is None else f"{point.resident_mb:,.0f}",
            )
            for point in report.curve
        ],
    )


def _counted(one: Share) -> tuple[str, str]:
    return ("" if one.share is None else f"{one.share:.2f}", f"{one.right} of {one.of}")


def _verdict(met: bool) -> str:
    return "met" if met else "NOT met"


if __name__ == "__main__":
    try:
        cli(prog_name="python -m benchmarks")
    except ContextManagerError as error:
        sys.exit(f"benchmarks: {error}")
