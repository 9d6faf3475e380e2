"""`push`: does what a later prompt needs arrive in the window by itself, and what does it cost?

Each conversation goes into a workspace of its own. Then every later prompt opens a new window, as a client's hooks do:
the brief at its start, and what is pushed with the prompt. Labeled working conversations (`benchmarks/README.md`
describes them) say which items a prompt needs; LoCoMo and BEAM files say which turns answer a question.

    need        prompts that need items, or questions with known evidence
    nothing     prompts of the same conversation that need no memory
    ongoing     the user's messages of the last session, each sent while that session goes on, in one window
    elsewhere   prompts that need items, sent from another folder, which is another project
    other conversations    prompts and questions of other given conversations, sent as if they belonged to this one
    small talk, other projects, near misses    the shipped prompts, which have nothing to do with the memory
    go on       those of the small talk that ask to go on, which brings in the end of the last session
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from anyio.to_thread import run_sync

from benchmarks.datasets import (
    Conversation,
    DerivedLine,
    KnownTurn,
    conversations,
    derived_lines,
    import_conversation,
    inside,
    kind_of,
    known_turns,
    one_line,
    units_of,
)
from benchmarks.understand import Label, Labeled, load
from benchmarks.workbench import Bm25, Show, Workbench, caught_up, mean
from mcp_server.context import push as inject
from mcp_server.context import windows as sent
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.sections import said
from mcp_server.context.window_text import asks_to_go_on
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.knowledge.extract import extract
from mcp_server.memory import Memory
from mcp_server.model import Caller

NEED, NOTHING, ONGOING, ELSEWHERE = "need", "nothing", "ongoing", "elsewhere"
OTHERS, GO_ON = "other conversations", "go on"

BUDGET = 2048
"""Tokens of the compiled context that each prompt is also compared with."""

BEST_TURNS = 5
"""Turns of the BM25 baseline."""

MOST_FOREIGN = {"work": 20, "locomo": 50, "beam": 50}
"""Prompts of other conversations that are sent to each conversation, by its kind."""

SEED = 1

FAST = {"CONTEXT_MANAGER_GIT__AUTO_COMMIT": "false"}

PROMPTS = Path(__file__).parent / "unrelated_prompts.txt"


@dataclass(frozen=True, slots=True)
class Plan:
    """A labeled or public conversation to measure, and prompts of other conversations that are sent to it."""

    kind: str
    name: str
    labeled: Labeled | None
    public: Conversation | None
    foreign: tuple[str, ...] = ()

    def needing(self) -> list[str]:
        """Returns its prompts that need something."""
        if self.labeled:
            return [prompt.text for prompt in self.labeled.prompts if prompt.needs]
        return [question.text for question in self.public.questions] if self.public else []


@dataclass(frozen=True, slots=True)
class Sent:
    """A prompt that was sent. Tokens of the brief and of the push; shares of what it needs, 0 to 1: in both of them, in
    a compiled context, in the last tokens of the last session (as many as both have), in the best turns by BM25.
    `shown` is what was pushed."""

    kind: str
    text: str
    brief: int
    push: int
    share: float = 0.0
    compiled: float = 0.0
    last: float = 0.0
    plain: float = 0.0
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measurements of one conversation."""

    kind: str
    name: str
    prompts: tuple[Sent, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class PushReport:
    """`kinds`: work, locomo, beam → the figures of `_summary`. `conversations` holds the same for each."""

    kinds: Mapping[str, Mapping[str, Any]]
    conversations: Mapping[str, Mapping[str, Any]]
    prompts: Mapping[str, Sequence[Sent]]


def prompt_sets(text: str) -> dict[str, list[str]]:
    """Returns sets by name: `# name` begins a set, every other line that is not empty is a prompt."""
    sets: dict[str, list[str]] = {}
    name = "prompts"
    for line in text.splitlines():
        if line.startswith("# "):
            name = line[2:].strip()
        elif line.strip():
            sets.setdefault(name, []).append(line.strip())
    return sets


def shipped_prompts() -> dict[str, list[str]]:
    """Returns the prompts written for measuring silence: small talk, other projects, near misses."""
    return prompt_sets(PROMPTS.read_text(encoding="utf-8"))


def plans(paths: Sequence[Path]) -> list[Plan]:
    """Returns what to measure: every conversation of the files, each with prompts of the others of its kind.

    Raises:
        NotFound, Invalid: a path holds neither labeled conversations nor LoCoMo or BEAM data.
    """
    found: list[Plan] = []
    for path in paths:
        if kind_of(path):
            found += [Plan(one.kind, one.name, None, one) for one in conversations(path)]
        else:
            found += [Plan("work", one.name, one, None) for one in load(path)]
    return [replace(plan, foreign=tuple(_foreign(plan, found))) for plan in found]


def _foreign(plan: Plan, all_plans: Sequence[Plan]) -> list[str]:
    """Returns prompts that need something in other conversations of the same kind, the same ones at every run."""
    others = [text for one in all_plans if one is not plan and one.kind == plan.kind for text in one.needing()]
    chosen = random.Random(f"{SEED} {plan.name}")
    return chosen.sample(others, min(MOST_FOREIGN[plan.kind], len(others)))


def measure_push(paths: Sequence[Path], show: Show) -> PushReport:
    """Measures the conversations of `paths`, as many at a time as there are cores. Raises as `plans` does."""
    todo = plans(paths)
    outcomes = []
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(todo)), mp_context=get_context("spawn")) as pool:
        for outcome in pool.map(_measure_alone, todo):
            outcomes.append(outcome)
            show(len(outcomes), len(todo), outcome.name)
    return report(outcomes)


def _measure_alone(plan: Plan) -> Outcome:
    return anyio.run(measure_one, Workbench(), plan)


async def measure_one(bench: Workbench, plan: Plan) -> Outcome:
    """Returns what came of one conversation."""
    began = perf_counter()
    async with remembered(bench, plan) as (memory, caller, prompts):
        windows = await Windows.over(memory, caller)
        for kind, text, needs in asking(plan):
            prompts.append(await windows.send(kind, text, needs))
    return Outcome(plan.kind, plan.name, tuple(prompts), perf_counter() - began)


Needs = Sequence[Label] | frozenset[str]
"""Items of a labeled conversation, or ids of turns, that a prompt needs."""


def asking(plan: Plan) -> list[tuple[str, str, Needs]]:
    """Returns kind, text and needs of every prompt to send in a window of its own."""
    found: list[tuple[str, str, Needs]] = []
    if plan.labeled:
        found += [(NEED if one.needs else NOTHING, one.text, one.needs) for one in plan.labeled.prompts]
        found += [(ELSEWHERE, one.text, ()) for one in plan.labeled.prompts if one.needs]
    if plan.public:
        found += [(NEED, one.text, one.gold) for one in plan.public.questions]
    found += [(OTHERS, text, ()) for text in plan.foreign]
    for kind, texts in shipped_prompts().items():
        found += [(GO_ON if asks_to_go_on(text) else kind, text, ()) for text in texts]
    return found


@asynccontextmanager
async def remembered(bench: Workbench, plan: Plan) -> AsyncIterator[tuple[Memory, Caller, list[Sent]]]:
    """Opens a workspace that holds the conversation, extracted and indexed: its memory, a caller in the conversation's
    project, and what was pushed while its last session went on."""
    async with bench.temporary(FAST) as (memory, workspace):
        if plan.labeled is None:
            assert plan.public is not None
            await import_conversation(memory, plan.public)
            await extract(memory)
            await caught_up(memory)
            yield memory, _caller(None), []
            return
        caller = _caller(_project(workspace.parent, plan.name))
        ongoing = await _live_through(memory, plan.labeled, caller)
        yield memory, caller, ongoing


def _project(parent: Path, name: str) -> Path:
    """Makes a folder that is a project of this name: without the file, nothing in a temporary folder is one."""
    folder = parent / name
    folder.mkdir(exist_ok=True)
    (folder / ".context-manager").write_text(f"{name}\n", encoding="utf-8")
    return folder


def _caller(folder: Path | None) -> Caller:
    return Caller(source="bench", client="bench", folder=str(folder) if folder else None)


async def _live_through(memory: Memory, one: Labeled, caller: Caller) -> list[Sent]:
    """Observes all sessions. Before each of the user's messages of the last session, sends it as a prompt."""
    ongoing: list[Sent] = []
    for place, turns in enumerate(one.sessions):
        session = f"session-{place}"
        is_last = 0 < place == len(one.sessions) - 1
        brief = (await inject.for_start(memory, session, "startup", caller)).tokens if is_last else 0
        for turn in turns:
            if is_last and turn.role == "user" and (place, turn.number) not in one.by_program:
                said = await inject.for_prompt(memory, session, turn.content, caller)
                ongoing.append(Sent(ONGOING, turn.content, brief, said.tokens))
            new = NewTurn(turn.role, turn.content, session, at=turn.at, tool_calls=turn.tool_calls)
            await observe(memory, new, caller)
        await sessions.end_session(memory, session)
        await extract(memory)
        await caught_up(memory)
    return ongoing


class Windows:
    """Sends prompts, each in a new window, and counts how much of their needs arrives."""

    def __init__(self, memory: Memory, caller: Caller, told: Sequence[Sequence[str]]) -> None:
        """`told` are the turns of each session, as a context shows them."""
        self._memory, self._caller = memory, caller
        self._turns: Mapping[str, KnownTurn] = {}
        self._derived: Mapping[str, DerivedLine] = {}
        self._texts = {f"{place}#{number}": text for place, one in enumerate(told) for number, text in enumerate(one)}
        self._plain = Bm25(self._texts)
        self._last = "\n".join(told[-1]) if told else ""
        self._last_tokens = max(1, memory.tokens.count(self._last))
        self._count = 0
        self._begun: dict[Caller, tuple[inject.Injection, sent.Window]] = {}

    @classmethod
    async def over(cls, memory: Memory, caller: Caller) -> Windows:
        """Returns windows over what the memory holds."""

        def read() -> list[list[str]]:
            found = (memory.transcripts.read(path).turns for path in sorted(memory.transcripts.all()))
            return [
                [one_line(said(one.turn.name or one.turn.role, one.turn.content)) for one in some] for some in found
            ]

        windows = cls(memory, caller, await run_sync(read))
        windows._turns = await known_turns(memory)
        windows._derived = await derived_lines(memory, windows._turns)
        return windows

    async def send(self, kind: str, text: str, needs: Needs) -> Sent:
        """Opens a window, sends the prompt, and returns what came."""
        brief, push = await self.open(kind, text)
        found = Sent(kind, text, brief.tokens, push.tokens, shown=push.text)
        if not needs:
            return found
        tokens = brief.tokens + push.tokens
        units = _units(brief) | _units(push)
        request = CompileRequest(message=text, budget=BUDGET)
        compiled = await compile_context(self._memory, request, self._caller)
        best = self._plain.ranked(text, BEST_TURNS)
        return replace(
            found,
            share=self._share(needs, f"{brief.text}\n{push.text}", units),
            compiled=self._share(needs, compiled.text, units_of(compiled.receipt)),
            last=self._share(needs, self._last[-round(len(self._last) * min(1, tokens / self._last_tokens)) :]),
            plain=self._share(needs, "\n".join(self._texts[one] for one in best)),
        )

    async def open(self, kind: str, text: str) -> tuple[inject.Injection, inject.Injection]:
        """Opens a window and sends the prompt. Returns the brief, and what is pushed with the prompt."""
        self._count += 1
        session = f"window-{self._count}"
        caller = self._caller
        if kind == ELSEWHERE and caller.folder:
            caller = replace(caller, folder=str(_project(Path(caller.folder).parent, "another-project")))
        return await self._begin(session, caller), await inject.for_prompt(self._memory, session, text, caller)

    async def _begin(self, session: str, caller: Caller) -> inject.Injection:
        """Opens a window and returns its brief. The brief is the same for every window of a folder, so only the first
        one compiles it; the others only note what it holds."""
        first = self._begun.get(caller)
        if first is None:
            brief = await inject.for_start(self._memory, session, "startup", caller)
            self._begun[caller] = brief, await sent.window_of(self._memory, session)
            return brief
        brief, window = first
        await sent.keep(self._memory, session, window)
        return brief

    def _share(self, needs: Needs, text: str, units: frozenset[str] = frozenset()) -> float:
        """Returns how much of the needs a text holds; `units` are those that it is known to include."""
        if isinstance(needs, frozenset):
            gold = [self._turns[turn] for turn in sorted(needs)]
            return len(inside(gold, text, units, self._derived)) / len(gold)
        return mean([label.is_in(text) for label in needs])


def _units(said: inject.Injection) -> frozenset[str]:
    """Returns the units that an injection includes: `path#turn`, or `path#line` for a line of a file."""
    return frozenset(
        f"{row['source']}#{row['turn'] or str(row['id']).rpartition(':')[2].partition('-')[0]}"
        for row in said.considered
        if row["included"]
    )


def summary(some: Iterable[Outcome]) -> dict[str, Any]:
    """Returns the figures over these conversations, which are of one kind.

    Returns:
        `needed`: prompts that need something; `all` and `some`: how many get all or some of it; `evidence`, `compiled`,
        `last_tokens` and `best_turns`: mean shares of what is needed in brief and push, in a compiled context, and in
        the two baselines (`…_all`: prompts that get all of it); `tokens`: the mean of brief and of push by the kind of
        prompt; `silent`: the share of prompts of each kind with which nothing is pushed.
    """
    some = list(some)
    by_kind: dict[str, list[Sent]] = {}
    for one in (one for outcome in some for one in outcome.prompts):
        by_kind.setdefault(one.kind, []).append(one)
    needed = by_kind.get(NEED, [])
    found: dict[str, Any] = {"conversations": len(some), "needed": len(needed)}
    for name, shares in (
        ("pushed", [one.share for one in needed]),
        ("compiled", [one.compiled for one in needed]),
        ("last_tokens", [one.last for one in needed]),
        ("best_turns", [one.plain for one in needed]),
    ):
        found[name] = {
            "all": sum(share == 1 for share in shares),
            "some": sum(share > 0 for share in shares),
            "share": mean(shares),
        }
    found["tokens"] = {
        kind: {
            "prompts": len(ones),
            "brief": mean([one.brief for one in ones]),
            "push": mean([one.push for one in ones]),
        }
        for kind, ones in by_kind.items()
    }
    found["silent"] = {kind: mean([not one.push for one in ones]) for kind, ones in by_kind.items()}
    found["seconds"] = sum(outcome.seconds for outcome in some)
    return found


def report(outcomes: Sequence[Outcome]) -> PushReport:
    """Returns the figures of all conversations, by kind and one by one."""
    kinds = dict.fromkeys(one.kind for one in outcomes)
    return PushReport(
        {kind: summary(one for one in outcomes if one.kind == kind) for kind in kinds},
        {one.name: summary([one]) for one in outcomes},
        {one.name: one.prompts for one in outcomes},
    )
