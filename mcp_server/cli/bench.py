"""`context-manager bench push|retrieval|injection|topics|understand|speed`."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from mcp_server.cli.printing import print_table
from mcp_server.cli.progress import progress

if TYPE_CHECKING:
    from mcp_server.bench.clarity import CurvePoint
    from mcp_server.bench.injection import InjectionReport
    from mcp_server.bench.live import LiveReport
    from mcp_server.bench.push import Outcome, Plan, PushReport
    from mcp_server.bench.retrieval import RetrievalReport
    from mcp_server.bench.speed import SpeedReport
    from mcp_server.bench.topics import TopicsReport
    from mcp_server.bench.topics_speed import TopicsSpeed
    from mcp_server.bench.understand import Share, UnderstandReport
    from mcp_server.bench.workbench import Workbench
    from mcp_server.memory import Memory

T = TypeVar("T")

EXISTING = click.Path(exists=True, path_type=Path)
to_json = click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Also write JSON to this file (- prints only JSON).",
)
embedder_option = click.option("--embedder", type=click.Choice(["wordllama", "none"]), help="Default: the settings'.")


@click.group("bench")
def command() -> None:
    """Measure what arrives with prompts, retrieval, the gate, topics, understanding and speed, without touching your
    workspaces."""


@command.command("retrieval")
@click.argument("path", type=EXISTING)
@click.option("--format", "kind", type=click.Choice(["locomo", "beam"]), required=True, help="The format of PATH.")
@click.option(
    "--files",
    type=click.Choice(["template", "full", "both"]),
    default="both",
    show_default=True,
    help="Identity and memory files to compile with: untouched, full, or both in turn.",
)
@click.option(
    "--live-limit",
    type=click.IntRange(1000),
    help="Instead: observe turn by turn in `replace` with this many live tokens, and measure compaction's cost.",
)
@click.option("--knowledge", is_flag=True, help="Extract and condense first; a line counts as its source turns.")
@embedder_option
@to_json
def retrieval(
    path: Path,
    kind: Literal["locomo", "beam"],
    files: Literal["template", "full", "both"],
    live_limit: int | None,
    knowledge: bool,
    embedder: str | None,
    json_file: Path | None,
) -> None:
    """Ask every question of a data set: is the evidence found, and is it in the compiled context?"""
    from mcp_server.bench.live import measure_live
    from mcp_server.bench.retrieval import FILES, measure_retrieval

    if live_limit is not None:
        live = _run("Asking", lambda bench: measure_live(bench, path, kind, live_limit, embedder))
        return _deliver(live.as_dict(), json_file, lambda: _print_live(live))

    with_files = FILES if files == "both" else (files,)
    report = _run("Asking", lambda bench: measure_retrieval(bench, path, kind, embedder, with_files, knowledge))
    return _deliver(report.as_dict(), json_file, lambda: _print_retrieval(report))


@command.command("injection")
@click.argument("paths", type=EXISTING, nargs=-1, required=True)
@click.option("--budget", type=click.IntRange(128), default=2048, show_default=True, help="Tokens.")
@click.option("--find-threshold", is_flag=True, help="Also show candidates for the embedder's gate constant.")
@embedder_option
@to_json
def injection(
    paths: tuple[Path, ...], budget: int, find_threshold: bool, embedder: str | None, json_file: Path | None
) -> None:
    """Ask prompts that are unrelated to a memory: do they bring nothing in? And does the gate cost evidence?"""
    from mcp_server.bench.injection import measure_injection

    report = _run("Asking", lambda bench: measure_injection(bench, paths, embedder=embedder, budget=budget))
    _deliver(report.as_dict(), json_file, lambda: _print_injection(report, find_threshold))


@command.command("topics")
@click.argument("path", type=EXISTING, required=False)
@click.option("--number", type=click.IntRange(0), default=1000, show_default=True, help="Made-up topics for the speed.")
@click.option("--mistakes", is_flag=True, help="Show wrong decisions on the half for tuning.")
@embedder_option
@to_json
def topics(path: Path | None, number: int, mistakes: bool, embedder: str | None, json_file: Path | None) -> None:
    """Are the right topics activated, and how fast? Precision and recall by tier on a labelled set
    (tests/bench/labelled in a clone), without an LLM; then the time per message with many topics, before the gate."""
    from mcp_server.bench.topics import measure_topics
    from mcp_server.bench.topics_speed import measure_speed

    labelled = _run("Judging", lambda bench: measure_topics(bench, path, embedder)) if path else None
    speed = _run("Measuring", lambda bench: measure_speed(bench, number)) if number else None
    report = {"labelled": labelled and labelled.as_dict(), "speed": speed and speed.as_dict()}
    _deliver(report, json_file, lambda: _print_topics(labelled, speed, mistakes))


@command.command("understand")
@click.argument("files", type=EXISTING, nargs=-1, required=True)
@click.option("--show", is_flag=True, help="Also print missed items and wrong lines.")
@click.option("--weights", type=EXISTING, help="A weights file to measure instead of the shipped one.")
@to_json
def understand(files: tuple[Path, ...], show: bool, weights: Path | None, json_file: Path | None) -> None:
    """Are decisions, rules, facts and open items found? Precision and recall on labeled conversations (FILES: JSON as
    `benchmarks/README.md` describes it), without an LLM."""
    from mcp_server.bench.understand import measure_understanding
    from mcp_server.understanding.model import SHIPPED, recognizer

    report = measure_understanding(files, recognizer(weights or SHIPPED))
    _deliver(report.as_dict(), json_file, lambda: _print_understanding(report, show))


@command.command("push")
@click.argument("files", type=EXISTING, nargs=-1, required=True)
@click.option("--show", is_flag=True, help="Also print each prompt with what was pushed.")
@click.option("--processes", type=click.IntRange(1), help="Conversations measured at a time.  [default: cores]")
@to_json
def push(files: tuple[Path, ...], show: bool, processes: int | None, json_file: Path | None) -> None:
    """Does what a later prompt needs arrive in its window, and what does it cost? FILES: labeled working conversations
    (`benchmarks/README.md` describes them), LoCoMo files, BEAM folders."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from mcp_server.bench.push import plans, report

    todo = plans(files)
    workers = min(processes or os.cpu_count() or 1, len(todo))
    outcomes = []
    with progress("Sending prompts") as shown:
        if workers == 1:
            outcomes = [_push_one(plan) for plan in todo]
        else:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                for outcome in pool.map(_push_one, todo):
                    outcomes.append(outcome)
                    shown(len(outcomes), len(todo), outcome.name)
    found = report(outcomes)
    _deliver(found.as_dict(), json_file, lambda: _print_push(found, show))


def _push_one(plan: Plan) -> Outcome:
    """Measures one conversation; a process of its own can call this."""
    from mcp_server.bench.push import measure_one

    return _run("", lambda bench: measure_one(bench, plan))


@command.command("speed")
@click.option("--passages", type=click.IntRange(100), default=10_000, show_default=True, help="How many passages.")
@click.argument("files", type=EXISTING, nargs=-1)
@to_json
def speed(passages: int, files: tuple[Path, ...], json_file: Path | None) -> None:
    """Measure start, observe, search, compile, indexing, memory and hooks, on FILES and made-up conversations."""
    from mcp_server.bench.speed import measure_speed

    report = _run("Measuring", lambda bench: measure_speed(bench, passages, files))
    _deliver(report.as_dict(), json_file, lambda: _print_speed(report))


def _run(title: str, measure: Callable[[Workbench], Awaitable[T]]) -> T:
    import anyio

    async def run() -> T:
        with _workbench(title) as bench:
            return await measure(bench)

    return anyio.run(run)


@contextmanager
def _workbench(title: str) -> Iterator[Workbench]:
    from mcp_server.app import catch_up, maintain, open_memory
    from mcp_server.bench.workbench import Workbench

    def opened(folder: Path, overrides: Mapping[str, str]) -> AbstractAsyncContextManager[Memory]:
        return open_memory(folder, {**os.environ, **overrides})

    with progress(title) as show:
        yield Workbench(opened, catch_up, maintain, show)


def _deliver(report: Mapping[str, Any], json_file: Path | None, show: Callable[[], None]) -> None:
    text = json.dumps(report, ensure_ascii=False, indent=2)
    if str(json_file) == "-":
        click.echo(text)
        return
    show()
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
        click.echo(f"written to {json_file}")


def _print_retrieval(report: RetrievalReport) -> None:
    click.echo(
        f"{report.questions} questions on {report.conversations} conversations of {report.path}, "
        f"embedder {report.embedder}, {report.seconds:.0f} s"
    )
    measures = list(report.scores["overall"])
    names = [*measures, *(f"plain {measure}" for measure in ("recall@10", "ndcg@10"))]
    rows = [
        (
            name,
            int(scores.get("questions", report.questions)),
            *(f"{scores[measure]:.3f}" for measure in measures),
            *(f"{report.baseline[name][measure]:.3f}" for measure in ("recall@10", "ndcg@10")),
        )
        for name, scores in report.scores.items()
    ]
    print_table(("category", "asked", *names), rows, right=("asked", *names), title="What search finds (plain: BM25)")
    budgets = list(next(iter(report.contexts.values())))
    rows_in = [
        (f"{files} files, {label}", *(f"{by_budget[budget][key]:.3f}" for budget in budgets))
        for files, by_budget in report.contexts.items()
        for key, label in (("inside", "inside"), ("whole", "inside whole"), ("turns", "of all gold turns"))
    ]
    columns = [f"{int(budget):,}" for budget in budgets]
    print_table(("tokens", *columns), rows_in, right=columns, title="Gold turns inside the compiled context")
    latency = [(what, f"{times['p50']:.1f}", f"{times['p95']:.1f}") for what, times in report.latency_ms.items()]
    print_table(("ms", "p50", "p95"), latency, right=("p50", "p95"), title="Latency")


def _print_live(report: LiveReport) -> None:
    where = report.where
    click.echo(
        f"{report.questions} questions on {report.conversations} conversations of {report.path}, observed turn by turn "
        f"in replace with {report.limit:,} live tokens, embedder {report.embedder}, {report.seconds:.0f} s"
    )
    click.echo(
        f"{where.turns:,} turns: {where.live:,} live, {where.shortened:,} the source of something shorter, "
        f"{where.cold:,} cold; {where.exact:,} of {where.records:,} originals come back byte for byte"
    )
    columns = [f"{int(budget):,}" for budget in next(iter(report.contexts.values()))]
    rows = [
        (phase, *(f"{share:.3f}" for share in by_budget.values()), f"{report.live[phase]:.3f}")
        for phase, by_budget in report.contexts.items()
    ]
    names = (*columns, "live, whole")
    print_table(("tokens", *names), rows, right=names, title="Gold turns inside the compiled context")
    click.echo(
        f"{report.returned:.2f} chunks came back a question; "
        f"observe p50 {report.observe_ms['p50']:.1f} ms, p95 {report.observe_ms['p95']:.1f} ms"
    )


def _print_injection(report: InjectionReport, find_threshold: bool) -> None:
    from mcp_server.bench.injection import LEAST_SILENT, MOST_FALL

    click.echo(
        f"{report.conversations} conversations, contexts of {report.budget:,} tokens, embedder {report.embedder}; "
        f"the gate opens at {report.threshold:.3f}"
    )
    rows = [
        (kind, int(row["asked"]), f"{row['silent']:.1%}", _verdict(row["silent"] >= LEAST_SILENT))
        for kind, row in report.silent.items()
    ]
    title = f"Prompts that bring nothing in (bar {LEAST_SILENT:.0%})"
    print_table(("prompts", "asked", "silent", ""), rows, right=("asked", "silent"), title=title)
    fall = report.evidence["fall_points"]
    columns: tuple[str, ...] = ("without the gate", "with it", "points lost")
    found = (f"{report.evidence[key]:.3f}" for key in ("without_gate", "with_gate"))
    title = f"Evidence inside the context (bar {MOST_FALL:.0f} points)"
    print_table((*columns, ""), [(*found, f"{fall:.1f}", _verdict(fall <= MOST_FALL))], right=columns, title=title)
    if find_threshold:
        shown = [
            (f"{row['threshold']:.4f}", f"{row['answerable_shut_out']:.1%}", f"{row['others_let_in']:.1%}")
            for row in report.thresholds
        ]
        columns = ("constant", "answerable shut out", "others let in")
        print_table(columns, shown, right=columns, title=f"Constants for the gate (AUC {report.auc:.3f})")


def _print_topics(labelled: TopicsReport | None, speed: TopicsSpeed | None, mistakes: bool) -> None:
    from mcp_server.bench.topics import LEAST_PRECISION, LEAST_RECALL, MEASURED

    if labelled is not None:
        click.echo(
            f"{sum(labelled.messages.values())} messages, {sum(labelled.near_misses.values())} of them near misses, "
            f"for {labelled.topics} topics of {labelled.path}, embedder {labelled.embedder}, no LLM"
        )
        last = list(labelled.tiers[MEASURED])[-1]
        for half, tiers in labelled.tiers.items():
            rows = [
                (
                    tier,
                    one.hits,
                    one.false,
                    one.missed,
                    f"{one.precision:.3f}",
                    f"{one.recall:.3f}",
                    _verdict(one.precision >= LEAST_PRECISION and one.recall >= LEAST_RECALL)
                    if (half, tier) == (MEASURED, last)
                    else "",
                )
                for tier, one in tiers.items()
            ]
            numbers = ("right", "wrong", "missed", "precision", "recall")
            bar = f", bar {LEAST_PRECISION:.2f} at recall {LEAST_RECALL:.2f}" if half == MEASURED else ""
            title = (
                f"The half {half}: {labelled.messages[half]} messages, {labelled.near_misses[half]} near misses{bar}"
            )
            print_table(("", *numbers, ""), rows, right=numbers, title=title)
        if mistakes:
            wrong = [("came in" if one.false else "missed", one.topic, one.text, one.why) for one in labelled.mistakes]
            print_table(("", "topic", "message", "why"), wrong, title="Decided wrongly on the half for tuning")
    if speed is not None:
        row = (
            f"{speed.median_ms:.1f}",
            f"{speed.p95_ms:.1f}",
            f"≤ {speed.bar_ms:.0f}",
            _verdict(speed.met),
            f"{speed.cpu_p95_ms:.1f}",
            f"{speed.look_ms:.2f}",
            f"{speed.first_ms:,.0f}",
            f"{speed.changed_ms:,.0f}",
        )
        columns = ("median", "p95", "bar", "", "p95 of a core", "of it files", "first", "after a change")
        title = (
            f"Milliseconds a message costs before the gate: {speed.topics:,} topics, {speed.triggers} triggers each, "
            f"{speed.messages} messages, {speed.candidates:.0f} candidates a message"
        )
        print_table(columns, [row], right=columns, title=title)


def _print_understanding(report: UnderstandReport, show: bool) -> None:
    click.echo(f"{report.conversations} conversations, {report.turns:,} turns, {report.ms_per_turn:.1f} ms a turn")
    rows = [(kind, *_counted(report.recall[kind]), *_counted(report.precision[kind])) for kind in report.recall]
    columns = ("recall", "items found", "precision", "lines right")
    print_table(("kind", *columns), rows, right=columns, title="Items found, and lines that are right")
    states = (
        ("superseded decisions that are marked", report.superseded),
        ("other decisions that are marked", report.wrongly_replaced),
        ("closed items that are marked", report.closed),
        ("open items that are marked as closed", report.wrongly_closed),
    )
    title = "States of the items that were found"
    print_table(
        ("", "share", "of"), [(name, *_counted(one)) for name, one in states], right=("share", "of"), title=title
    )
    if report.false_per_100 is not None:
        click.echo(
            f"{report.false_per_100:.1f} decisions, rules and open items per 100 turns "
            f"in {report.talk_turns:,} turns of conversations that have none"
        )
    for one in report.mistakes if show else ():
        click.echo(f"{one.conversation}: {one.kind} {one.what}: {one.text}")


def _print_push(report: PushReport, show: bool) -> None:
    for kind, found in report.kinds.items():
        needed = found["needed"]
        click.echo(f"{kind}: {found['conversations']} conversations, {needed} prompts that need something")
        rows = [
            (label, f"{found[name]['share']:.3f}", *(f"{found[name][part]} of {needed}" for part in ("all", "some")))
            for name, label in (
                ("pushed", "brief and push"),
                ("compiled", "compiled in 2,048 tokens"),
                ("last_tokens", "as many last tokens of the last session"),
                ("best_turns", "the five best turns by BM25"),
            )
        ]
        columns = ("share", "in full", "in part")
        print_table(("", *columns), rows, right=columns, title="What is needed arrives")
        counted = [
            (name, one["prompts"], f"{one['brief']:.0f}", f"{one['push']:.0f}", f"{found['silent'][name]:.1%}")
            for name, one in found["tokens"].items()
        ]
        numbers = ("asked", "brief", "push", "silent")
        print_table(("prompts", *numbers), counted, right=numbers, title="Tokens, and prompts with which nothing comes")
    for name, prompts in report.prompts.items() if show else ():
        for one in prompts:
            click.echo(
                f"\n{name} · {one['kind']} · {one['push']} tokens · share {one['share']:.2f}: {one['text'][:200]}"
            )
            click.echo(one["shown"])


def _counted(one: Share) -> tuple[str, str]:
    return ("" if one.share is None else f"{one.share:.2f}", f"{one.right} of {one.of}")


def _print_speed(report: SpeedReport) -> None:
    click.echo(f"{report.passages:,} passages, {report.cores} cores, embedder {report.embedder}")
    rows = []
    for row in report.rows:
        bar = "" if row.bar is None else f"{row.deciding} {'≥' if row.at_least else '≤'} {row.bar:,.0f}"
        plain = "" if row.plain is None else f"{row.plain:,.1f} {row.plain_what}"
        verdict = row.note if row.met is None else _verdict(row.met)
        rows.append((f"{row.what}, {row.unit}", f"{row.median:,.1f}", f"{row.p95:,.1f}", row.runs, bar, verdict, plain))
    numbers = ("median", "p95", "runs")
    print_table(("what", *numbers, "bar", "", "beside it, plain"), rows, right=numbers)
    _print_curve(report.curve)


def _print_curve(curve: Sequence[CurvePoint]) -> None:
    """Prints the time of Clarity's tracker for conversations of growing length, with a bar for each."""
    most = max((point.exchange_us for point in curve), default=0) or 1
    rows = [
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
        for point in curve
    ]
    numbers = ("exchanges", "µs an exchange", "µs all scores", "items", "candidates", "state, KB", "process, MB")
    title = "Clarity's tracker in one conversation: neither cost nor memory grows"
    print_table((*numbers[:2], "", *numbers[2:]), rows, right=numbers, title=title)


def _verdict(met: bool) -> str:
    return "met" if met else "NOT met"
