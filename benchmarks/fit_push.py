"""Fits the constant `WEIGHTS` of `mcp_server/context/push_policy.py` and prints it.

    pip install -e '.[train]'
    python -m benchmarks.fit_push FILES… [--examples FILE] [--folds 5]

FILES are labeled working conversations (`benchmarks/README.md` describes them), LoCoMo files and BEAM folders, none of
which the shipped recognizer and networks were fitted on. Every prompt is sent through the product's own code, and every
candidate that it judges becomes an example: does it hold an item, or come from a turn, that the prompt needs? Prompts
that need nothing, prompts of other conversations, and a few of another kind of conversation are examples of nothing.
`--examples` keeps the examples in a file, so that a second run only fits.

Every estimate that is reported comes from weights fitted without its conversation. Copy the constant by hand, then
measure with `python -m benchmarks push` on conversations that were not given here.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pickle
import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks import push
from benchmarks.datasets import known_turns
from benchmarks.understand import Label
from benchmarks.workbench import Workbench
from mcp_server import set_up_process
from mcp_server.context import push_policy
from mcp_server.context.window_text import asks_nothing
from mcp_server.model import Hit
from mcp_server.text.entries import sources_of
from mcp_server.text.passages import own_text

STRENGTH = 0.3
"""Inverse regularization strength of the logistic regression."""

OF_ANOTHER_KIND = 10
"""Prompts of each other kind of conversation that are sent to each conversation."""

NEGATIVES = 0.3
"""The share of the candidates without need that is fitted on; each counts so much more."""

MEASURED_ONLY = frozenset(push.shipped_prompts())
MEASURED_EVERY = 5
"""The shipped prompts are for measuring silence and are never fitted on; every fifth is sent."""


@dataclass(frozen=True)
class Example:
    """A candidate: its features, whether it holds what is needed, its tokens, stems and text."""

    features: Mapping[str, float]
    good: bool
    tokens: int
    stems: frozenset[str]
    text: str


@dataclass(frozen=True)
class Asked:
    """A prompt and its candidates. `needs` are the keywords of each item, or ids of turns; `in_brief` tells which items
    the brief has."""

    conversation: str
    source: str
    kind: str
    text: str
    needs: tuple[Any, ...]
    in_brief: tuple[bool, ...]
    examples: tuple[Example, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--examples", type=Path)
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    set_up_process()
    if options.examples and options.examples.exists():
        asked = pickle.loads(options.examples.read_bytes())
    else:
        asked = collect(options.files)
        if options.examples:
            options.examples.write_bytes(pickle.dumps(asked))
    report(asked, options.folds)


def collect(paths: Sequence[Path]) -> list[Asked]:
    """Returns the examples of all prompts."""
    plans = push.plans(paths)
    of_kind: dict[str, list[str]] = defaultdict(list)
    for plan in plans:
        of_kind[plan.kind] += plan.needing()
    jobs = []
    for place, plan in enumerate(plans):
        chosen = random.Random(place)
        more = [
            text
            for kind, texts in of_kind.items()
            if kind != plan.kind
            for text in chosen.sample(texts, min(OF_ANOTHER_KIND, len(texts)))
        ]
        jobs.append(replace(plan, foreign=(*plan.foreign, *more)))
    found = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), max_tasks_per_child=1) as pool:
        for some in pool.map(_examples, jobs):
            found += some
            print(f"{some[0].source} {some[0].conversation}: {len(some)} prompts", file=sys.stderr)
    return found


def _examples(plan: push.Plan) -> list[Asked]:
    return asyncio.run(_send_all(plan))


async def _send_all(plan: push.Plan) -> list[Asked]:
    found = []
    async with push.remembered(Workbench(), plan) as (memory, caller, _):
        windows = await push.Windows.over(memory, caller)
        ids = {turn.unit: turn.turn_id for turn in (await known_turns(memory)).values()}
        for place, (kind, text, needs) in enumerate(push.asking(plan)):
            if kind == push.ELSEWHERE or (kind in MEASURED_ONLY and place % MEASURED_EVERY):
                continue
            calls: list[tuple[Any, ...]] = []
            with mock.patch.object(push_policy, "choose", partial(_choose, calls, push_policy.choose)):
                brief, _ = await windows.open(kind, text)
            labels = [one for one in needs if isinstance(one, Label)]
            found.append(
                Asked(
                    plan.name,
                    plan.kind,
                    kind,
                    text,
                    tuple(one.keywords for one in labels) or tuple(sorted(str(one) for one in needs)),
                    tuple(one.is_in(brief.text) for one in labels),
                    tuple(_judged(calls[0], needs, ids)) if calls and not asks_nothing(text) else (),
                )
            )
    return found


def _choose(calls: list[tuple[Any, ...]], choose: Any, *given: Any) -> Any:
    """Notes what `push_policy.choose` is given."""
    calls.append(given)
    return choose(*given)


def _judged(given: tuple[Any, ...], needs: push.Needs, ids: Mapping[str, str]) -> list[Example]:
    """Returns the candidates of one call of `push_policy.choose`, without those that are out whatever they score."""
    message, model, lines, passages, gate, sent, out, *_ = given
    some = push_policy.candidates(message, model, lines, passages, gate)
    reasons = push_policy.reasons_out(message, some, sent, out)

    def is_good(hit: Hit) -> bool:
        text = own_text(hit.passage)[:600]
        units = [hit.passage.unit] if hit.passage.turn is not None else map(str, sources_of(hit.passage.text))
        turns = {ids.get(unit) for unit in units}
        return any(one.is_in(text) if isinstance(one, Label) else one in turns for one in needs)

    return [
        Example(
            one.features,
            is_good(one.hit),
            one.tokens,
            one.stems,
            own_text(one.hit.passage)[:600].lower() if needs else "",
        )
        for one, reason in zip(some, reasons, strict=True)
        if not reason
    ]


def _rows(asked: Sequence[Asked]) -> list[Mapping[str, float]]:
    """Returns the features of all examples."""
    return [example.features for one in asked for example in one.examples]


def fit(asked: Sequence[Asked], names: Sequence[str]) -> dict[str, float]:
    """Returns the weights of the features."""
    some = [one for one in asked if one.kind not in MEASURED_ONLY]
    matrix = _matrix(_rows(some), names)
    good = np.array([example.good for one in some for example in one.examples])
    kept = good | (np.random.default_rng(0).random(len(good)) < NEGATIVES)
    spread = np.where(np.isin(names, ["bias", "exchange"]), 1.0, matrix.std(0) + 1e-6)
    model = LogisticRegression(C=STRENGTH, max_iter=500, fit_intercept=False)
    model.fit(matrix[kept] / spread, good[kept], sample_weight=np.where(good, 1, 1 / NEGATIVES)[kept])
    return dict(zip(names, map(float, model.coef_[0] / spread), strict=True))


def _matrix(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> Any:
    return np.array([[row.get(name, 0.0) for name in names] for row in rows], np.float32)


def report(asked: Sequence[Asked], folds: int) -> None:
    """Prints the weights, their spread over the folds, and what left-out conversations get."""
    names = sorted({name for one in asked for example in one.examples for name in example.features})
    conversations = sorted({one.conversation for one in asked})
    random.Random(3).shuffle(conversations)
    fold_of = {name: place % folds for place, name in enumerate(conversations)}
    spread, sent = [], defaultdict(list)
    truth: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for fold in range(folds):
        seen = [one for one in asked if fold_of[one.conversation] != fold]
        weights = fit(seen, names)
        spread.append([weights[name] for name in names])
        for one in (one for one in asked if fold_of[one.conversation] == fold):
            if one.examples:
                totals = _matrix(_rows([one]), names) @ np.array(list(weights.values()))
                worths = 1 / (1 + np.exp(-totals))
                truth[one.source] += [(e.good, float(w)) for e, w in zip(one.examples, worths, strict=True)]
            else:
                worths = np.array([])
            sent[one.source, one.kind].append(_pushed(one, worths))
    weights = fit(asked, names)
    print("WEIGHTS: Mapping[str, float] = {")
    for name, deviation in zip(names, np.std(spread, 0), strict=True):
        print(f'    "{name}": {weights[name]:.2f},  # ± {deviation:.2f}')
    print("}\n\nOn conversations left out of the fitting:")
    for source, pairs in truth.items():
        print(f"{source}: AUC {roc_auc_score([good for good, _ in pairs], [worth for _, worth in pairs]):.3f}")
    for (source, kind), found in sorted(sent.items()):
        shares = [share for share, _ in found if share is not None]
        silent = np.mean([tokens == 0 for _, tokens in found])
        needed = f"{np.mean(shares):.3f} of what is needed, " if shares else ""
        print(f"{source}, {kind}: {needed}{np.mean([t for _, t in found]):.0f} tokens, {silent:.1%} silent")


def _pushed(one: Asked, worths: Any) -> tuple[float | None, int]:
    """Returns the share of the needs that arrives, None without needs, and the tokens, about as the product does it."""
    left = 300 - push_policy.HEADING
    chosen: list[Example] = []
    said: list[frozenset[str]] = []
    for place in np.argsort(-worths) if len(worths) and worths.max() >= push_policy.LEAST_BEST else ():
        example = one.examples[place]
        too_dear = worths[place] < push_policy.PRICE * (example.tokens + push_policy.FRAME) or example.tokens > left
        if too_dear or any(len(example.stems & other) >= 0.8 * len(example.stems) for other in said):
            continue
        left -= example.tokens
        chosen.append(example)
        said.append(example.stems)
    tokens = 300 - left if chosen else 0
    if not one.needs:
        return None, tokens
    if one.in_brief:
        text = "\n".join(example.text for example in chosen)
        arrived = [
            known or all(word in text for word in words) for known, words in zip(one.in_brief, one.needs, strict=True)
        ]
        return float(np.mean(arrived)), tokens
    return min(1.0, sum(example.good for example in chosen) / len(one.needs)), tokens


if __name__ == "__main__":
    main()
