"""A collector, its workers and its clients killed during uploads: what was acknowledged is there, once.

Four sites send a report a day, each with noise of its own, and write down what the collector has acknowledged. Again
and again, as soon as there is one more, one of the processes is ended by SIGKILL at a random moment and started again.
``python _collector_kills.py --server FOLDER PORT forgetful`` is the broken variant: a collector that has lost its last
report when it starts again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from serve_tools import Server

SITES = 4
DAYS = [f"20{y:02d}-{month:02d}-{day:02d}" for y in range(10, 20) for month in range(1, 13) for day in range(1, 29)]
PATIENCE = 600.0
SENDER = """
import sys
import numpy as np
from pathlib import Path
from unnoise import Sketch
from unnoise.serve.client import Client
address, token, place, number, *days = sys.argv[1:]
place = Path(place)
with Client(address, token, tries=14) as client:
    there = {row["period"] for row in client.reports("reach")}
    for day in days:
        path = place / f"{number}-{day}.sketch"
        if day in there:
            continue
        if not path.exists():
            sketch = Sketch.hashed(2**12, epsilon=1, item_types=["int"])
            sketch.update(np.arange(1000))
            sketch.save(path)
        row = client.send("reach", path, period=day)
        with open(place / f"sent-{number}", "a") as log:
            log.write(f"{day},{row['digest']}\\n")
"""


class Forgetful(Server):
    """The broken collector."""

    def command(self) -> list[str]:
        return [__file__, "--server", str(self.folder), str(self.port), "forgetful"]


def forget() -> None:
    """Run a collector that loses its last report whenever it starts."""
    import sqlalchemy as sa

    from unnoise.cli import main
    from unnoise.serve import schema
    from unnoise.serve.store import Store

    real = Store.sweep

    def sweep(self: Any) -> None:
        with self.engine.begin() as connection:
            last = connection.execute(sa.select(sa.func.max(schema.reports.c.period))).scalar()
            newest = sa.select(schema.reports.c.digest).where(schema.reports.c.period == last)
            for digest in list(connection.execute(newest).scalars())[:1]:
                for table in reversed(schema.reports.metadata.sorted_tables):
                    for column in table.columns:
                        if column.name in ("report", "digest"):
                            connection.execute(table.delete().where(column == digest))
        real(self)

    Store.sweep = sweep  # type: ignore[method-assign]
    sys.argv = ["unnoise", "serve", "--data", sys.argv[2], "--port", sys.argv[3]]
    main()


class Place:
    """A collector and its sites."""

    def __init__(self, folder: Path, forgetful: bool) -> None:
        self.folder = folder
        self.server = (Forgetful if forgetful else Server)(folder / "collector")
        self.server.start()
        with self.server.client() as admin:
            admin.make_task("reach", epsilon="1", cells=2**12, item_types=["int"], every="day")
            self.tokens = [admin.make_token("site", f"site-{i}") for i in range(SITES)]
        self.clients = [self.sender(number) for number in range(SITES)]

    def sender(self, number: int) -> subprocess.Popen[bytes]:
        """Start a site."""
        words = [self.server.address, self.tokens[number], str(self.folder), str(number), *DAYS]
        return subprocess.Popen([sys.executable, "-c", SENDER, *words], stderr=subprocess.DEVNULL)

    def sent(self) -> list[list[str]]:
        """What each site was told is kept."""
        logs = [self.folder / f"sent-{number}" for number in range(SITES)]
        return [log.read_text().split() if log.exists() else [] for log in logs]

    def kill(self, rng: random.Random) -> str:
        """Kill somebody at a random moment after the next report, and start it again."""
        before, end = sum(map(len, self.sent())), time.monotonic() + PATIENCE
        while sum(map(len, self.sent())) == before and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.5))
        victim = rng.choice(("server", "worker", "client"))
        if victim == "server":
            self.server.stop(signal.SIGKILL)
            self.server.start()
        elif victim == "worker":
            assert self.server.process is not None
            found = subprocess.run(["pgrep", "-P", str(self.server.process.pid)], capture_output=True, text=True)
            for pid in found.stdout.split()[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        else:
            number = rng.randrange(SITES)
            self.clients[number].kill()
            self.clients[number].wait()
            self.clients[number] = self.sender(number)
        return victim

    def stop(self) -> None:
        """End everybody."""
        for client in self.clients:
            client.kill()
            client.wait()
        self.server.stop(signal.SIGKILL)


def collector_kills(number: int, seed: int, forgetful: bool = False) -> dict[str, Any]:
    """Kill so often; return who was killed, how many reports were acknowledged and kept, and what is wrong."""
    rng, folder = random.Random(f"{seed} collector"), Path(tempfile.mkdtemp(prefix="unnoise-collector-"))
    place = Place(folder, forgetful)
    try:
        victims = [place.kill(rng) for _ in range(number)]
        place.stop()
        place.server.start()
        with place.server.client() as admin:
            rows = admin.reports("reach")
        wrong = _wrong(place, rows)
        told = sum(map(len, place.sent()))
        if told < number / 2:
            wrong.append(f"only {told} reports were acknowledged: nothing was tested")
    finally:
        place.stop()
        shutil.rmtree(folder, ignore_errors=True)
    killed = {who: victims.count(who) for who in ("server", "worker", "client")}
    return {"kills": number, "killed": killed, "acknowledged": told, "kept": len(rows), "wrong": wrong}


def _wrong(place: Place, rows: list[dict[str, Any]]) -> list[str]:
    """Return what was lost, taken twice or damaged."""
    keys = [(row["site"], row["period"]) for row in rows]
    wrong = [f"taken twice: {key}" for key in set(keys) if keys.count(key) > 1]
    for number, acknowledged in enumerate(place.sent()):
        kept = {f"{row['period']},{row['digest']}" for row in rows if row["site"] == f"site-{number}"}
        wrong += [f"acknowledged and lost: site {number}, {one[:10]}" for one in acknowledged if one not in kept]
    for row in rows:
        file = place.server.folder / "files" / row["digest"][:2] / f"{row['digest']}.sketch"
        if not file.exists() or hashlib.sha256(file.read_bytes()).hexdigest() != row["digest"]:
            wrong.append(f"damaged: {row['site']} {row['period']}")
    return wrong


if __name__ == "__main__" and sys.argv[1:2] == ["--server"]:
    forget()
