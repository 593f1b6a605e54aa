"""Every format of the table gives the same rows: dialects, compression, databases, addresses, types of columns."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import sqlite3
import threading
import uuid
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from unnoise.cli._options import FORMAT_NAMES
from unnoise.errors import InputError
from unnoise.reading.formats import FORMATS
from unnoise.reading.released import read_noisy_counts
from unnoise.reading.source import Wanted, open_source

X = Wanted(columns=("x",))
VALUES = ["a", "b;c", "a", 'say "so"', "ü"]


def rows(source, wanted=X) -> list[object]:
    return [value for batch in source.batches(wanted) for value in list(batch.columns[0])]


def fault(call) -> str:
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_help_lists_the_formats_there_are() -> None:
    assert tuple(FORMATS) == FORMAT_NAMES
    suffixes = [suffix for format in FORMATS.values() for suffix in format.suffixes]
    assert len(set(suffixes)) == len(suffixes)


# ── dialects and compression ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("delimiter", "quote"), [(";", '"'), ("|", "'"), ("\t", '"'), (" ", '"')])
@pytest.mark.parametrize("piped", [False, True])
def test_delimiter_and_quote(tmp_path, delimiter, quote, piped) -> None:
    path = tmp_path / "x.csv"
    pl.DataFrame({"n": range(5), "x": VALUES}).write_csv(path, separator=delimiter, quote_char=quote)
    dialect = {"delimiter": delimiter, "quote": quote}
    where = ["-"] if piped else [path]
    assert rows(open_source(where, **dialect, stream=io.BytesIO(path.read_bytes()) if piped else None)) == VALUES
    assert "no column 'x'" in fault(lambda: rows(open_source([path], delimiter="#", quote=quote)))


@pytest.mark.parametrize("name", ['my "odd", name', "it's", "[bold]x[/bold]"])
@pytest.mark.parametrize("way", ["file", "stream", "packed", "query"])
def test_quotes_within_a_name_are_read_as_within_a_value(tmp_path, name, way) -> None:
    """Doubled in the file, single when asked for, however the file is read."""
    path = tmp_path / "x.csv"
    pl.DataFrame({name: VALUES, "n": range(5)}).write_csv(path, quote_style="always")
    text, asked = path.read_bytes(), name.replace('"', '""')
    source = {
        "file": lambda: open_source([path]),
        "stream": lambda: open_source(["-"], stream=io.BytesIO(text)),
        "packed": lambda: (Path(f"{path}.gz").write_bytes(gzip.compress(text)), open_source([f"{path}.gz"]))[1],
        "query": lambda: open_source([path], sql=f'select "{asked}" from data'),
    }[way]()  # fmt: skip
    assert rows(source, Wanted(columns=(name,))) == VALUES


def test_without_quotes_they_are_characters(tmp_path) -> None:
    (tmp_path / "x.tsv").write_text('x\ty\n"a\t1\nb"\t2\n')
    assert rows(open_source([tmp_path / "x.tsv"], quote=None)) == ['"a', 'b"']
    stream = io.BytesIO((tmp_path / "x.tsv").read_bytes())
    assert rows(open_source(["-"], format="tsv", quote=None, stream=stream)) == ['"a', 'b"']


def test_bad_signs_are_refused(tmp_path) -> None:
    for wrong in ("", ";;", "\n", "→"):
        assert "delimiter must be a single ASCII character" in fault(lambda: open_source(["-"], delimiter=wrong))  # noqa: B023
    assert "must differ" in fault(lambda: open_source(["-"], delimiter='"'))


@pytest.mark.parametrize("format", ["csv", "ndjson", "lines", "uniq"])
@pytest.mark.parametrize("packed", ["gz", "bz2", "zst"])
def test_compressed_files(tmp_path, format, packed) -> None:
    text = {
        "csv": "x\na\nb\na\n", "ndjson": '{"x":"a"}\n{"x":"b"}\n{"x":"a"}\n', "lines": "a\nb\na\n",
        "uniq": "      2 a\n      1 b\n",
    }[format]  # fmt: skip
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda b: pa.compress(b, codec="zstd", asbytes=True)}
    path = tmp_path / f"x{FORMATS[format].suffixes[0]}.{packed}"
    path.write_bytes(pack[packed](text.encode()))
    source = open_source([path])
    wanted = Wanted(columns=(source.kind.item or "x",), counts=source.kind.counts)
    assert rows(source, wanted) == (["a", "b"] if format == "uniq" else ["a", "b", "a"])
    path.write_bytes(path.read_bytes()[:-9])
    if (format, packed) != ("lines", "zst"):  # polars takes what it gets there
        assert str(path) in fault(lambda: rows(open_source([path]), wanted))


def test_what_uniq_writes(tmp_path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("      3 to be\n     12  or not\n      1 \n")
    (batch,) = open_source([path], format="uniq").batches(Wanted(columns=("line",), counts="count"))
    assert batch.columns[0].to_list() == ["to be", " or not", ""]
    assert batch.counts.tolist() == [3, 12, 1]
    path.write_text("  3 a\nb\n")
    message = fault(lambda: rows(open_source([path], format="uniq"), Wanted(columns=("line",), counts="count")))
    assert f"{path}, row 2: must be a number and a line" in message


def test_frequency_lists(tmp_path) -> None:
    path = tmp_path / "degrees.freqcount"
    path.write_text("# degree count\n1 3\n5,2\n")
    source = open_source([path])
    (batch,) = source.batches(Wanted(columns=(source.kind.item,), counts=source.kind.counts))
    assert batch.columns[0].tolist() == [0, 1, 2, 3, 4]
    assert batch.counts.tolist() == [1, 1, 1, 5, 5]
    path.write_text("# nothing\n")
    assert rows(open_source([path]), Wanted(columns=("item",), counts="frequency")) == []
    for line, expected in (("1 2 3", "must be two integers"), ("-1 2", "must be ≥ 0"), ("a b", "must be two integers")):
        path.write_text(f"1 1\n{line}\n")
        message = fault(lambda: rows(open_source([path]), Wanted(columns=("item",), counts="frequency")))
        assert f"{path}, row 2" in message
        assert expected in message


def test_frequency_lists_are_never_too_long(tmp_path) -> None:
    path = tmp_path / "kmers.freqcount"
    path.write_text(f"1 {10**11}\n{10**21} 3\n2 {10**30}\n")
    assert open_source([path]).pairs() == [(1, 10**11), (2**62, 3), (2, 2**62)]
    assert open_source([path]).rows() == 10**11 + 3 + 2**62, "for whoever waits for them"
    first = next(iter(open_source([path]).batches(Wanted(columns=("item",), counts="frequency"))))
    assert first.columns[0].tolist() == list(range(first.size))
    assert open_source(["-"], format="freqcount", stream=io.BytesIO(b"1 3\n")).pairs() == [(1, 3)]
    (tmp_path / "visits.csv").write_text("a\n1\n")
    assert open_source([tmp_path / "visits.csv"]).pairs() is None


def test_a_frequency_list_is_the_only_input(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.freqcount").write_text("1 100\n")
    assert "a frequency list must be the only input" in fault(lambda: open_source([str(tmp_path / "*.freqcount")]))


# ── databases ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def sqlite_file(tmp_path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE visits (who INTEGER, page TEXT, weight REAL)")
        base.executemany("INSERT INTO visits VALUES (?, ?, ?)", [(1, "a", 0.5), (2, "b", 1.5), (1, None, 2.5)])
    return path


@pytest.fixture
def duckdb_file(tmp_path) -> Path:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "shop.duckdb"
    with closing(duckdb.connect(str(path))) as base:
        base.execute("CREATE TABLE visits (who BIGINT, page VARCHAR, weight DOUBLE)")
        base.execute("INSERT INTO visits VALUES (1, 'a', 0.5), (2, 'b', 1.5), (1, NULL, 2.5)")
    return path


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_databases_are_read_by_their_own_types(kind, request) -> None:
    path = request.getfixturevalue(f"{kind}_file")
    whole = open_source([path])
    assert whole.columns() == ["who", "page", "weight"]
    assert rows(whole, Wanted(columns=("who",))) == [1, 2, 1]
    assert rows(whole, Wanted(columns=("page",))) == ["a", "b"]
    assert whole.item_types(Wanted(columns=("who", "page"))) == ("int", "str")
    sql = "SELECT CAST(who AS TEXT) AS who, count(*) AS n FROM visits GROUP BY 1 ORDER BY 1;"
    queried = open_source([path], sql=sql)
    (batch,) = queried.batches(Wanted(columns=("who",), counts="n"))
    assert batch.columns[0].to_list() == ["1", "2"]
    assert batch.counts.tolist() == [2, 1]
    assert "must hold text or integers" in fault(lambda: rows(whole, Wanted(columns=("weight",))))
    assert "no column 'pag'" in fault(lambda: rows(whole, Wanted(columns=("pag",))))
    assert "the query failed" in fault(lambda: rows(open_source([path], sql="SELECT nothing FROM nowhere"), X))


def test_types_do_not_depend_on_rows(sqlite_file) -> None:
    """An empty result has the types of a full one."""
    sql = "SELECT who, page FROM visits WHERE who > {}"
    full, empty = (open_source([sqlite_file], sql=sql.format(least)) for least in (0, 99))
    both = Wanted(columns=("who", "page"))
    assert full.item_types(both) == empty.item_types(both) == ("int", "str")
    assert rows(empty, both) == []


def test_a_database_of_several_tables_needs_a_query(sqlite_file) -> None:
    with closing(sqlite3.connect(sqlite_file)) as base, base:
        base.execute("CREATE TABLE people (who INTEGER)")
    message = fault(lambda: open_source([sqlite_file]).columns())
    assert "--sql" in message
    assert "people, visits" in message or "visits, people" in message


def test_a_database_is_not_written_to(sqlite_file) -> None:
    assert "the query failed" in fault(lambda: rows(open_source([sqlite_file], sql="DELETE FROM visits"), X))
    assert rows(open_source([sqlite_file]), Wanted(columns=("who",))) == [1, 2, 1]


# ── types of columns ──────────────────────────────────────────────────────────────────────────────────────────


def test_uuid_unsigned_and_bytes(tmp_path) -> None:
    ids = [uuid.UUID(int=5), uuid.UUID(int=2**127 + 3)]
    table = pa.table({
        "id": pa.array([i.bytes for i in ids], pa.uuid()), "big": pa.array([7, 2**63 + 5], pa.uint64()),
        "raw": pa.array([b"\xff\x00", b"ab"]),
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "t.parquet")
    source = open_source([tmp_path / "t.parquet"])
    assert rows(source, Wanted(columns=("id",))) == [str(i) for i in ids]
    assert rows(source, Wanted(columns=("big",))) == [7, 5 - 2**63]
    assert rows(source, Wanted(columns=("raw",))) == ["ff00", "6162"]
    assert source.item_types(Wanted(columns=("id", "big", "raw"))) == ("str", "int", "str")


@pytest.mark.parametrize("end", ["parquet", "arrow"])
def test_a_column_of_128_bits_hides_no_other(tmp_path, end) -> None:
    """Arrow, which is asked for the footer and for UUIDs, has no such integers."""
    frame = pl.DataFrame({"x": VALUES[:2], "n": pl.Series([2**100, 3], dtype=pl.Int128)})
    path = tmp_path / f"t.{end}"
    frame.write_parquet(path) if end == "parquet" else frame.write_ipc(path)
    assert rows(open_source([path])) == VALUES[:2]
    (batch,) = open_source([path]).batches(Wanted(columns=("x",), counts="n"))
    assert batch.counts.tolist() == [2**63 - 1, 3]
    message = fault(lambda: rows(open_source([path]), Wanted(columns=("n",))))
    assert "must hold text or integers, got Int128; cast it: --sql" in message


@pytest.mark.parametrize("end", ["parquet", "arrow"])
def test_types_that_can_be_stated_only(tmp_path, end) -> None:
    pairs = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"x": ["a"], "wide": pa.array([1], pa.decimal256(60, 2)), "map": pairs})
    path = _write(table, tmp_path / f"t.{end}")
    assert rows(open_source([path])) == ["a"]
    for name in ("wide", "map"):
        message = fault(lambda: rows(open_source([path]), Wanted(columns=(name,))))  # noqa: B023
        assert f"column {name} must hold text or integers, got" in message
        assert message.endswith("; write it as text or integers first")


@pytest.mark.parametrize("end", ["parquet", "arrow"])
def test_a_name_that_two_columns_have(tmp_path, end) -> None:
    path = _write(pa.table([["a"], ["b"]], names=["x", "x"]), tmp_path / f"t.{end}")
    assert "column 'x' must be there once, got several of this name" in fault(lambda: rows(open_source([path])))


def _write(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("text", ["9223372036854775808", "+99999999999999999999", "1" + 60 * "0"])
def test_counts_beyond_64_bits_are_the_largest(tmp_path, text) -> None:
    """To refuse them would tell of one row; what is no number is still refused."""
    path = tmp_path / "t.csv"
    wanted = Wanted(columns=("x",), counts="n")
    path.write_text(f"x,n\na,{text}\nb,-{text.lstrip('+')}\nc,\nd,7\n")
    (batch,) = open_source([path]).batches(wanted)
    assert batch.counts.tolist() == [2**63 - 1, max(-int(text), -(2**63) + (int(text) > 2**63)), 7]
    path.write_text(f"x,n\na,{text}\nb,{text}.5\n")
    assert "row 2: n must be a 64-bit integer" in fault(lambda: rows(open_source([path]), wanted))


def test_unsigned_items_stay_apart_with_int(tmp_path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"x": pl.Series([7, 2**63 + 5], dtype=pl.UInt64)}).write_parquet(path)
    assert rows(open_source([path]), Wanted(columns=("x",), integers=True)) == [7, 5 - 2**63]


# ── released histograms come from the same sources ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["csv", "lines", "parquet", "npy", "sqlite", "semicolon", "dat"])
def test_noisy_counts_come_from_any_source(tmp_path, kind) -> None:
    counts = [3, -1, 0, 12]
    frame = pl.DataFrame({"key": list("abcd"), "n": counts})
    path = tmp_path / f"h.{ {'lines': 'txt', 'semicolon': 'csv'}.get(kind, kind) }"
    options = {}
    if kind in ("parquet", "dat"):
        frame.write_parquet(path)
        options = {"format": "parquet"} if kind == "dat" else {}
    elif kind == "lines":
        path.write_text("".join(f"{n}\n" for n in counts))
    elif kind == "npy":
        np.save(path, np.array(counts))
    elif kind == "sqlite":
        with closing(sqlite3.connect(path)) as base, base:
            base.execute("CREATE TABLE h (key TEXT, n INTEGER)")
            base.executemany("INSERT INTO h VALUES (?, ?)", frame.rows())
    else:
        frame.write_csv(path, separator=";" if kind == "semicolon" else ",")
        options = {"delimiter": ";"} if kind == "semicolon" else {}
    assert read_noisy_counts(path, **options).tolist() == counts


def test_noisy_counts_without_header(tmp_path) -> None:
    (tmp_path / "h.csv").write_text("a,3\nb,-1\n")
    assert read_noisy_counts(tmp_path / "h.csv", header=False).tolist() == [3, -1]
    np.save(tmp_path / "f.npy", np.array([0.5, 1.5]))
    assert "continuous noise" in fault(lambda: read_noisy_counts(tmp_path / "f.npy"))


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["x.csv", "x.ndjson", "x.txt", "x.parquet", "x.arrow", "x.npy", "x.db", "x.csv.gz"])
def test_a_parse_error_names_the_file_and_dumps_nothing(tmp_path, name) -> None:
    path = tmp_path / name
    path.write_bytes(b"x\n\x1b[31mSECRET\xff\xfe\x00,,,,\n" * 20)
    source = open_source([path])
    message = fault(lambda: rows(source, Wanted(columns=(source.kind.item or "x",))))
    assert name in message
    assert "SECRET" not in message
    assert message.isprintable()


def test_a_long_row_of_a_stream_is_counted_and_not_shown() -> None:
    data = b"x,y\n" + b"a,b\n" * 7 + b"SECRET,c,d\n" + b"a,b\n"
    message = fault(lambda: rows(open_source(["-"], stream=io.BytesIO(data))))
    assert message.startswith("standard input, row 8: 2 fields expected, got 3")
    assert "SECRET" not in message


# ── addresses ─────────────────────────────────────────────────────────────────────────────────────────────────


class Store(BaseHTTPRequestHandler):
    """Serves the files of a folder by HTTP, with ranges, as object stores do."""

    folder: Path

    def _file(self) -> bytes | None:
        path = self.folder / self.path.partition("?")[0].rsplit("/", 1)[-1]
        return path.read_bytes() if path.is_file() else None

    def _send(self, body: bool) -> None:
        data = self._file()
        if data is None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        whole, asked = len(data), self.headers.get("Range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = (int(first), int(last or whole - 1)) if first else (max(whole - int(last), 0), whole - 1)
            data = data[begin : end + 1]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(data) - 1}/{whole}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", "Mon, 16 Nov 2026 06:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        if body:
            self.wfile.write(data)

    def do_GET(self) -> None:
        self._send(body=True)

    def do_HEAD(self) -> None:
        self._send(body=False)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def store(tmp_path):
    handler = type("Handler", (Store,), {"folder": tmp_path})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("format", ["parquet", "csv", "ndjson", "arrow"])
@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_polars_opens_addresses(tmp_path, store, monkeypatch, format, scheme) -> None:
    frame = pl.DataFrame({"x": VALUES})
    path = tmp_path / f"x.{format}"
    write = {"parquet": frame.write_parquet, "csv": frame.write_csv, "ndjson": frame.write_ndjson}
    write.get(format, frame.write_ipc)(path)
    address = f"{store}/x.{format}"
    if scheme == "s3":
        for name, value in (
            ("AWS_ENDPOINT_URL", store), ("AWS_ALLOW_HTTP", "true"), ("AWS_ACCESS_KEY_ID", "nobody"),
            ("AWS_SECRET_ACCESS_KEY", "nothing"), ("AWS_REGION", "us-east-1"),
        ):  # fmt: skip
            monkeypatch.setenv(name, value)
        address = f"s3://{format}/x.{format}"  # polars asks where it found the bucket last, and that server is gone
    assert rows(open_source([address])) == VALUES
    missing = address.replace("x.", "nothing.")
    assert missing in fault(lambda: rows(open_source([missing])))


@pytest.mark.parametrize(("name", "options"), [("a.ndjson", {}), ("a.csv", {"header": False})])
@pytest.mark.parametrize("text", ["", '{"x": 1}\n'])
def test_a_query_needs_columns_that_no_row_has_to_name(name: str, options: dict, text: str, tmp_path: Path) -> None:
    """Whether there was a row would show in the exit code: without one there are no columns."""
    (tmp_path / name).write_text(text)
    message = fault(lambda: rows(open_source([tmp_path / name], sql="SELECT * FROM data", **options), X))
    assert "named without a row" in message


def test_a_name_that_is_not_utf8_is_refused_as_such(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path / "visits") + b"\xff.csv")
    Path(odd).write_text("x\na\n")
    for name in (odd, str(tmp_path / "visits*")):
        assert "must be UTF-8" in fault(lambda name=name: open_source([name]))


def test_an_interval_beside_the_items_does_no_harm(tmp_path: Path) -> None:
    """polars imports no intervals of Arrow: they stand in nobody's way who does not ask for them."""
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "a.duckdb"
    with closing(duckdb.connect(str(path))) as base:
        base.execute("CREATE TABLE t AS SELECT 'a' AS x, INTERVAL 1 DAY AS stay")
    assert rows(open_source([path]), X) == ["a"]
    wanted = Wanted(columns=("stay",))
    assert "stay must hold text or integers, got Duration" in fault(lambda: rows(open_source([path]), wanted))


@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_views_of_short_texts_in_arrow_are_all_read(tmp_path: Path, compression: str, kind: str) -> None:
    """polars fails at the compressed ones in a thread of its own, and went on as if there were no rows."""
    from pyarrow import feather

    path = tmp_path / "views.arrow"
    column = pa.array([b"u1", b"u2"] * 500, getattr(pa, kind)())
    feather.write_feather(pa.table({"n": range(1000), "x": column}), path, compression=compression, chunksize=300)
    found = rows(open_source([path]))
    assert (len(found), len(set(found))) == (1000, 2)
    queried = rows(open_source([path], sql="SELECT x FROM data WHERE n >= 400"))
    assert (len(queried), set(queried)) == (600, set(found))


def test_a_long_list_of_columns_says_that_there_are_more(tmp_path: Path) -> None:
    pl.DataFrame({f"c{place}": [1] for place in range(13)}).write_parquet(tmp_path / "wide.parquet")
    wanted = Wanted(columns=("other",))
    assert fault(lambda: rows(open_source([tmp_path / "wide.parquet"]), wanted)).endswith("c10, c11, …")
