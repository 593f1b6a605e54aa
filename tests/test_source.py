"""Reading files and standard input: every format gives the same items, and every fault names file, row and fix."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import shlex
import sqlite3
from codecs import BOM_UTF8
from collections import Counter
from contextlib import closing
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unnoise as un
from command_tools import run_in
from unnoise.errors import InputError
from unnoise.reading import badrows, formats
from unnoise.reading.source import FILES, FORMATS, Wanted, open_source
from unnoise.sketches.inputs import Rows

ROWS = [("00123", "a"), ("7", "b"), ("", "c"), (None, "d"), ("x,y", "e"), ('q"q', "f"), ("two\nlines", "g"), ("ü", "h")]
X = Wanted(columns=("x",))


def write(folder: Path, format: str, rows=ROWS, packed: bool = False) -> Path:
    """Write rows of (x, y) in one of the formats."""
    frame = pl.DataFrame(rows, schema={"x": pl.String, "y": pl.String}, orient="row")
    path = folder / f"rows.{ {'lines': 'txt'}.get(format, format) }"
    if format in ("csv", "tsv"):
        frame.write_csv(path, separator="," if format == "csv" else "\t", quote_style="necessary")
    elif format == "ndjson":
        path.write_text("".join(json.dumps({"x": x, "y": y}) + "\n" for x, y in rows))
    elif format == "parquet":
        frame.write_parquet(path)
    elif format == "arrow":
        frame.write_ipc(path)
    else:
        path.write_text("".join(f"{x}\n" for x, _ in rows))
    if packed:
        squeezed = path.with_name(path.name + ".gz")
        squeezed.write_bytes(gzip.compress(path.read_bytes()))
        return squeezed
    return path


def items(batches) -> list[tuple]:
    return [row for batch in batches for row in zip(*(list(column) for column in batch.columns))]


EXPECTED = [(x,) for x, _ in ROWS if x is not None]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", ["csv", "tsv", "ndjson"])
def test_text_formats_give_text(tmp_path, format, packed):
    source = open_source([write(tmp_path, format, packed=packed)])
    assert items(source.batches(X)) == EXPECTED
    assert source.kind.name == format
    assert not source.kind.typed


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_typed_formats_keep_their_types(tmp_path, format):
    assert items(open_source([write(tmp_path, format)]).batches(X)) == EXPECTED
    numbers = tmp_path / f"n.{format}"
    frame = pl.DataFrame({"x": [3, None, 1]}, schema={"x": pl.Int16})
    frame.write_parquet(numbers) if format == "parquet" else frame.write_ipc(numbers)
    assert items(open_source([numbers]).batches(X)) == [(3,), (1,)]


@pytest.mark.parametrize("end", ["csv", "tsv", "csv.gz", "csv.bz2", "csv.zst", "-"])
def test_without_a_header_no_row_is_like_one(tmp_path, end):
    """The first column is the item unless one is named, whatever rows there are."""
    packed = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda data: pa.compress(data, "zstd", asbytes=True)}
    for number, data in enumerate((b"", b"\n", b"7\n", b"7\n8\n")):
        path = tmp_path / f"{number}.{end if end != '-' else 'csv'}"
        path.write_bytes(packed.get(end.split(".")[-1], bytes)(data))
        with path.open("rb") as stream:
            given = {"stream": stream} if end == "-" else {}
            source = open_source(["-" if end == "-" else path], header=False, **given)
            assert source.unnamed_item() == ("column_1",)
            rows = sum(batch.size for batch in source.batches(Wanted(columns=("column_1",))))
        assert rows == max(number - 1, 0)
    (tmp_path / "x.ndjson").write_text('{"a": 1}\n')
    assert open_source([tmp_path / "x.ndjson"]).unnamed_item() == (), "its columns are told by rows alone"


def test_lines_need_no_header(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes(b"to\nbe\r\n\"or\nto,be\n")
    assert items(open_source([path]).batches(Wanted(columns=("line",)))) == [("to",), ("be",), ('"or',), ("to,be",)]
    assert open_source([path]).columns() == ["line"]


@pytest.mark.parametrize("format", ["csv", "tsv", "ndjson", "lines", "arrow"])
def test_standard_input_gives_what_the_file_gives(tmp_path, format):
    rows = [row for row in ROWS if row[0] is None or "\n" not in row[0]] if format == "lines" else ROWS
    if format == "lines":
        rows = [row for row in rows if row[0] is not None]
    path = write(tmp_path, format, rows)
    wanted = Wanted(columns=("line",)) if format == "lines" else X
    if format == "arrow":
        table, sink = pl.read_ipc(path).to_arrow(), io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue()
    else:
        data = path.read_bytes()
    streamed = open_source(["-"], format=format, stream=io.BytesIO(data))
    assert items(streamed.batches(wanted)) == items(open_source([path]).batches(wanted))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1), st.integers()),
                min_size=1))
def test_csv_file_and_stream_agree(tmp_path_factory, rows):
    frame = pl.DataFrame([(x, str(y)) for x, y in rows], schema={"x": pl.String, "y": pl.String}, orient="row")
    path = tmp_path_factory.mktemp("csv") / "r.csv"
    frame.write_csv(path, quote_style="always")
    wanted = Wanted(columns=("y", "x"))
    expected = [(str(y), x) for x, y in rows]
    assert items(open_source([path]).batches(wanted)) == expected
    assert items(open_source(["-"], stream=io.BytesIO(path.read_bytes())).batches(wanted)) == expected


def test_names_of_columns_are_text():
    """A header of numbers, dates and an empty name stays what it is, in CSV and in TSV."""
    names = ["00123", "2020-01-01", "a,b", "NA", "1e3"]
    for format, separator in (("csv", ","), ("tsv", "\t")):
        quoted = [f'"{name}"' if separator in name else name for name in names]
        data = (separator.join(quoted) + "\n" + separator.join("12345") + "\n").encode()
        for i, name in enumerate(names):
            source = open_source(["-"], format=format, stream=io.BytesIO(data))
            assert items(source.batches(Wanted(columns=(name,)))) == [(str(i + 1),)]


def test_a_long_stream_comes_in_pieces():
    data = b"x,n\n" + b"".join(b"item%d,%d\n" % (i % 1000, i) for i in range(300_000))
    batches = list(open_source(["-"], stream=io.BytesIO(data)).batches(X, chunk=10_000))
    assert all(isinstance(batch, Rows) and batch.size + batch.dropped <= 10_000 for batch in batches)
    assert Counter(items(batches)) == {(f"item{i}",): 300 for i in range(1000)}


def test_without_header(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a,1\nb,2\n")
    wanted = Wanted(columns=("column_1",), counts="column_2")
    for source in (
        open_source([path], header=False),
        open_source(["-"], header=False, stream=io.BytesIO(path.read_bytes())),
    ):
        (batch,) = source.batches(wanted)
        assert items([batch]) == [("a",), ("b",)]
        assert batch.counts.tolist() == [1, 2]


def test_every_wanted_column_and_dropped_rows(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("who,what,times,where\nann,x,2,A\nbob,y,,A\n,z,1,B\ncat,,1,B\ndan,w,-4,B\n")
    wanted = Wanted(columns=("what",), counts="times", person="who", group="where")
    (batch,) = open_source([path]).batches(wanted)
    assert items([batch]) == [("x",), ("w",)]
    assert batch.counts.tolist() == [2, -4]
    assert batch.person[0].to_list() == ["ann", "dan"]
    assert batch.group[0].to_list() == ["A", "B"]
    assert (batch.dropped, batch.size) == (3, 2)


def test_globs_and_several_files(tmp_path):
    for name, value in (("b.csv", "2"), ("a.csv", "1"), ("c.csv", "3")):
        (tmp_path / name).write_text(f"x\n{value}\n")
    assert items(open_source([str(tmp_path / "*.csv")]).batches(X)) == [("1",), ("2",), ("3",)]
    assert open_source([tmp_path / "b.csv", tmp_path / "a.csv"]).rows() == 4


def test_sql_over_the_files(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\na,1\nb,20\n")
    (tmp_path / "b.csv").write_text("x,y\nc,30\n")
    sql = "SELECT upper(x) AS item, CAST(y AS BIGINT) AS n FROM data WHERE CAST(y AS BIGINT) > 10"
    source = open_source([str(tmp_path / "*.csv")], sql=sql)
    assert source.columns() == ["item", "n"]
    (batch,) = source.batches(Wanted(columns=("item", "n")))
    assert items([batch]) == [("B", 20), ("C", 30)]


def test_integers_on_request(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("x\n007\n-5\n\n9\n")
    assert items(open_source([path]).batches(Wanted(columns=("x",), integers=True))) == [(7,), (-5,), (9,)]


def fault(call) -> str:
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


FAULTS = {
    "long": (b"x,y\na,1\nb,2,3\n", "row 2: 2 fields expected, got 3; put quotes around"),
    "utf8": (b"x,y\na,1\nb,2\n\xff,3\n", "row 3: not UTF-8; convert"),
    "quote": (b'x,y\na,1\n"b,2\nc,3\n', "row 2 (line 3): a quote is opened and never closed"),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_bad_csv_is_named(tmp_path, name):
    content, expected = FAULTS[name]
    path = tmp_path / f"{name}.csv"
    path.write_bytes(content)
    message = fault(lambda: list(open_source([path]).batches(X)))
    assert str(path) in message
    assert expected in message


@pytest.mark.parametrize("content", [v[0] for k, v in FAULTS.items() if k != "quote"])
def test_bad_csv_on_standard_input(content):
    assert "standard input" in fault(lambda: list(open_source(["-"], stream=io.BytesIO(content)).batches(X)))


@pytest.mark.parametrize("rows", [b"", b"a,1\r", b"a,1\rb,2\r" * 40_000], ids=["none", "one", "many"])
def test_lines_that_end_in_cr_alone_are_refused(rows, tmp_path):
    """Readers take all of them for the header: nothing was counted, and an error would have shown the rows."""
    path = tmp_path / "mac.csv"
    for content, is_fine in ((b"x,y\r" + rows, False), (b"x,y\r\n" + rows.replace(b"\r", b"\r\n"), True)):
        path.write_bytes(content)
        for source in (open_source([path]), open_source(["-"], stream=io.BytesIO(content))):
            if is_fine:
                assert len(items(source.batches(X))) == rows.count(b"\r")
            else:
                message = fault(lambda source=source: list(source.batches(X)))
                assert message.startswith(f"{source.name}: lines must end in LF or CRLF, got CR alone")


@pytest.mark.parametrize(
    ("format", "content"),
    [("lines", b"a\nb\na\n"), ("uniq", b"  2 a\n  1 b\n"), ("ndjson", b'{"x":"a"}\n{"x":"b"}\n{"x":"a"}\n'),
     ("csv", b"x\na\nb\na\n"), ("freqcount", b"2 1\n1 1\n")],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_mark_before_the_first_line_is_no_part_of_it(format, content, end, tmp_path):
    """Windows writes one: "a" of the first line was another item than "a" elsewhere."""
    found = []
    for marked in (content, BOM_UTF8 + content):
        path = tmp_path / f"rows{end}"
        path.write_bytes(gzip.compress(marked) if end else marked)
        piped = open_source(["-"], format=format, stream=io.BytesIO(marked))
        for source in (open_source([path], format=format), piped):
            wanted = Wanted(columns=(source.kind.item or "x",), counts=source.kind.counts)
            batches = [(list(batch.columns[0]), batch.counts) for batch in source.batches(wanted)]
            found.append([(items, None if counts is None else counts.tolist()) for items, counts in batches])
    assert found[0]
    assert found == [found[0]] * 4


def test_no_rows_are_rows_too(tmp_path):
    """Whether there is a row must not be told by an error; a file without its header names no columns, though."""
    (tmp_path / "none.csv").write_text("x,y\n")
    assert items(open_source([tmp_path / "none.csv"]).batches(X)) == []
    assert items(open_source(["-"], stream=io.BytesIO(b"x,y\n")).batches(X)) == []
    assert items(open_source(["-"], header=False, stream=io.BytesIO(b"")).batches(X)) == []


def test_bad_json_is_named(tmp_path):
    path = tmp_path / "r.ndjson"
    for content, expected in (
        ('{"x":1}\n{"x":\n', "row 2: not JSON"), ('{"x":1}\n[1]\n', "row 2: must be a JSON object, got list"),
    ):
        path.write_text(content)
        assert expected in fault(lambda: list(open_source([path]).batches(X)))
        stream = io.BytesIO(content.encode())
        assert expected in fault(lambda: list(open_source(["-"], format="ndjson", stream=stream).batches(X)))  # noqa: B023


def test_bad_integers_are_named(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("x,n\n1,1\n2,2\nx3,3.5\n")
    wanted = Wanted(columns=("x",), integers=True)
    message = fault(lambda: list(open_source([path]).batches(wanted, chunk=2)))
    assert f"{path}, row 3: x must be a 64-bit integer, got another text; leave out --int" in message
    message = fault(lambda: list(open_source([path]).batches(Wanted(columns=("x",), counts="n"))))
    assert "row 3: n must be a 64-bit integer, got another text; correct or remove the row" in message
    path.write_text("x\n9223372036854775808\n")
    assert "row 1" in fault(lambda: list(open_source([path]).batches(wanted)))


def test_other_types_are_refused_with_a_cast(tmp_path):
    path = tmp_path / "r.parquet"
    pl.DataFrame({"x": [1.5]}).write_parquet(path)
    assert 'CAST("x" AS VARCHAR) AS "x"' in fault(lambda: list(open_source([path]).batches(X)))
    wanted = Wanted(columns=("x",), integers=True)
    assert 'CAST("x" AS BIGINT) AS "x"' in fault(lambda: list(open_source([path]).batches(wanted)))


def test_missing_column_names_the_near_ones(tmp_path, monkeypatch):
    path = write(tmp_path, "csv")
    monkeypatch.setattr("unnoise.reading.formats.on_terminal", lambda: True)
    message = fault(lambda: list(open_source([path]).batches(Wanted(columns=("X",)))))
    assert message == f"{path}: no column 'X'; did you mean x?"
    assert "there is x, y" in fault(lambda: list(open_source([path]).batches(Wanted(columns=("customer",)))))
    stream = io.BytesIO(path.read_bytes())
    assert "did you mean x?" in fault(lambda: list(open_source(["-"], stream=stream).batches(Wanted(columns=("X",)))))


FIRST = "alice@example.org,ill,2026"


def test_a_first_line_that_may_be_a_row_stands_in_no_log(tmp_path, monkeypatch):
    """Names of a CSV are shown on a terminal alone, whoever asks for them; those of a schema are shown anywhere."""
    path, one, other = tmp_path / "a.csv", tmp_path / "one.csv", tmp_path / "b.csv"
    path.write_text(f"{FIRST}\nbob@example.org,well,2026\n")
    one.write_text("alice@example.org ill\n")
    other.write_text("bob,well,2026\n")
    near = Wanted(columns=("alice@example.com",))
    asked = [
        lambda: list(open_source([path]).batches(near)),
        lambda: list(open_source([one]).batches(near)),
        lambda: list(open_source(["-"], stream=io.BytesIO(path.read_bytes())).batches(near)),
        lambda: open_source([path, other], sql="SELECT * FROM data").schema(),
        *(
            lambda sql=sql: list(open_source([path], sql=sql).batches(near))
            for sql in (
                "SELECT * FROM data", "SELECT nope FROM data", "SELECT d.nope FROM data d",
                "SELECT a.* FROM data a JOIN data b USING (nope)", "SELECT * FROM data UNION SELECT 1 AS x FROM data",
            )
        ),
    ]  # fmt: skip
    for ask in asked:
        said = fault(ask)
        assert not any(word in said for word in ("example.org", "ill", "bob", "well", "2026")), said
    monkeypatch.setattr("unnoise.reading.formats.on_terminal", lambda: True)
    monkeypatch.setattr("unnoise.reading.source.on_terminal", lambda: True)
    monkeypatch.setattr("unnoise.reading.badrows.on_terminal", lambda: True)
    assert sum("example.org" in fault(ask) for ask in asked) >= 6, "the control: on a terminal"


def test_a_first_line_that_nobody_named_is_no_label_of_a_sketch(tmp_path):
    """A file of one column needs no --column; without its header, a value would leave in every copy of the sketch."""
    path, output = tmp_path / "one.csv", tmp_path / "one.sketch"
    path.write_text("alice@example.org\nbob@example.org\n")
    for words, expected in (((), ()), (("-c", "alice@example.org"), ("alice@example.org",))):
        assert run_in(tmp_path, "sketch", path, *words, "-e", "1", "--force", "-o", output).returncode == 0
        assert un.Sketch.load(output).labels.column == expected
        assert (b"alice" in output.read_bytes()) is bool(expected)


def test_columns_of_a_schema_are_named_anywhere(tmp_path):
    path = write(tmp_path, "parquet")
    assert "did you mean x?" in fault(lambda: list(open_source([path]).batches(Wanted(columns=("X",)))))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT s AS x FROM {}",
        "select s as x from READ_CSV ('{path}')",
        'SELECT s AS x FROM "read_csv"(\'{path}\')',
        "SELECT s AS x FROM read_csv/* */('{path}')",
        "WITH data AS (SELECT s AS x FROM {}) SELECT x FROM data",
        "SELECT x FROM data WHERE x IN (SELECT s FROM {})",
        "CREATE TABLE t AS SELECT s AS x FROM {}",
        "SELECT s AS x FROM {} -- it's",
        "SELECT s AS x /* /* */ ' */ FROM {} --'",
        "SELECT $q$'$q$, s AS x FROM {} --'",
        "SELECT E'\\''' AS y, s AS x FROM {}",
        "SELECT '''' AS y, s AS x FROM {} --'",
        "SELECT s AS x FROM read_parquet('{path}')",
        "SELECT s AS x FROM read_ipc('{path}')",
        "SELECT s AS x FROM read_json('{path}')",
    ],
)
def test_a_query_reads_the_inputs_and_no_other_file(query, tmp_path):
    path, secret = write(tmp_path, "csv"), tmp_path / "secret.csv"
    secret.write_text("s\nalice\n")
    sql = query.replace("{}", f"read_csv('{secret}')").replace("{path}", str(secret))
    said = fault(lambda: list(open_source([path], sql=sql).batches(X)))
    assert "--sql reads the table data, which is all inputs, and no other file: leave out " in said


def test_the_functions_of_polars_that_read_files_are_known(tmp_path):
    """A name that polars takes for a function of tables is in the list; the control: it refuses all others."""
    words = ("csv", "ipc", "json", "ndjson", "parquet", "avro", "delta", "excel", "database", "lines", "text", "file")
    with pl.SQLContext({"data": pl.DataFrame({"x": [1]})}) as context:
        for name in (f"{verb}{word}" for verb in ("read_", "scan_", "") for word in words):
            with pytest.raises(Exception, match=r"No such file|is not a supported table function") as error:
                context.execute(f"SELECT * FROM {name}('{tmp_path / 'none'}')", eager=True)
            assert ("No such file" in str(error.value)) <= bool(FILES.fullmatch(name))
        for place in (tmp_path / "a.csv", "https://example.org/a.csv"):
            with pytest.raises(Exception, match="was not found"):
                context.execute(f"SELECT * FROM '{place}'", eager=True)


def test_a_text_may_speak_of_such_functions(tmp_path):
    path = write(tmp_path, "csv")
    for sql in (
        "SELECT x FROM data WHERE x != 'read_csv(y)'", "SELECT x FROM data WHERE x != 'it''s read_csv' AND x != '--'",
        'SELECT x, \'read_csv\' AS "it\'s" FROM data',
    ):  # fmt: skip
        assert items(open_source([path], sql=sql).batches(X))


def test_a_database_reads_no_other_file(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    secret = tmp_path / "secret.csv"
    secret.write_text("s\nalice\n")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as base:
        base.execute("CREATE TABLE t AS SELECT 'a' AS x; CREATE VIEW v AS SELECT x FROM t")
        base.execute(f"CREATE VIEW outside AS SELECT s AS x FROM read_csv('{secret}')")
    path = tmp_path / "a.duckdb"
    for sql in ("SELECT x FROM t", "SELECT x FROM v", "SELECT t.x FROM t JOIN v USING (x)"):
        assert items(open_source([path], sql=sql).batches(X)) == [("a",)]
    for sql in (
        f"SELECT s AS x FROM '{secret}'", f"SELECT s AS x FROM read_csv('{secret}')", "SELECT x FROM outside",
        f"SELECT content AS x FROM read_text('{secret}')", f"SELECT file AS x FROM glob('{tmp_path}/*')",
        f"SELECT x FROM t) LIMIT 0; SET enable_external_access=true; SELECT s AS x FROM (FROM '{secret}'",
    ):  # fmt: skip
        said = fault(lambda: list(open_source([path], sql=sql).batches(X)))  # noqa: B023
        assert "the query failed" in said
        assert "alice" not in said


def test_sqlite_attaches_no_other_file(tmp_path, monkeypatch):
    with closing(sqlite3.connect(tmp_path / "a.db")) as base, base:
        base.execute("CREATE TABLE t AS SELECT 'a' AS x")
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: opened.append(connect(*a, **k)) or opened[-1])
    assert items(open_source([tmp_path / "a.db"], sql="SELECT x FROM t").batches(X))
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        opened[-1].execute(f"ATTACH '{tmp_path / 'other.db'}' AS other")


def test_bad_names_and_options(tmp_path):
    write(tmp_path, "csv")
    assert "did you mean" in fault(lambda: open_source([tmp_path / "row.csv"]))
    assert "no file matches" in fault(lambda: open_source([str(tmp_path / "*.parquet")]))
    assert "is a folder" in fault(lambda: open_source([tmp_path]))
    assert ", ".join(FORMATS) in fault(lambda: open_source([tmp_path / "rows.csv"], format="excel"))
    (tmp_path / "mystery").write_text("x\n1\n")
    assert "add --format" in fault(lambda: open_source([tmp_path / "mystery"]))
    assert "must be the only input" in fault(lambda: open_source(["-", tmp_path / "rows.csv"]))
    assert "--sql needs files" in fault(lambda: open_source(["-"], sql="SELECT 1"))
    assert "write it to a file" in fault(lambda: open_source(["-"], format="parquet"))
    assert "an input is required" in fault(lambda: open_source([]))
    (tmp_path / "r.parquet").write_text("rubbish")
    assert "not readable as parquet" in fault(lambda: list(open_source([tmp_path / "r.parquet"]).batches(X)))
    write(tmp_path, "csv", packed=True)
    cut = tmp_path / "rows.csv.gz"
    cut.write_bytes(cut.read_bytes()[:-9])
    assert "damaged or cut short" in fault(lambda: list(open_source([cut]).batches(X)))


def test_bad_queries(tmp_path):
    path = write(tmp_path, "csv")
    for sql, expected in (
        ("SELECT nope FROM data", "the query failed"),
        ("SELECT x FROM table1", "the table is called data"),
        ("SELEC x", "the query failed"),
        ("SELECT x FROM data WHERE y > 3", "CAST(name AS BIGINT)"),
        ("SELECT user FROM data", 'a column of this name needs quotes: "user"'),
        ("SELECT nope(x) FROM data", "the query failed: unsupported function 'nope'"),
        ("DROP TABLE data", "no column 'x'; there is none"),
    ):
        source = open_source([path], sql=sql)
        assert expected in fault(lambda: list(source.batches(X)))  # noqa: B023
    unknown = open_source([path], sql="SELECT nope FROM data")
    assert "the table is called data" not in fault(lambda: list(unknown.batches(X)))  # the column is what is wrong


def test_a_text_in_a_column_of_integers(tmp_path):
    """SQLite does not insist on what a column declares."""
    path = tmp_path / "rows.db"
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE t (x INTEGER)")
        base.executemany("INSERT INTO t VALUES (?)", [(1,), ("secret",)])
    message = fault(lambda: list(open_source([path]).batches(X)))
    assert message.startswith(f"{path}: column x must hold integers, as it declares, got another value; cast it")
    assert "secret" not in message
    cast = message.partition("--sql: ")[2]
    (rows,) = open_source([path], sql=f"SELECT {cast} FROM t").batches(X)
    assert rows.columns[0].to_list() == ["1", "secret"]


def test_a_query_reads_files_in_the_format_given(tmp_path):
    """Names that tell another format, or none, do not count then."""
    for name in ("rows.log", "rows.txt"):
        (tmp_path / name).write_text("x\ty\na\t1\nb\t2\n")
        source = open_source([tmp_path / name], format="tsv", sql="SELECT y AS x FROM data")
        assert [row for rows in source.batches(X) for row in rows.columns[0].to_list()] == ["1", "2"]


@pytest.mark.parametrize("format", ["csv", "lines", "uniq", "ndjson"])
def test_standard_input_that_is_compressed_or_closed(format, monkeypatch):
    for pack in (gzip.compress, bz2.compress):
        packed = io.BufferedReader(io.BytesIO(pack(b"x\n1\n")))
        source = open_source(["-"], format=format, stream=packed)
        assert "standard input: must be text, got " in fault(lambda: list(source.batches(X)))  # noqa: B023
    monkeypatch.setattr("sys.stdin", None)  # as Python has it where the caller closed it
    assert "standard input is closed" in fault(lambda: open_source(["-"], format=format))


def test_a_file_that_begins_with_comments(tmp_path):
    path = tmp_path / "graph.tsv"
    path.write_text("# Nodes: 2\n# From\tTo\n1\t2\n")
    assert "leave comments out, grep -v '^#'" in fault(lambda: list(open_source([path]).batches(X)))
    message = fault(lambda: list(open_source([path], header=False).batches(Wanted(columns=("column_1",)))))
    assert "1 field expected, got 2" in message


def test_no_error_shows_a_value(tmp_path):
    """Readers, databases and queries quote the values that they stumble over, on terminals and into logs."""
    (tmp_path / "rows.csv").write_text("x\nsecret-1\nsecret-2\n")
    (tmp_path / "rows.csv.gz").write_text("secret\n1\n")
    packed = bytearray(gzip.compress(b"x\nsecret-1\n"))
    packed[-8] ^= 1  # another checksum
    (tmp_path / "sum.csv.gz").write_bytes(packed)
    with closing(sqlite3.connect(tmp_path / "rows.db")) as base, base:
        base.execute("CREATE TABLE t (x TEXT)")
        base.execute("INSERT INTO t VALUES (CAST(x'736563726574ff' AS TEXT))")  # "secret" and no UTF-8
    for name, sql, expected in (
        ("rows.csv", "SELECT CAST(x AS BIGINT) AS x FROM data", "conversion from `str` to `i64` failed in column 'x'"),
        ("rows.csv", "SELECT x, (SELECT x FROM data) AS y FROM data", "a value cannot be read or converted"),
        ("rows.db", None, "not readable as sqlite: a value cannot be read or converted"),
        ("rows.db", "SELECT x FROM t", "a value cannot be read or converted"),
        ("rows.csv.gz", None, "damaged or cut short"), ("sum.csv.gz", None, "damaged or cut short"),
    ):  # fmt: skip
        message = fault(lambda name=name, sql=sql: list(open_source([tmp_path / name], sql=sql).batches(X)))
        assert expected in message, name
        shown = message.replace(str(tmp_path), "")
        assert not re.search(r"sec|0x|\b2\b|b'", shown), shown


def test_a_file_that_may_not_be_read_is_called_so(tmp_path, monkeypatch):
    def refused(_):
        raise PermissionError(13, "Permission denied")

    write(tmp_path, "csv", packed=True)
    path = tmp_path / "rows.csv.gz"
    for module in (formats, badrows):
        monkeypatch.setattr(module, "open_bytes", refused)
    assert fault(lambda: list(open_source([path]).batches(X))) == f"{path}: Permission denied"


def test_a_number_that_json_does_not_have_is_named(tmp_path):
    for content, expected in (
        (b'{"x":1}\n{"x":NaN}\n', "row 2: not JSON (NaN or Infinity)"), (b'{"x":1e999}\n', "not readable as ndjson"),
    ):  # fmt: skip
        (tmp_path / "r.ndjson").write_bytes(content)
        assert expected in fault(lambda: list(open_source([tmp_path / "r.ndjson"]).batches(X)))
        stream = io.BytesIO(content)
        assert expected in fault(lambda s=stream: list(open_source(["-"], format="ndjson", stream=s).batches(X)))


def test_progress_totals(tmp_path):
    assert open_source([write(tmp_path, "parquet")]).rows() == len(ROWS)
    assert open_source([write(tmp_path, "arrow")]).rows() == len(ROWS)
    assert open_source([write(tmp_path, "csv", packed=True)]).rows() is None
    assert open_source(["-"], stream=io.BytesIO(b"x\n1\n")).rows() is None


@pytest.mark.parametrize("end", ["ndjson", "ndjson.gz", "ndjson.bz2", "-"])
def test_keys_of_json_may_come_late_or_never(tmp_path, end):
    """Of hundreds of rows the last alone has the key, and others change their type: as if they had been empty."""
    lines = [b'{"y": 1}'] * 300 + [b'{"y": "one", "x": "a"}', b'{"y": {"z": [1]}, "x": 7}']
    packed = {"gz": gzip.compress, "bz2": bz2.compress}.get(end.split(".")[-1], bytes)
    for data, expected in ((lines, [("a",), ("7",)]), (lines[:300], []), ([], [])):
        path = tmp_path / f"rows.{end if end != '-' else 'ndjson'}"
        path.write_bytes(packed(b"".join(line + b"\n" for line in data)))
        with path.open("rb") as stream:
            source = open_source(["-"], format="ndjson", stream=stream) if end == "-" else open_source([path])
            assert items(source.batches(X)) == expected


@pytest.mark.parametrize("format", ["parquet", "arrow", "db", "sql"])
@pytest.mark.parametrize("role", ["columns", "counts", "person", "group"])
def test_wrong_types_are_refused_with_and_without_rows(tmp_path, format, role):
    """Whether there is a row must not show in what is said of a column's type."""
    kind = pl.Float64 if role in ("columns", "counts") else pl.List(pl.Int64)
    if format == "db" and role in ("person", "group"):
        pytest.skip("SQLite has no column without a text")
    said = set()
    for rows in (0, 1):
        value = {"columns": 1.5, "counts": 1.5}.get(role, [1])
        frame = pl.DataFrame({"x": ["a"] * rows, "odd": [value] * rows}, schema={"x": pl.String, "odd": kind})
        path = tmp_path / f"rows.{ {'sql': 'parquet'}.get(format, format) }"
        path.unlink(missing_ok=True)
        if format == "db":
            with sqlite3.connect(path) as base:
                base.execute("CREATE TABLE t (x TEXT, odd REAL)")
                base.executemany("INSERT INTO t VALUES (?, ?)", frame.rows())
        else:
            frame.write_ipc(path) if format == "arrow" else frame.write_parquet(path)
        wanted = {"columns": ("x",), role: ("odd",) if role == "columns" else "odd"}
        source = open_source([path], sql="SELECT * FROM data" if format == "sql" else None)
        said.add(fault(lambda: list(source.batches(Wanted(**wanted)))))  # noqa: B023
    assert len(said) == 1
    assert "column odd must hold" in said.pop()


@pytest.mark.parametrize("name", ["order", "two words", 'q"q', "it's", "Größe"])
def test_the_cast_that_is_told_works(tmp_path, name):
    path = tmp_path / "rows.parquet"
    pl.DataFrame({name: [0.5, 1.5]}).write_parquet(path)
    wanted = Wanted(columns=(name,))
    _, sql = shlex.split(fault(lambda: list(open_source([path]).batches(wanted))).partition("cast it: ")[2])
    source = open_source([path], sql=sql.replace(", …", ""))
    assert items(source.batches(wanted)) == [("0.5",), ("1.5",)]


# ---------------------------------------------------------------- files that differ


def differing(folder: Path) -> Path:
    """Write a column x as large integers, as texts with and without rows, and as one that is stated to hold nothing."""
    large = [2**60 + i for i in range(500)]
    for name, values, kind in (
        ("integers", large, pl.Int64), ("texts", ["t", "u"], pl.String), ("no-texts", [], pl.String),
        ("nothing", [None] * 3, pl.Null),
    ):  # fmt: skip
        x = pl.Series("x", values, dtype=kind)
        table = pl.DataFrame([x]).with_columns(g=pl.lit("a"), p=pl.int_range(pl.len()))
        table.write_parquet(folder / f"{name}.parquet")
    return folder


WAYS = [(), ("--sketch",), ("--by", "g", "--groups", "a"), ("--person", "p", "--max-contributions", 2)]


@pytest.mark.parametrize("way", WAYS)
def test_files_of_other_types_are_refused_whether_or_not_they_hold_a_row(tmp_path: Path, way: tuple) -> None:
    """Hashes of texts and integers side by side became floats (4 items for 502); sketches refused where a row was."""
    differing(tmp_path)
    for other in ("texts", "no-texts"):
        done = run_in(
            tmp_path, "profile", "integers.parquet", f"{other}.parquet", "-c", "x", "-e", "1", "--json", *way,
            UNNOISE_LEDGER="off",
        )  # fmt: skip
        assert done.returncode == 2
        assert f"{other}.parquet: column x must hold integers, as in integers.parquet, got text" in done.stderr


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [("integers", "nothing"), ("nothing", "integers")])
def test_a_column_that_holds_nothing_goes_with_any_other(tmp_path: Path, way: tuple, names: tuple) -> None:
    files = [f"{name}.parquet" for name in names]
    done = run_in(
        differing(tmp_path), "profile", *files, "-c", "x", "-e", "20", "--json", *way, UNNOISE_LEDGER="off"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    answers = found["groups"]["a"]["answers"] if "groups" in found else found["answers"]
    assert answers["distinct"]["value"] == pytest.approx(500, abs=5)


def test_floats_name_no_groups(tmp_path: Path) -> None:
    """A column of years with gaps is one of floats to pandas: 2013.0 was nobody's --groups 2013, and all was 0."""
    pl.DataFrame({"x": [1, 2], "year": [2013.0, None]}).write_parquet(tmp_path / "a.parquet")
    command = ("profile", "a.parquet", "-c", "x", "-e", "1", "--by", "year", "--groups", "2013")
    done = run_in(tmp_path, *command, UNNOISE_LEDGER="off")
    assert done.returncode == 2
    assert "column year must hold text or integers to name groups, got floats" in done.stderr


def test_a_query_over_files_that_differ_says_in_what(tmp_path: Path) -> None:
    pl.DataFrame({"x": [1], "y": ["a"]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"x": ["1"], "y": ["a"]}).write_parquet(tmp_path / "b.parquet")
    pl.DataFrame({"y": ["a"], "x": [1]}).write_parquet(tmp_path / "c.parquet")
    for other, words in (("b", "column x to be Int64, as in {}/a.parquet, got String"), ("c", "x, y, in order, got y")):
        source = open_source([tmp_path / "a.parquet", tmp_path / f"{other}.parquet"], sql="SELECT x FROM data")
        with pytest.raises(InputError, match=re.escape(words.format(tmp_path))):
            list(source.batches(X))
