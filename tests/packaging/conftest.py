"""The wheel, built once, and a virtual environment that has it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.programs import ROOT
from tests.running import printed


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", str(ROOT), "--no-deps", "--wheel-dir", str(folder))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment where our packages are those of the wheel, installed by pip.

    What they depend on is borrowed from the tests' own environment: nothing has to be downloaded.
    """
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", str(wheel))
    inside = printed([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    borrowed = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"  # with the .pth files in there
    Path(inside, "borrowed.pth").write_text(f"{borrowed}\n")
    return python.parent


def pip(*arguments: str) -> None:
    printed([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], timeout=None)
