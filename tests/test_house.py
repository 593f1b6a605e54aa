"""The house rules: light import, explicit exports, borders between modules, documents that agree with the code."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unnoise

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "unnoise"
HEAVY = ("scipy", "pyarrow", "polars", "typer", "rich", "matplotlib", "pandas", "pyspark", "cryptography")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_nothing_heavy_and_takes_less_than_300_ms() -> None:
    code = f"""
import sys, time
start = time.perf_counter()
import unnoise
print(time.perf_counter() - start)
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    runs = [run(code).splitlines() for _ in range(5)]
    assert runs[0][1] == "[]"
    assert min(float(lines[0]) for lines in runs) < 0.3


def test_an_error_waits_for_no_heavy_library() -> None:
    code = (
        "import sys; sys.argv = ['unnoise', 'profile', 'no-such.csv', '-c', 'x', '-e', '1']\n"
        "from unnoise.cli import main\n"
        "try: main()\n"
        "except SystemExit as left: print(left.code, [n for n in ('scipy', 'polars', 'pyarrow') if n in sys.modules])"
    )
    assert run(code).strip() == "2 []"


def test_sampling_noise_needs_neither_scipy_nor_arrow() -> None:
    names = "print('scipy' in sys.modules, 'pyarrow' in sys.modules)"
    loaded = run(f"import sys, unnoise; unnoise.discrete_laplace(9, 1); {names}")
    assert loaded.split() == ["False", "False"]


def test_answers_need_no_package_that_takes_half_a_second_to_load() -> None:
    """scipy.stats is for benchmarks and named shapes; every command would wait for it."""
    asked = "un.reconstruct([3, 4, 5], epsilon=1).distinct; un.direct([1, 1, 2], epsilon=1).distinct"
    assert run(f"import sys, unnoise as un; {asked}; print('scipy.stats' in sys.modules)").split() == ["False"]


def test_every_export_exists_and_the_list_is_sorted() -> None:
    assert unnoise.__all__ == sorted(unnoise.__all__)
    for name in unnoise.__all__:
        if name != "spark":
            assert getattr(unnoise, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        unnoise.nothing  # noqa: B018


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p.name not in ("__init__.py", "__main__.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_says_what_it_is_and_what_it_exports(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "a module opens with what it computes"
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
            assert len(names) == len(set(names))
            return
    raise AssertionError("a module lists its exports in __all__")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_tests_import_the_testing_module(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert "testing" not in (node.module or "").split(".")
            assert "testing" not in [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("unnoise.testing") for alias in node.names)


def test_randomness_enters_in_one_place() -> None:
    """os.urandom, secrets and unseeded generators appear nowhere but in the sampler."""
    entropy = re.compile(r"os\.urandom|import secrets|from secrets|SystemRandom|default_rng\(\)")
    offenders = [p.relative_to(PACKAGE) for p in modules() if entropy.search(p.read_text()) and p.name != "_sampler.py"]
    assert offenders == []


def test_no_registry_address_is_written_down() -> None:
    hosts = ["pypi" + r"\.org", r"files\.python" + "hosted", r"registry\.npm" + "js", r"deb\.deb" + "ian"]
    address = re.compile("|".join(hosts))
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = [f for f in files if Path(f).suffix in {".py", ".toml", ".txt", ".md", ".sh", ".html", ".cfg", ""}]
    assert [f for f in texts if (ROOT / f).is_file() and address.search((ROOT / f).read_text(errors="ignore"))] == []


def test_documents_name_only_files_that_exist() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_documents_name_only_code_that_exists() -> None:
    """Files by their path in the repository or below the package, modules in the tables of architecture.md."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for name in re.findall(r"`((?:[\w-]+/)+\w+\.py)(?:::\w+)?`", page.read_text()):
            assert any((base / name).exists() for base in (ROOT, PACKAGE, PACKAGE.parent)), f"{page.name}: {name}"
    rows = (ROOT / "docs" / "architecture.md").read_text().split("## Modules")[1].split("## Noise")[0]
    for cell in re.findall(r"^\| (`.*?) \|", rows, re.M):
        for name in re.findall(r"`([\w.]+)`", cell):
            path = PACKAGE / name.replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").exists(), f"architecture.md: {name}"


@pytest.mark.parametrize("folder", ["audits", "benchmarks", "scripts"])
def test_scripts_import_only_what_exists(folder: str) -> None:
    """No test runs all of them, and a name that has moved would be noticed after an hour of theirs."""
    for path in sorted((ROOT / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unnoise":
                home = importlib.import_module(str(node.module))
                for name in (alias.name for alias in node.names):
                    found = hasattr(home, name) or importlib.util.find_spec(f"{home.__name__}.{name}") is not None
                    assert found, f"{folder}/{path.name}: {node.module} has no {name}"


def test_broken_variants_of_the_audits_replace_only_what_exists() -> None:
    """``module.name = …`` and ``patch.object(thing, "name", …)``: the control of an audit must break something."""
    for path in sorted((ROOT / "audits").glob("*.py")):
        tree, things = ast.parse(path.read_text()), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unnoise":
                home = importlib.import_module(str(node.module))
                things |= {a.asname or a.name: getattr(home, a.name, None) for a in node.names}
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and ast.unparse(node.func) == "patch.object"
            pairs = [(ast.unparse(node.args[0]), ast.literal_eval(node.args[1]))] if called else []
            if isinstance(node, ast.Assign):
                pairs = [(ast.unparse(t.value), t.attr) for t in node.targets if isinstance(t, ast.Attribute)]
            for thing, name in pairs:
                assert things.get(thing) is None or hasattr(things[thing], name), f"{path.name}: {thing}.{name}"


def test_documented_api_exists() -> None:
    """Every un.<name> that a page shows is exported."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for name in re.findall(r"\bun\.([A-Za-z_]+)", page.read_text()):
            assert name in unnoise.__all__ or name == "errors", f"{page.name}: un.{name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrays_have_one_name_each(path: Path) -> None:
    """NDArray[np.float64] is Floats and NDArray[np.int64] is Int64, said in arrays.py alone."""
    found = re.findall(r"NDArray\[np\.(?:float64|int64)\]", path.read_text())
    assert bool(found) == (path.name == "arrays.py")


def functions(path: Path) -> list[tuple[str, int]]:
    """Every function of a module with its number of lines, the docstring left out."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            words = first.end_lineno - first.lineno + 1 if ast.get_docstring(node, clean=False) is not None else 0
            found.append((node.name, node.end_lineno - node.lineno + 1 - words))
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_function_is_longer_than_50_lines(path: Path) -> None:
    assert [name for name, lines in functions(path) if lines > 50] == []


def test_there_are_few_rooms_and_none_is_a_hall() -> None:
    """Files of the package, and lines of the longest: neither grows. Two modules that are one thought become one.

    Migrations are left out: they are the history of the tables, which only grows.
    """
    files = sorted(path for path in PACKAGE.rglob("*.py") if path.parent.name != "versions")
    longest = max(files, key=lambda path: len(path.read_text().splitlines()))
    lines = len(longest.read_text().splitlines())
    print(f"{len(files)} files; the longest, {longest.relative_to(PACKAGE)}, has {lines} lines")
    assert len(files) <= 127
    assert lines <= 540


def test_the_usual_function_is_short() -> None:
    lengths = sorted(lines for path in modules() for _, lines in functions(path))
    assert lengths[len(lengths) // 2] <= 7


ACROSS = {
    "api", "audits", "conftest", "docs", "hostile", "house", "invariants", "journeys", "observable", "package",
    "privacy_page", "readme", "secret_memory",
}  # fmt: skip
"""Files of tests about all of the package, or what is around it."""


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("test_*.py")), ids=lambda p: p.stem)
def test_tests_are_named_after_what_they_test(path: Path) -> None:
    """test_ledger_budget.py is about ledger.py: the name begins with that of a module or folder of the package."""
    rooms = {p.stem.strip("_") for p in [*modules(), *PACKAGE.glob("*/")]} | {p.parent.name for p in modules()}
    name = path.stem.removeprefix("test_")
    assert name in ACROSS or any(name == room or name.startswith(f"{room}_") for room in rooms)


OTHERS = {"clarabel", "mpmath", "numpy", "scipy", "xxhash"}
"""What oracles compute with."""


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("oracles_*.py")), ids=lambda p: p.stem)
def test_oracles_import_nothing_from_what_they_check(path: Path) -> None:
    """Neither from the package nor from tools that use it: libraries by others, and public names for annotations."""
    tree = ast.parse(path.read_text())
    typing = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    annotations = {each for block in typing for each in ast.walk(block)}
    for node in ast.walk(tree):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        allowed = OTHERS | ({"unnoise"} if node in annotations else sys.stdlib_module_names)
        assert {name if name.startswith("unnoise") else name.split(".")[0] for name in names} <= allowed


def test_the_changelog_moves_with_the_code(tmp_path: Path) -> None:
    """In a repository of its own: a change of the code alone is noticed, one that the changelog mentions is not."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from check_changelog import unmentioned
    finally:
        sys.path.pop(0)

    def git(*words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    code = tmp_path / "src" / "unnoise" / "a.py"
    code.parent.mkdir(parents=True)
    git("init")
    for text, page, expected in [("1", "one", []), ("2", "one", ["src/unnoise/a.py"]), ("2", "two", [])]:
        code.write_text(text)
        (tmp_path / "CHANGELOG.md").write_text(page)
        git("add", "-A")
        if text == "2" and page == "two":
            assert unmentioned(tmp_path) == []  # not yet committed
        git("commit", "-m", "change")
        assert unmentioned(tmp_path) == expected
        shallow = tmp_path.with_name(f"{tmp_path.name}-{text}-{page}")
        git("clone", "--depth", "1", tmp_path.as_uri(), str(shallow))
        assert unmentioned(shallow) == []  # no history to judge by
        (shallow / "src" / "unnoise" / "a.py").write_text("3")
        assert unmentioned(shallow) == ["src/unnoise/a.py"]


def test_no_class_name_stands_for_two_things() -> None:
    """A task is what a collector gathers, told to its two servers in their own form."""
    named: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert [name for name, places in named.items() if len(places) > 1] in ([], ["Task"])
