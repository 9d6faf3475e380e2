"""What every test may use: one event loop, a memory in an empty folder, a clock that only moves when it is told to."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain, count, groupby
from operator import attrgetter
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, settings

from mcp_server.app import open_memory
from mcp_server.cli.main import main
from mcp_server.memory import Memory
from mcp_server.understanding import encoder

settings.register_profile(
    "house",
    deadline=None,  # these machines are noisy: a slow example is not a failure
    max_examples=int(os.environ.get("CM_EXAMPLES", "20")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("house")

KEYWORDS_ONLY = {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none"}
"""An environment in which nothing has to load embeddings."""

SLOW = {"end_to_end", "packaging", "torture", "page", "demo", "benchmarks", "history"}
"""Folders of tests that drive other programs."""

Run = Callable[..., str]


@dataclass
class Clock:
    """The time, as a test sets it."""

    now: datetime = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **duration: float) -> None:
        self.now += timedelta(**duration)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=("folder", "postgres"), help="run only what uses a memory, on this engine")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests that are marked with `both_engines` once on each."""
    chosen = metafunc.config.getoption("--engine")
    if "engine" in metafunc.fixturenames and not chosen and metafunc.definition.get_closest_marker("both_engines"):
        folder_only = metafunc.definition.get_closest_marker("folder_only")
        metafunc.parametrize("engine", ["folder"] if folder_only else ["folder", "postgres"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what `--engine` does not ask for, and orders the tests."""
    chosen = config.getoption("--engine")
    if chosen:
        wanted = [
            item
            for item in items
            if "engine" in getattr(item, "fixturenames", ())
            and (chosen == "folder" or item.get_closest_marker("folder_only") is None)
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted
    order(items)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from looking through all modules and tests again and again."""
    gc.collect()
    gc.freeze()


def order(items: list[pytest.Item]) -> None:
    """Lets each worker of a parallel run begin with its share of the slow tests, so that none ends alone with one.

    pytest-xdist gives each worker an equal, contiguous part of the list; a worker that has finished takes tests from
    the end of another's part. Tests of a file stay together: they share what is expensive to make.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow, quick = (
        [list(tests) for _, tests in groupby((item for item in items if is_slow(item) is wanted), attrgetter("path"))]
        for wanted in (True, False)
    )
    shares = [[*chain(*slow[worker::workers]), *chain(*quick[worker::workers])] for worker in range(workers)]
    items[:] = chain(*shares)


def is_slow(item: pytest.Item) -> bool:
    return item.path.parent.name in SLOW


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def workspace(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if "engine" in request.fixturenames:
        assert request.getfixturevalue("engine") == "folder", "mark this test with folder_only, or ask for `place`"
    return tmp_path / "memory"


@pytest.fixture
def new_id() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"ses_{next(numbers):04d}"


@cache
def template() -> Path:
    """Returns a workspace as it begins, with its first commit, for `copied`. Making one takes twenty processes of git;
    a copy takes none."""
    folder = tempfile.mkdtemp(prefix="cm-new-")
    atexit.register(shutil.rmtree, folder)
    made = Path(folder) / "memory"

    async def make() -> None:
        async with open_memory(made, KEYWORDS_ONLY, clock=Clock()):
            pass

    thread = threading.Thread(target=anyio.run, args=(make,))  # a test may have an event loop in this one
    thread.start()
    thread.join()
    shutil.rmtree(made / ".local")
    subprocess.run(["git", "repack", "-adq"], cwd=made, check=True)  # one file to copy instead of 23 folders
    for sample in (made / ".git" / "hooks").glob("*.sample"):
        sample.unlink()
    return made


@pytest.fixture(scope="session")
def new_workspace() -> Path:
    return template()


def project_folder(folder: Path, name: str) -> Path:
    """Makes a folder that belongs to a project, if it is not there, and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".context-manager").write_text(f"{name}\n", "utf-8")
    return folder


def copied(made: Path, workspace: Path) -> None:
    """Copies a workspace. Its git hooks name its folder: with the old one, every opening would write them anew."""
    shutil.copytree(made, workspace, dirs_exist_ok=True)
    for hook in (workspace / ".git" / "hooks").iterdir():
        hook.write_text(hook.read_text("utf-8").replace(str(made), str(workspace)), "utf-8")


@pytest.fixture
def empty_memory(workspace: Path, new_workspace: Path) -> None:
    """A new memory in `workspace`, for commands that only read and so do not create one."""
    copied(new_workspace, workspace)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The engine of `memory`: "folder" or "postgres"."""
    return request.config.getoption("--engine") or "folder"


@pytest.fixture
def place(engine: str, request: pytest.FixtureRequest) -> Path | str:
    """Where `memory` is, for tests that open it again: a folder, or the address of a new database."""
    if engine == "postgres":
        from tests.postgres import server

        return server().new_memory()
    workspace: Path = request.getfixturevalue("workspace")
    copied(request.getfixturevalue("new_workspace"), workspace)
    return workspace


@pytest.fixture
async def memory(place: Path | str, clock: Clock, new_id: Callable[[], str]) -> AsyncIterator[Memory]:
    """A real memory: files, git and SQLite, or PostgreSQL. Keywords only, so that it opens fast."""
    async with open_memory(place, KEYWORDS_ONLY, clock=clock, new_id=new_id) as opened:
        yield opened


@pytest.fixture
def run(
    workspace: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Runs a command from an empty folder, checks its exit code, gives what it printed, or its error if it fails."""
    for name, value in {**KEYWORDS_ONLY, "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        capsysbinary.readouterr()
        ended = main(["--workspace", str(workspace), *arguments])
        printed = capsysbinary.readouterr()
        assert ended == code, (arguments, printed.err.decode())
        return (printed.out if code == 0 else printed.err).decode()

    return run


@pytest.fixture(scope="module")
def fast_notes() -> Iterator[None]:
    """Takes the notes of conversations from the linear models alone, for tests that do not depend on the network, which
    reads every message and takes up to a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "read", lambda messages: None)
        yield


@pytest.fixture
def small_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find contexts that hold 1,000 tokens."""
    monkeypatch.setenv("CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS", "1000")
