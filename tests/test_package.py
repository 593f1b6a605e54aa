"""The package: two builds of one source have the same bytes, base dependencies are enough, and names last."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import unnoise as un

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RELEASED = Path(__file__).parent / "golden" / "released.txt"
TEMPORARY = shutil.ignore_patterns(".*", "__pycache__", "out", "site", "*.egg-info", "dist", "build")


# ── building ──────────────────────────────────────────────────────────────────────────────────────────────────────


def build(source: Path, into: Path, *kinds: str) -> dict[str, Path]:
    """Build sdist, wheel or both; return them by kind."""
    pytest.importorskip("hatchling")
    targets = [word for kind in kinds for word in ("-t", kind)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-m", "hatchling", "build", *targets, "-d", str(into)]
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
    return {"wheel" if path.suffix == ".whl" else "sdist": path for path in into.iterdir()}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> list[dict[str, Path]]:
    """Two builds, of copies that differ in their place, their times, their rights and what lies around."""
    pairs = []
    for number in range(2):
        folder = tmp_path_factory.mktemp(f"build-{number}")
        source = folder / f"source-{number}"
        shutil.copytree(ROOT, source, ignore=TEMPORARY)
        for hidden in (".importlinter", ".pre-commit-config.yaml", ".gitignore"):
            shutil.copy(ROOT / hidden, source)
        if number:
            (source / "notes.txt").write_text("something of mine")
            (source / ".cache").mkdir()
            (source / ".cache" / "x").write_text("y")
            for path in (*source.glob("src/unnoise/*.py"), source / "README.md"):
                os.utime(path, (1_000_000_000, 1_000_000_000))
                path.chmod(0o600)
        pairs.append(build(source, folder / "dist", "sdist", "wheel"))
    return pairs


@pytest.mark.slow
def test_two_builds_have_the_same_bytes(built, tmp_path):
    for kind in ("sdist", "wheel"):
        assert digest(built[0][kind]) == digest(built[1][kind]), kind
    with tarfile.open(built[0]["sdist"]) as archive:
        archive.extractall(tmp_path, filter="data")
        names = archive.getnames()
    again = build(next(tmp_path.iterdir()), tmp_path / "dist", "wheel")
    assert digest(again["wheel"]) == digest(built[0]["wheel"]), "the wheel of the sdist is the wheel of the source"
    assert not [name for name in names if re.search(r"notes\.txt|/\.cache|__pycache__|/out/", name)]


@pytest.mark.slow
def test_the_wheel_holds_all_that_runs(built):
    with zipfile.ZipFile(built[0]["wheel"]) as wheel:
        names = set(wheel.namelist())
    needed = [path for path in (ROOT / "src" / "unnoise").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    missing = [path for path in needed if str(path.relative_to(ROOT / "src")) not in names]
    assert not missing
    assert {"unnoise/py.typed", "unnoise/data/flights.parquet", "unnoise/answers/templates/report.html"} <= names
    assert not [name for name in names if not name.startswith(("unnoise/", "unnoise-"))]


# ── base dependencies alone ───────────────────────────────────────────────────────────────────────────────────────


def closure(names: list[str]) -> set[str]:
    """Return the distributions that these need, their own needs included, extras left out."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        needed = waiting.pop()
        key = re.sub(r"[-_.]+", "-", needed.name).lower()
        if key in found or (needed.marker is not None and not needed.marker.evaluate({"extra": ""})):
            continue
        found.add(key)
        waiting += [Requirement(text) for text in distribution(needed.name).requires or ()]
    return found


@pytest.fixture(scope="module")
def bare(built, tmp_path_factory) -> Path:
    """The interpreter of a fresh environment with the wheel and what pyproject.toml calls its dependencies."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in closure(PROJECT["project"]["dependencies"]):
        for top in {Path(str(file)).parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            place = Path(str(distribution(name).locate_file(top)))
            if place.exists() and not (site / top).exists():
                (site / top).symlink_to(place)
    with zipfile.ZipFile(built[0]["wheel"]) as wheel:
        wheel.extractall(site)
    return folder / "bin" / "python"


def alone(python: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    return subprocess.run([str(python), *words], capture_output=True, text=True, env=environment, cwd=cwd, timeout=600)


@pytest.mark.slow
def test_base_dependencies_are_enough(bare, tmp_path):
    (tmp_path / "visits.csv").write_text("url\n" + "".join(f"/page/{i % 50}\n" for i in range(300)))
    where = alone(bare, "-c", "import unnoise, sys; print(unnoise.__file__)")
    assert str(bare.parent.parent) in where.stdout, where.stderr
    absent = alone(bare, "-c", "import matplotlib")
    assert "ModuleNotFoundError" in absent.stderr, "negative control: an extra is not there"
    for line in (
        "sketch visits.csv -c url -e 1 --cells 2^10 -o a.sketch",
        "sketch visits.csv -c url -e 1 --cells 2^10 -o b.sketch",
        "merge a.sketch b.sketch -o both.sketch",
        "inspect both.sketch",
        "estimate both.sketch -o page.html",
        "report both.sketch -o page.md",
        "profile visits.csv -c url -e 1 -o answers.csv",
        "plan -e 1 --cells 100 --repetitions 1",
    ):
        done = alone(bare, "-m", "unnoise", *line.split(), cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    wanting = alone(bare, "-m", "unnoise", "estimate", "a.sketch", "-o", "x.xlsx", cwd=tmp_path)
    assert (wanting.returncode, "pip install 'unnoise[excel]'" in wanting.stderr) == (2, True)


def seconds(python: Path, code: str, runs: int = 7) -> float:
    """Return the least processor time of a child: what others do on the machine is not counted."""
    best = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert alone(python, "-c", code).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return best


@pytest.mark.slow
def test_importing_is_quick(bare):
    """0.3 s on a machine that starts Python in 20 ms, in proportion on a slower one; best of seven."""
    start, whole = seconds(bare, "pass"), seconds(bare, "import unnoise")
    limit = 0.3 * max(1.0, start / 0.02)
    print(f"python {1000 * start:.0f} ms, with unnoise {1000 * whole:.0f} ms, limit {1000 * limit:.0f} ms")
    assert whole < limit
    heavy = seconds(bare, "import scipy.optimize, polars, pyarrow, unnoise", 3)
    print(f"with all it may need {1000 * heavy:.0f} ms")
    assert heavy > whole, "negative control: what is not imported would be seen"


# ── names last ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_released_name_works_or_was_deprecated():
    """The first line is the last release; what it had is there, or has been deprecated for a minor version."""
    if os.environ.get("UNNOISE_SNAPSHOT"):
        RELEASED.write_text("\n".join([un.__version__, *un.__all__]) + "\n")
    version, *names = RELEASED.read_text().split()
    minor = [int(part) for part in version.split(".")[:2]]
    changes = (ROOT / "CHANGELOG.md").read_text()
    for name in names:
        if name not in un.__all__ and name not in un._RENAMED:
            removed = re.search(rf"### Removed\n(?:(?!###).)*`{name}`.*deprecated since (\d+)\.(\d+)", changes, re.S)
            assert removed, f"{name} went without a word: see CONTRIBUTING.md, How something goes"
            assert [int(removed[1]), int(removed[2])] <= minor, f"{name} must stay for a minor version more"


def test_old_names_lead_to_new_ones_and_say_so(monkeypatch):
    for old, (new, since) in un._RENAMED.items():
        assert new in un.__all__
        assert old not in un.__all__
        assert re.search(rf"### Deprecated\n(?:(?!###).)*`{old}`", (ROOT / "CHANGELOG.md").read_text(), re.S), old
        assert re.fullmatch(r"\d+\.\d+", since)
    monkeypatch.setitem(un._RENAMED, "count_privately", ("profile", "0.2"))
    with pytest.warns(DeprecationWarning, match=r"unnoise.count_privately is unnoise.profile since 0.2; .*") as said:
        assert un.count_privately is un.profile
    assert Path(said[0].filename) == Path(__file__), "the warning points at whoever uses the old name"
    with pytest.raises(AttributeError):
        _ = un.never_was


# ── the house rules of the scientific Python community ────────────────────────────────────────────────────────────


def test_the_review_of_the_repository_is_green_or_explained(tmp_path):
    pytest.importorskip("sp_repo_review")
    from repo_review.processor import process

    def failed(folder: Path) -> dict[str, str]:
        return {result.name: result.err_msg for result in process(folder)[1] if result.result is False}

    assert not failed(ROOT)
    assert all(len(reason) > 20 for reason in PROJECT["tool"]["repo-review"]["ignore"].values())
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert {"PY002", "PY003"} <= set(failed(tmp_path)), "negative control: a bare folder fails"
