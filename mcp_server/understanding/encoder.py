"""A small neural network that reads the sentences of a message in their context and estimates what each one states,
whether a statement replaces or closes an older one, and what a query or a passage is about, as a vector.

The network is the sentence encoder all-MiniLM-L6-v2 (Wang et al. 2020, "MiniLM: Deep Self-Attention Distillation";
Apache License 2.0), fitted on the labeled conversations by `benchmarks/train_encoder.py`, with further upper layers
by `benchmarks/train_statements.py`. Its estimates are combined with those of the linear models (`model.py`,
`settling.py`). It runs with NumPy alone. It knows English; of messages in eight other languages it reads the common
words in English (`features.common_words`).

A window is a message, or a part of a long one, with the end of what was said before it and the beginning of what was
said after it. The estimates of a window depend on nothing else, so that a message has the same ones whenever it is
read.
"""

from __future__ import annotations

import lzma
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.text.words import ENGLISH, language_of, words
from mcp_server.understanding.features import Message, common_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


WEIGHTS = Path(__file__).parent.parent / "data" / "encoder.npz"
TOKENIZER = Path(__file__).parent.parent / "data" / "encoder_tokenizer.json.xz"

BEFORE, OWN, AFTER = 64, 128, 40
"""Tokens of a window: of what was said before, of the message itself, and of what was said after. A sentence is never
divided, so that a window may have a sentence more of its own."""

LONGEST_SENTENCE = 64
"""Tokens of a sentence that are read."""

LONGEST_TEXT = 400
"""Characters of a sentence that are read."""

MAX_WINDOWS = 12
"""Windows of a message that are read, about 1,500 tokens. The sentences after them are judged without estimates."""

WINDOWS_CACHED = 4096
"""Windows whose estimates are cached. A message is read about ten times while the messages after it arrive."""

TOKEN = "H"
"""The type code of a token in an array: two bytes without a sign."""

UNKNOWN, START, SEPARATOR = 100, 101, 102
SPEAKERS = {"user": (5310, 1024), "agent": (4005, 1024)}
"""Token ids: a text without letters, the beginning of a window, the end of a part of it, and "user:" and "agent:"."""

HEADS, GELU = 12, 0.7978846
"""Attention heads, and the factor of the tanh form of the activation GELU (Hendrycks and Gimpel 2016): √(2/π)."""


OF_SENTENCES, OF_PAIRS, OF_TEXTS = (0, 1, 2, 3, 4, 5), (0, 1, 2, 6, 7, 8), (0, 1, 2, 9, 10, 11)
"""The layers that read a window, a pair of statements, and a query or a passage."""

PAIRS_CACHED = 8192
"""Pairs of statements whose estimates are cached: they are settled again whenever a statement is added."""

QUERIES_CACHED = 256
"""Queries whose vectors are cached: a message is looked up several times."""

LONGEST_STATEMENT = 96
"""Tokens of a statement, a query, or a passage that are read."""

NAMES = {"open": "task"}
"""By kind of statement, the word for it that the network was fitted with, if that is not the name of the kind."""


@dataclass(frozen=True, slots=True)
class Window:
    """The tokens of a window, two bytes each, and where each sentence of its message begins and ends in them."""

    tokens: bytes
    spans: tuple[tuple[int, int], ...]

    @property
    def ids(self) -> array[int]:
        """The tokens as numbers."""
        return array(TOKEN, self.tokens)


def windows(said: Sequence[Sequence[Sequence[int]]], roles: Sequence[str], place: int) -> Iterator[Window]:
    """Yields the windows of message number `place`.

    Args:
        said: the tokens of each sentence of each message.
        roles: the role of each message.
        place: the message whose windows are wanted.
    """
    own = said[place]
    before = [token for sentence in said[place - 1] for token in sentence][-BEFORE:] if place else []
    after = [token for sentence in said[place + 1] for token in sentence][:AFTER] if place + 1 < len(said) else []
    for first, last in _parts(own):
        earlier = [token for sentence in own[:first] for token in sentence][-BEFORE:]
        later = [token for sentence in own[last:] for token in sentence][:AFTER]
        tokens = [START]
        if before and len(earlier) < BEFORE:
            tokens += (*SPEAKERS[roles[place - 1]], *before[len(earlier) - BEFORE :])
        tokens += (SEPARATOR, *SPEAKERS[roles[place]], *earlier)
        spans = []
        for sentence in own[first:last]:
            spans.append((len(tokens), len(tokens) + len(sentence)))
            tokens += sentence
        tokens += (*later, SEPARATOR)
        if after and len(later) < AFTER:
            tokens += (*SPEAKERS[roles[place + 1]], *after[: AFTER - len(later)])
        yield Window(array(TOKEN, (*tokens, SEPARATOR)).tobytes(), tuple(spans))


def _parts(sentences: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yields the first sentence of each part of a message, and the one after its last."""
    first = count = 0
    for place, sentence in enumerate(sentences):
        if place > first and count + len(sentence) > OWN:
            yield first, place
            first, count = place, 0
        count += len(sentence)
    if first < len(sentences):
        yield first, len(sentences)


class Network:
    """The network's weights. Matrices are stored as 8-bit integers with a scale for each column.

    The lower layers are shared; the upper ones are fitted for sentences in their context (`OF_SENTENCES`), for pairs of
    statements (`OF_PAIRS`), or for queries and passages (`OF_TEXTS`).
    """

    def __init__(self, path: Path = WEIGHTS) -> None:
        import numpy as np

        with np.load(path) as stored:
            self._words, self._word_scales = stored["words"], stored["words_scale"]
            self._places, (self._first_norm, *norms) = stored["places"], stored["norms"]
            parts = [
                list(zip(stored[name], stored[f"{name}_scale"], stored[f"{name}_bias"], strict=True))
                for name in ("attend", "project", "expand", "contract")
            ]
            matrices = list(zip(*parts, strict=True))
            self._layers = list(zip(matrices, norms[::2], norms[1::2], strict=True))
            self._estimate = stored["estimate"], stored["estimate_bias"]
            self._of_pair = stored["pair"], stored["pair_bias"]
            self.outputs = tuple(map(str, stored["outputs"]))
            """The kinds of items, and each act after the role that it belongs to: "decision", "user accept"."""

    def estimates(self, window: Window) -> NDArray[np.float32]:
        """Returns the logits of all outputs, a row for each sentence of a window and a last one for all of them."""
        import numpy as np

        start, end = window.spans[0][0], window.spans[-1][1]
        rows = self._rows(np.frombuffer(window.tokens, np.uint16), OF_SENTENCES, start, end)
        spans = [(first - start, last - start) for first, last in (*window.spans, (start, end))]
        means = np.stack([rows[first:last].mean(axis=0) for first, last in spans])
        found: NDArray[np.float32] = means @ self._estimate[0] + self._estimate[1]
        return found

    def of_pair(self, old: Sequence[int], new: Sequence[int]) -> tuple[float, float]:
        """Returns the logits that a statement replaces, and that it closes, an older one. Both are tokens."""
        import numpy as np

        tokens = np.array([START, *old, SEPARATOR, *new, SEPARATOR])
        rows = self._rows(tokens, OF_PAIRS, 0, len(tokens))
        one, other = rows[: len(old) + 1].mean(axis=0), rows[len(old) + 2 : -1].mean(axis=0)
        replaces, closes = np.concatenate([one, other, np.abs(one - other)]) @ self._of_pair[0] + self._of_pair[1]
        return float(replaces), float(closes)

    def of_text(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Returns the vector of a text, of length 1. A query and a passage that answers it have a large cosine."""
        import numpy as np

        said = np.array([START, *tokens, SEPARATOR])
        vector: NDArray[np.float32] = self._rows(said, OF_TEXTS, 0, len(said)).mean(axis=0)
        return vector / np.linalg.norm(vector)

    def _rows(self, tokens: NDArray[Any], layers: Sequence[int], start: int, end: int) -> NDArray[np.float32]:
        """Returns the rows `start` to `end`, one for each token, after these layers."""
        import numpy as np

        x = self._words[tokens] * self._word_scales[tokens, None] + self._places[: len(tokens)]
        x = _normed(x, self._first_norm)
        for layer in layers:
            (attend, project, expand, contract), norm, last_norm = self._layers[layer]
            query, key, value = _linear(x, attend).reshape(len(x), 3, HEADS, -1).transpose(1, 2, 0, 3)
            if layer == layers[-1]:  # the other rows are not used after it
                x, query = x[start:end], query[:, start:end]
            shares = query @ key.swapaxes(1, 2) / np.sqrt(np.float32(query.shape[-1]))
            shares = np.exp(shares - shares.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            mixed = (shares @ value).swapaxes(0, 1).reshape(len(x), -1)
            x = _normed(x + _linear(mixed, project), norm)
            wide = _linear(x, expand)
            wide *= 0.5 + 0.5 * np.tanh(GELU * wide * (1 + 0.044715 * wide * wide))
            x = _normed(x + _linear(wide, contract), last_norm)
        found: NDArray[np.float32] = x
        return found


def _linear(x: NDArray[np.float32], layer: tuple[NDArray[Any], NDArray[Any], NDArray[Any]]) -> NDArray[np.float32]:
    """Returns the rows times a matrix of 8-bit integers, times the scale of each column, plus the bias. The integers
    are converted at each use: this takes a thirtieth of the time, and the memory of all matrices is a quarter."""
    import numpy as np

    matrix, scale, bias = layer
    found: NDArray[np.float32] = x @ matrix.astype(np.float32)
    found *= scale
    found += bias
    return found


def _normed(x: NDArray[np.float32], norm: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the rows with mean 0 and variance 1, times the scale and plus the shift of a layer normalization."""
    x = x - x.mean(-1, keepdims=True)
    x /= (x * x).mean(-1, keepdims=True) ** 0.5
    x *= norm[0]
    x += norm[1]
    return x


@cache
def network() -> Network:
    """Returns the shipped network. Loading takes about 0.1 s and 40 MB: call it in a worker thread the first time."""
    return Network()


@cache
def tokenizer() -> Tokenizer:
    """Returns the network's tokenizer."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(lzma.decompress(TOKENIZER.read_bytes()).decode())


@lru_cache(maxsize=WINDOWS_CACHED)
def _estimates(window: Window) -> NDArray[np.float32]:
    """Returns what `Network.estimates` returns, in hundredths: computers differ in the last digits."""
    return network().estimates(window).round(2)


@lru_cache(maxsize=PAIRS_CACHED)
def pair(kind: str, text: str, new_kind: str, new_text: str) -> tuple[float, float]:
    """Returns the logits that a statement replaces, and that it closes, an older one, in hundredths. `kind` and `text`
    are those of the older one."""
    replaces, closes = network().of_pair(statement_tokens(kind, text), statement_tokens(new_kind, new_text))
    return round(replaces, 2), round(closes, 2)


def vector(text: str) -> NDArray[np.float32] | None:
    """Returns the vector of what a text is about, of length 1; None if it is not in English. It takes 5 to 35 ms."""
    if language_of(words(text)) not in (ENGLISH, ""):
        return None
    return network().of_text(text_tokens(text))


vector_of_query = lru_cache(maxsize=QUERIES_CACHED)(vector)


def text_tokens(text: str) -> list[int]:
    """Returns the first tokens of a text."""
    said = tokenizer().encode(text[:LONGEST_TEXT].encode("utf-8", "replace").decode(), add_special_tokens=False)
    tokens: list[int] = said.ids[:LONGEST_STATEMENT]
    return tokens


def statement_tokens(kind: str, text: str) -> list[int]:
    """Returns the tokens of a statement, after those of its kind."""
    return text_tokens(f"{NAMES.get(kind, kind)}:") + text_tokens(text)


def named(outputs: Sequence[str], row: Sequence[float], role: str = "") -> dict[str, float]:
    """Returns the estimates for a sentence, which are those of kinds of items, or for a message, those of the acts of
    its role."""
    start = f"{role} " if role else ""
    return {
        name.removeprefix(start): float(value)
        for name, value in zip(outputs, row, strict=True)
        if (name.startswith(start) if role else " " not in name)
    }


def tokens_of(messages: Sequence[Message], tokenizer: Tokenizer) -> list[list[list[int]]]:
    """Returns the tokens of each sentence of each message, at least one and at most LONGEST_SENTENCE."""
    texts = [[text[:LONGEST_TEXT] for text in message.sentence_texts] for message in messages]
    flat = [text.encode("utf-8", "replace").decode() for some in texts for text in some]
    found = tokenizer.encode_batch_fast(flat, add_special_tokens=False)
    tokens = iter([one.ids[:LONGEST_SENTENCE] or [UNKNOWN] for one in found])
    return [list(islice(tokens, len(some))) for some in texts]


def read(messages: Sequence[Message]) -> None:
    """Sets the estimates of the messages in English, and in languages whose common words are read as English ones. The
    others are only context."""
    said, roles = tokens_of(messages, tokenizer()), [message.role for message in messages]
    for place, message in enumerate(messages):
        if said[place] and (message.language == ENGLISH or message.language in common_words()):
            parts = [_estimates(window) for window in islice(windows(said, roles, place), MAX_WINDOWS)]
            outputs = network().outputs
            message.estimates = [named(outputs, row) for part in parts for row in part[:-1]]
            message.estimates_of_all = named(outputs, parts[0][-1], message.role)
