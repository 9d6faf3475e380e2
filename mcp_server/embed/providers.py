"""The embedder of each provider; `load`, which returns the one that the settings name; and `Embedding`, which an index
uses.

wordllama              the default: a table of token vectors on the CPU; a text's vector is the mean over its tokens
sentence-transformers  any of its models, on this machine (extra `sentence-transformers`); a missing one is downloaded
openai                 OpenAI and every endpoint with its API, through its package (extra `openai`)
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.embed import DIMENSIONS, Embedder, Wanted
from mcp_server.endpoints import PLAIN, careful_and_quick
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.search.gate import WITH_EMBEDDER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from openai import OpenAI

WORDLLAMA_DIMENSIONS = DIMENSIONS["wordllama"]
WEIGHTS = f"weights/l2_supercat_{WORDLLAMA_DIMENSIONS}.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

LONGEST = 20_000
"""Most characters of a text that a local model embeds. Passages have about 800; the mean vector of a longer query
hardly changes after this many."""
LONGEST_SENT = 8_000
"""Most characters of a text that are sent to an endpoint, whose models accept about 8,000 tokens."""

WORDLLAMA_BATCH, TRANSFORMERS_BATCH, OPENAI_BATCH = 256, 64, 128
"""Texts per call of the tokenizer, of the model, and per request."""

TIMEOUT_SECONDS, RETRIES = 20, 1
MOST_BYTES = 64_000_000
"""Most bytes of an endpoint's answer. A batch of the longest vectors has 10 MB."""
MESSAGES_CACHED = 256
"""Most single texts whose vectors are cached: the same message is embedded several times in a turn."""

PACKAGES: Mapping[str, str] = {"sentence-transformers": "sentence_transformers"}
"""The package that a provider needs, if its name is not the provider's."""

KEYWORDS_ONLY = "search uses keywords only"


def how_to_install(provider: str) -> str:
    """Returns the command that installs the package of a provider."""
    return "pip install wordllama" if provider == "wordllama" else f"pip install 'context-manager-mcp[{provider}]'"


def load(wanted: Wanted) -> tuple[Embedder | None, str | None]:
    """Returns the embedder, or None with a sentence for `status` that says why there is none.

    Only checks that the package is installed; the first text loads the weights or calls the endpoint.
    """
    if wanted.provider == "none":
        return None, None
    if importlib.util.find_spec(PACKAGES.get(wanted.provider, wanted.provider)) is None:
        missing = f"the package {wanted.provider} is not installed"
        return None, f"{missing}; {KEYWORDS_ONLY} ({how_to_install(wanted.provider)})"
    if not wanted.length:
        unknown = f"the vector length of {wanted.chosen_model} is unknown: set search.embedding_dimensions"
        return None, f"{unknown}; {KEYWORDS_ONLY}"
    if wanted.provider == "wordllama":
        return WordLlamaEmbedder(), None
    if wanted.provider == "sentence-transformers":
        return SentenceTransformersEmbedder(wanted), None
    if not wanted.key and not wanted.base_url:
        return None, f"search.embedder is openai, and no key is in $OPENAI_API_KEY; {KEYWORDS_ONLY}"
    return OpenAIEmbedder(wanted), None


def _clean(text: str, longest: int) -> str:
    """Returns the beginning of a text without lone surrogates, which no tokenizer accepts."""
    return text[:longest].encode("utf-8", "replace").decode()


def _scaled(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the vectors with length 1; zeros stay zeros."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(lengths > 0, lengths, 1)
    return vectors


class WordLlamaEmbedder:
    """The default embedder. Takes about 25 MB after the first text, and maps 16 MB that all processes share.

    The weights come in the package's wheel; nothing is downloaded. Only the package's two files are used: its code pads
    every text of a batch to the longest and holds the table as float32 in each process. This class maps the float16
    file into memory, and looks up and sums the tokens of each text. The result is the same.
    """

    name = "wordllama"
    dimensions = WORDLLAMA_DIMENSIONS
    gate_threshold = WITH_EMBEDDER.threshold
    """Fitted to the cosines of this embedder (`python -m benchmarks injection`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokenizer: Any = None
        self._table: NDArray[np.float16] | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a unit vector per text, zeros for a text without tokens. Raises Unavailable if the package's files
        cannot be read."""
        import numpy as np

        table = self._loaded()
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for first in range(0, len(texts), WORDLLAMA_BATCH):
            batch = [_clean(text, LONGEST) for text in texts[first : first + WORDLLAMA_BATCH]]
            # `fast` omits the position of each token in the text: the same tokens in half the time.
            tokens = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)]
            for row, ids in enumerate(tokens, first):
                if ids:
                    vectors[row] = table.take(ids, axis=0, mode="clip").astype(np.float32).sum(axis=0)
        return _scaled(vectors)

    def _loaded(self) -> NDArray[np.float16]:
        with self._lock:
            if self._table is None:
                self._tokenizer, self._table = _load_wordllama()
            return self._table


def _load_wordllama() -> tuple[Any, NDArray[np.float16]]:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise Unavailable("the package wordllama is not installed; pip install wordllama, or set search.embedder: none")
    package = Path(spec.origin).parent
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(package / TOKENIZER))
        tokenizer.no_padding()
        # It would cache the tokens of 10,000 texts shorter than 256 bytes: 120 MB with hardly any cache hits.
        with contextlib.suppress(AttributeError):  # the method is private, and newer versions may not have it
            tokenizer.model._resize_cache(0)
        return tokenizer, _mapped(package / WEIGHTS)
    except Exception as error:  # third-party code may raise anything; search then uses keywords
        raise Unavailable(
            f"wordllama cannot be loaded ({error}); {KEYWORDS_ONLY} (pip install --force-reinstall wordllama)"
        ) from error


def _mapped(weights: Path) -> NDArray[np.float16]:
    """Returns the table of a safetensors file, mapped into memory. The file has eight bytes with the length of a JSON
    header, the header, and the numbers."""
    import numpy as np

    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(length))
    (table,) = (value for name, value in head.items() if name != "__metadata__")
    if table["dtype"] != "F16" or table["shape"][1] != WORDLLAMA_DIMENSIONS:
        raise ValueError(
            f"{weights.name} holds {table['dtype']} {table['shape']}, not F16 of {WORDLLAMA_DIMENSIONS} columns"
        )
    first = 8 + length + table["data_offsets"][0]
    return np.memmap(weights, dtype="<f2", mode="r", offset=first, shape=tuple(table["shape"]))


class SentenceTransformersEmbedder:
    """A model of sentence-transformers. Its gate uses wordllama's threshold, which was not measured for it:
    `python -m benchmarks injection` says whether it fits a memory, `search.gate_threshold` changes it."""

    gate_threshold = WITH_EMBEDDER.threshold

    def __init__(self, wanted: Wanted) -> None:
        self.name = wanted.name
        self.dimensions = wanted.length
        self._model_name = wanted.chosen_model
        self._model: Any = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a unit vector per text, zeros for an empty one. Raises Unavailable if the model cannot be loaded."""
        import numpy as np

        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if not rows:
            return vectors
        given = [_clean(texts[row], LONGEST) for row in rows]
        options: dict[str, Any] = {"normalize_embeddings": True, "convert_to_numpy": True, "show_progress_bar": False}
        with self._lock:  # the package's models are not thread-safe
            found = self._loaded().encode(given, batch_size=TRANSFORMERS_BATCH, **options)
        if found.shape != (len(rows), self.dimensions):
            raise Unavailable(
                f"{self._model_name} gives vectors of {found.shape[1]} numbers, not {self.dimensions};"
                f" set search.embedding_dimensions: {found.shape[1]}"
            )
        vectors[rows] = found
        return vectors

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import SentenceTransformer  # takes seconds

                self._model = SentenceTransformer(self._model_name)
            except Exception as error:  # third-party code may raise anything; search then uses keywords
                raise Unavailable(
                    f"the model {self._model_name} cannot be loaded ({error}); {KEYWORDS_ONLY}"
                ) from error
        return self._model


class OpenAIEmbedder:
    """A model behind OpenAI's API. Its gate uses wordllama's threshold, which was not measured for it:
    `python -m benchmarks injection` says whether it fits a memory, `search.gate_threshold` changes it."""

    gate_threshold = WITH_EMBEDDER.threshold

    def __init__(self, wanted: Wanted) -> None:
        self.name = wanted.name
        self.dimensions = wanted.length
        self._wanted = wanted
        self._client: OpenAI | None = None
        self._lock = threading.Lock()
        self._spent = (0, 0)
        self._one = lru_cache(MESSAGES_CACHED)(lambda text: self._request((text,)))

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a unit vector per text, zeros for an empty one. Raises Unavailable if the endpoint gives none."""
        import numpy as np

        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        for first in range(0, len(rows), OPENAI_BATCH):
            batch = rows[first : first + OPENAI_BATCH]
            given = tuple(_clean(texts[row], LONGEST_SENT) for row in batch)
            vectors[batch] = self._one(given[0]) if len(given) == 1 else self._request(given)
        return _scaled(vectors)

    def take_spent(self) -> tuple[int, int]:
        """Returns the calls and tokens since the last call of this method."""
        with self._lock:
            spent, self._spent = self._spent, (0, 0)
        return spent

    def _request(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        import numpy as np
        from openai import OpenAIError, omit

        # The model's default length is not sent, because older models and other endpoints do not support the argument.
        shorter = self.dimensions != DIMENSIONS.get(self._wanted.chosen_model, self.dimensions)
        try:
            answer = self._client_of_package().embeddings.create(
                model=self._wanted.chosen_model,
                input=list(texts),
                encoding_format="float",
                dimensions=self.dimensions if shorter else omit,
            )
            found = np.asarray([one.embedding for one in sorted(answer.data, key=lambda one: one.index)], np.float32)
        except (OpenAIError, Unavailable, AttributeError, TypeError, ValueError) as error:
            raise Unavailable(f"{self.name} gave no vectors ({error}); {KEYWORDS_ONLY} for now") from error
        with self._lock:
            calls, tokens = self._spent
            self._spent = calls + 1, tokens + (answer.usage.prompt_tokens if answer.usage else 0)
        if found.shape != (len(texts), self.dimensions):
            raise Unavailable(
                f"{self.name} gave vectors of shape {found.shape}, not {(len(texts), self.dimensions)};"
                " set search.embedding_dimensions to what it gives"
            )
        return found

    def _client_of_package(self) -> OpenAI:
        with self._lock:
            if self._client is None:
                from openai import DefaultHttpxClient, OpenAI  # takes half a second

                self._client = OpenAI(
                    api_key=self._wanted.key or "none",  # some endpoints need no key, but the package does
                    base_url=self._wanted.base_url,
                    timeout=TIMEOUT_SECONDS,
                    max_retries=RETRIES,
                    default_headers=PLAIN,
                    http_client=DefaultHttpxClient(**careful_and_quick(MOST_BYTES, TIMEOUT_SECONDS)),
                )
            return self._client


LEADING: Mapping[str, int] = {"wordllama": 128}
"""Embedder → number of first dimensions that are nearly as good as all (Matryoshka representations, arXiv 2205.13147).
Only these are used to find neighbors, in half the time. NDCG@10 on LoCoMo (`benchmarks retrieval`) stays .659."""


QUERIES_KEPT, LONGEST_KEPT = 16, 10_000
"""Queries whose vectors are cached, and their greatest length in characters."""


class Embedding:
    """The embedder of an index. `name` and `dimensions` describe it even if it is missing. `problem` is the error of
    the last call, if it failed."""

    def __init__(self, embedder: Embedder | None, name: str | None, dimensions: int) -> None:
        self.embedder = embedder
        self.name = name or (embedder.name if embedder else "none")
        # Also known for a missing embedder, so that vectors can be added later without a rebuild.
        self.dimensions = embedder.dimensions if embedder else dimensions
        self.compared = min(self.dimensions, LEADING.get(self.name, self.dimensions))
        self.problem: str | None = None
        # A cache, because the same message is embedded for topics, passages and a context.
        self._queries: dict[str, NDArray[np.float32]] = {}

    def of(self, texts: list[str]) -> NDArray[np.float32] | None:
        """Returns the vectors of texts; None without texts, without an embedder, or if it fails."""
        if self.embedder is None or not texts:
            return None
        try:
            vectors = self.embedder.embed(texts)
        except ContextManagerError as error:
            self.problem = str(error)
            return None
        self.problem = None
        return vectors

    def of_query(self, text: str) -> NDArray[np.float32] | None:
        """Returns the vector of a query; None without an embedder, or if it fails or finds nothing in the text."""
        vector = self._queries.get(text)
        if vector is None:
            found = self.of([text]) if text.strip() else None
            if found is None:
                return None
            vector = found[0]
            if len(text) <= LONGEST_KEPT:
                if len(self._queries) >= QUERIES_KEPT:
                    self._queries.clear()
                self._queries[text] = vector
        return vector if vector.any() else None

    def messages(self) -> list[str]:
        """Returns messages to show with search results."""
        missing = self.embedder is None and self.name != "none"
        said = [f"the embedder {self.name} is not available: keywords only (context-manager doctor)"] if missing else []
        return [*said, *([self.problem] if self.problem else [])]
