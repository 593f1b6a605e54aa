"""Random neighbours, the ways to count them, and all commands one after another on what came of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _observe import HEADER, Row, difference, fresh, observation, same_bits, write_rows

ITEMS = ("a", "b", "c", "zz", "", "é漢", "x" * 300, "1", '"', "=1", "a,b")
GROUPS = ("A", "B", "C", "", "a")
PERSONS = ("p", "q", "r", "", "p" * 70)
COUNTS = ("1", "2", "0", "-1", "", str(2**53), str(2**62), str(-(2**63)))

HASHED = ("sketch", "-c", "x", "--cells", "64")
DOMAIN = ("sketch", "-c", "x", "--domain", "domain.txt")
PERSON = ("--person", "who", "--max-contributions", "2")
GROUPED = ("--by", "g", "--groups", "A,B")
SPLIT = ("share", "split", "-c", "x", "--site", "s", "-o", "part")
FORMS: dict[str, tuple[str, ...]] = {
    "hashed": HASHED, "first column": ("sketch", "--cells", "64"),
    "levels": (*HASHED, "--levels", "4"), "columns": (*HASHED, "-c", "g"),
    "counts": (*HASHED, "--count-column", "n"), "persons": (*HASHED, *PERSON),
    "pan-private": (*HASHED, "--pan-private"),
    "persons with counts": (*HASHED, *PERSON, "--count-column", "n"), "groups": (*HASHED, *GROUPED),
    "groups of persons": (*HASHED, *GROUPED, *PERSON), "known": DOMAIN, "known groups": (*DOMAIN, *GROUPED),
    "known persons": (*DOMAIN, *PERSON), "sampled": (*DOMAIN, "--rate", "1"), "seeded": (*HASHED, "--hash-seed", "7"),
    "query": (*HASHED, "--sql", "SELECT x FROM data WHERE g = 'A'"),
    "labels": (*HASHED, "--label", "L", "--site", "s", "--period", "p"),
    "profile": ("profile", "-c", "x"), "profile of groups": ("profile", "-c", "x", *GROUPED),
    "profile of all groups": ("profile", "-c", "x", *GROUPED, "--all-groups", "1/4"),
    "profile of persons": ("profile", "-c", "x", *PERSON),
    "profile of counts": ("profile", "-c", "x", "--count-column", "n"),
    "items are persons": ("profile", "-c", "who", "--person", "who"),
    "profile by sketch": ("profile", "-c", "x", "--cells", "2^12", "--sketch", "--method", "isotonic"),
    "page": ("profile", "-c", "x", "-o", "page.html"), "table": ("profile", "-c", "x", *GROUPED, "-o", "page.csv"),
    "split": (*SPLIT, "--task", "the.task"), "split persons": (*SPLIT, "--person", "who", "--task", "persons.task"),
}  # fmt: skip


def draw_rows(rng: random.Random) -> list[Row]:
    """Draw a few rows: none or one about every third time."""
    size = rng.choice((0, 1, 1, 2, 5, 20))
    return [draw_row(rng) for _ in range(size)]


def draw_row(rng: random.Random) -> Row:
    """Draw a row: nulls, unknown items and groups, long and odd texts, huge counts."""
    return rng.choice(ITEMS), rng.choice(GROUPS), rng.choice(PERSONS), rng.choice(COUNTS)


def neighbour(rng: random.Random, rows: Sequence[Row], persons: bool) -> list[Row]:
    """Return the rows with one more or one less; or without one person, or with all rows of a new one."""
    other = list(rows)
    if persons and rows and rng.random() < 0.5:
        gone = rng.choice(rows)[2]
        return [row for row in rows if row[2] != gone]
    if persons and rng.random() < 0.5:
        return [*other, *((x, g, "new", n) for x, g, _, n in (draw_row(rng) for _ in range(rng.randrange(1, 6))))]
    if other and rng.random() < 0.5:
        other.pop(rng.randrange(len(other)))
    else:
        other.insert(rng.randrange(len(other) + 1), draw_row(rng))
    return other


def prepare(folder: Path, rows: Sequence[Row], format: str) -> tuple[str, bytes]:
    """Write data, domain and tasks into a folder; return the name to give, and standard input."""
    from unnoise.protocols.shares import Task

    (folder / "domain.txt").write_text("a\nb\nc\n")
    for name, options in (("the.task", {}), ("persons.task", {"max_contributions": 2})):
        (folder / name).write_bytes(Task.hashed(64, epsilon=1, epoch="e", **options).to_bytes())
    source = folder / f"rows.{format.split()[0]}"
    write_rows(rows, source, format)
    if "input" not in format:
        return source.name, b""
    data = source.read_bytes()
    source.unlink()
    return "-", data


def counted(
    form: str, rows: Sequence[Row], format: str, folder: Path, *, apart: bool = False, extra: Sequence[str] = ()
) -> dict[str, Any]:
    """Count rows in one form and return what is seen."""
    place = fresh(folder)
    name, given = prepare(place, rows, format)
    command, *options = FORMS[form]
    words = [command, *options, name] if command != "share" else [command, options[0], name, *options[1:]]
    words += ["--format", format.split()[0]] if name == "-" else []
    if command != "share":
        words += ["-e", "1", *extra]
        words += ["--no-header"] if "without" in format else []
        words += ["-o", "out"] if command == "sketch" else []
    if command == "profile":
        words.append("--json")
    if "without" in format:  # such columns have no names
        words = [f"column_{HEADER.index(word) + 1}" if word in HEADER else word for word in words]
    return observation(words, place, given, answers=command == "profile", apart=apart)


def readable(form: str, format: str) -> str:
    """Return the format, or one that the form can be read from."""
    if form == "first column":
        return "csv without header"  # elsewhere the column must be named
    if form == "query" and ("input" in format or "without" in format or format == "ndjson"):
        return "csv"
    if "groups" in form and not form.startswith("profile") and format == "arrow from standard input":
        return "arrow"  # types must be known beforehand
    return "csv" if form.startswith("split") and "without" in format else format


def pair(seed: str, folder: Path, forms: Sequence[str], formats: Sequence[str], *, apart: bool = False,
         extra: Sequence[str] = ()) -> tuple[str, str, int]:  # fmt: skip
    """Compare two random neighbours in a random form; return the form, the difference, and the fewer rows."""
    rng = random.Random(seed)
    form = rng.choice(forms)
    format = readable(form, rng.choice(formats))
    left = draw_rows(rng)
    right = neighbour(rng, left, persons="person" in form)
    seen = [counted(form, rows, format, folder, apart=apart, extra=extra) for rows in (left, right)]
    wrong = difference(*seen)
    if not wrong and seen[0]["exit"] != 0:
        wrong = f"both failed: {seen[0]['error'][:200]}"
    return f"{form}, {format}", wrong and f"{form}, {format}: {wrong}", min(len(left), len(right))


# ── every other command ───────────────────────────────────────────────────────────────────────────────────────────

TWO = "a.sketch b.sketch"
CHAIN: tuple[tuple[str, bool], ...] = (
    ("sketch a.csv -c x -e 4 --cells 2^10 --site a --ledger book.ledger -o a.sketch", False),
    ("sketch b.csv -c x -e 4 --cells 2^10 --site b --ledger book.ledger -o b.sketch", False),
    ("sketch a.csv -c x -e 1 --cells 64 --by g --groups A,B -o set", False),
    (f"merge {TWO} -o m.sketch", False),
    ("inspect a.sketch m.sketch set", False),
    ("inspect a.sketch m.sketch --json", False),
    ("estimate a.sketch --json --method isotonic", True),
    ("estimate set --json --method isotonic", True),
    ("estimate m.sketch --method isotonic -o m.csv --json", True),
    ("report m.sketch --method isotonic -o m.html --json", True),
    (f"union {TWO} --json", True),
    (f"overlap {TWO} --json", True),
    (f"table {TWO} --json", True),
    ("ledger book.ledger", False),
    ("ledger book.ledger --json", False),
    ("share task -e 1 --epoch e --cells 64 -o the.task", False),
    ("share split a.csv -c x --task the.task --site a -o a", False),
    ("share split b.csv -c x --task the.task --site b -o b", False),
    ("share receive one a.seed b.seed --task the.task --side seed", False),
    ("share receive two a.difference b.difference --task the.task --side difference", False),
    ("share offer one -o one.offer", False),
    ("share offer two -o two.offer", False),
    ("share agree one two.offer -o one.word", False),
    ("share agree two one.offer -o two.word", False),
    ("share answer one two.word -o one.answer", False),
    ("share answer two one.word -o two.answer", False),
    ("combine one.answer two.answer --task the.task -o c.sketch", False),
    ("inspect c.sketch", False),
)
SERVED: tuple[tuple[str, bool], ...] = (
    ("task create reach -e 4 --cells 2^10 {to}", False),
    ("send a.sketch --task reach {site}", False),
    ("send a.sketch --task reach {site}", False),
    ("collect reach --json {to}", True),
    ("collect reach -o got.sketch {to}", False),
    ("task list --json {to}", False),
    ("task show reach {to}", False),
    ("token list {to}", False),
)
NO_DATA = ("demo", "plan", "advise", "compare", "serve", "token", "task", "backup", "restore")
"""Commands that read no private data: experiments on shapes and on data whose truth is known, and administration."""


def chain(rows: Sequence[Row], folder: Path, seed: int, *, served: bool = False) -> list[dict[str, Any]]:
    """Run every command on the rows and return what is seen of each."""
    place = fresh(folder)
    write_rows(rows, place / "a.csv", "csv")
    write_rows([("a", "A", "p", "1"), ("b", "B", "q", "1")], place / "b.csv", "csv")
    with same_bits(seed):
        seen = [observation(words.split(), place, answers=answers) for words, answers in CHAIN]
        if served:
            from _served import collector

            with collector(folder.with_name("collector")) as filled:
                seen += [observation(filled(words), place, answers=answers) for words, answers in SERVED]
    return seen


def chain_pair(seed: int, folder: Path, *, served: bool = False) -> tuple[int, str]:
    """Compare every command on two random neighbours; return how many were run, and the first difference."""
    rng = random.Random(f"chain {seed}")
    left = draw_rows(rng)
    right = neighbour(rng, left, persons=False)
    one, two = (chain(rows, folder, seed, served=served) for rows in (left, right))
    for first, second in zip(one, two):
        if wrong := difference(first, second):
            return len(one), f"{first['command']}: {wrong}"
        if first["exit"] != 0:
            return len(one), f"{first['command']} failed: {first['error'][:200]}"
    return len(one), ""
