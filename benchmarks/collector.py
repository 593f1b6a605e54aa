"""The collector under load, and on WFA's scenarios end to end over HTTP.

* load: 500 reports of 2^20 cells from 50 clients, verified, against the same server storing the same bytes unverified;
* scenarios: WFA's five reach scenarios (20 sites) and three of frequency (10), sites as processes of their own that
  send over HTTP. A person counts once a site in the first, up to three times in the others; the noise is that of ln 3.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from _report import machine, write_section
from _wfa import FREQUENCY, REACH, SETS, Scenario, histogram, shuffle_distance

import unnoise as un
from serve_tools import Server

# ── a server that may leave verification out, for comparison ──────────────────────────────────────────────────────


def run_server(folder: str, port: int, verified: bool) -> None:
    """Run a collector in this process."""
    import uvicorn

    from unnoise.guard import new_identity
    from unnoise.serve.app import make_app
    from unnoise.serve.run import _first_token
    from unnoise.serve.service import Service
    from unnoise.serve.store import Store

    async def trusting(self: Service, upload: Path, task: object) -> dict[str, object]:
        return {"power": "1", "noises": [new_identity().hex()]}

    if not verified:
        Service._verify = trusting  # type: ignore[method-assign, assignment]
    store = Store(folder)
    _first_token(store)
    uvicorn.run(make_app(store), host="127.0.0.1", port=port, log_level="error", access_log=False)


def _children(server: Server) -> list[str]:
    return subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True).stdout.split()


class Measured(Server):
    """A server whose verification can be left out, and whose memory is watched."""

    def __init__(self, folder: Path, verified: bool) -> None:
        super().__init__(folder)
        self.verified = verified

    def command(self) -> list[str]:
        return [__file__, "--server", str(self.folder), str(self.port), "verified" if self.verified else "trusting"]

    def memory(self) -> float:
        """MB of the server and its workers, shared pages counted once for each (an upper bound)."""
        total = 0
        for pid in [str(self.process.pid), *_children(self)]:
            try:
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            total += int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1])
        return total / 1024


# ── load ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def prepared(place: Path, number: int, cells: int) -> list[Path]:
    """Gzipped reports, each with noise of its own."""
    rng = np.random.default_rng(1)
    paths = []
    for i in range(number):
        sketch = un.Sketch.hashed(cells, epsilon=1, item_types=["int"])
        sketch.update(rng.integers(0, 200_000, 50_000))
        path = place / f"{i}.sketch"
        sketch.save(path)
        data = path.read_bytes()
        packed = place / f"{i}.{hashlib.sha256(data).hexdigest()}"
        packed.write_bytes(gzip.compress(data, 1, mtime=0))
        path.unlink()
        paths.append(packed)
    return paths


async def upload(address: str, tokens: list[str], reports: list[tuple[int, Path]]) -> float:
    """Send reports from as many clients as there are tokens; return the seconds it took."""
    waiting = list(reports)

    async def work(token: str) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=300, trust_env=False) as client:
            while waiting:
                number, path = waiting.pop()
                digest = path.name.split(".")[1]
                day = f"{2000 + number // 300}-{1 + number // 25 % 12:02d}-{1 + number % 25:02d}"
                answer = await client.put(
                    f"/tasks/load/reports/{digest}", params={"period": day}, content=path.read_bytes(),
                    headers={"Authorization": f"Bearer {token}", "Content-Encoding": "gzip"},
                )  # fmt: skip
                assert answer.status_code == 201, answer.text

    began = time.perf_counter()
    await asyncio.gather(*(work(token) for token in tokens))
    return time.perf_counter() - began


TURNS = 5
"""How often the two servers take turns, so that both meet the same weather."""


def load(place: Path, reports: int, clients: int, cells: int) -> list[str]:
    paths = prepared(place, reports, cells)
    packed = sum(path.stat().st_size for path in paths) / len(paths)
    servers = {verified: Measured(place / f"load-{verified}", verified) for verified in (False, True)}
    tokens, seconds = {}, {False: 0.0, True: 0.0}
    for verified, server in servers.items():
        server.start()
        with server.client() as admin:
            admin.make_task("load", epsilon="1", cells=cells, item_types=["int"], every="day")
            tokens[verified] = [admin.make_token("site", f"site-{i}") for i in range(clients)]
    peak = _watch(servers[True])
    numbered = list(enumerate(paths))
    for turn in range(TURNS):
        for verified, server in servers.items():
            seconds[verified] += asyncio.run(upload(server.address, tokens[verified], numbered[turn::TURNS]))
    memory = peak()
    with servers[True].client() as admin:
        rows = admin.reports("load")
        kept = len({row["digest"] for row in rows})
        assert kept == len(rows) == reports
        began = time.perf_counter()
        admin.collect("load", sites=["site-0"])
        answered = time.perf_counter() - began
    for server in servers.values():
        server.stop()
    ratio = seconds[False] / seconds[True]
    return [
        f"| load, {reports} reports of {cells:,} cells from {clients} clients | result | target |", "|---|---|---|",
        f"| reports kept, each once | {kept} of {reports} | all |",
        f"| throughput verified / unverified | {ratio:.2f} ({reports / seconds[True]:.1f} reports/s) | ≥ 0.3 |",
        f"| memory of server and workers | {memory:.0f} MB | ≤ 500 MB |",
        f"| a report on the wire (file {8 * cells / 1e6:.1f} MB) | {packed / 1e6:.2f} MB | about 1 MB |",
        f"| answer about one site's reports | {answered:.1f} s | |",
    ]  # fmt: skip


def _watch(server: Measured):
    """Watch the memory beside; return a function that gives the peak so far."""
    peak = [0.0]

    def look() -> None:
        while server.process.poll() is None:
            peak[0] = max(peak[0], server.memory())
            time.sleep(0.5)

    ThreadPoolExecutor(1).submit(look)
    return lambda: peak[0]


# ── scenarios ─────────────────────────────────────────────────────────────────────────────────────────────────────

LOG_3 = 1.0986122886681098
SITE = """
import sys, numpy as np, unnoise as un
from unnoise.serve.client import Client
address, token, task, items, target, epsilon, most = sys.argv[1:]
sketch = un.Sketch.hashed(2**17, epsilon=epsilon, item_types=["int"], max_contributions=int(most))
sketch.update({"person": np.load(items)}, person="person")
sketch.save(target)
with Client(address, token) as client:
    client.send(task, target)
"""


def scenarios(place: Path, runs: int) -> list[str]:
    server = Server(place / "scenarios")
    server.start()
    lines = ["| WFA scenario over HTTP | sites | RMSE of reach | shuffle distance | last report to answer, s |",
             "|---|---|---|---|---|"]  # fmt: skip
    with server.client() as admin:
        tokens = [admin.make_token("site", f"site-{i}") for i in range(20)]
        for name in (*REACH, *FREQUENCY):
            most = 3 if name in FREQUENCY else 1
            found = [_answered(place, server.address, admin, tokens, name, run, most) for run in range(runs)]
            errors, shuffles, waits = zip(*found)
            rmse = float(np.sqrt(np.mean(np.square(errors))))
            shuffle = f"{np.mean(shuffles):.3f}" if most > 1 else "–"
            lines.append(f"| {name} | {SETS[name]} | {rmse:.1%} ({runs} runs) | {shuffle} | {max(waits):.1f} |")
            print(lines[-1], flush=True)
    server.stop()
    return lines


def _answered(
    place: Path, address: str, admin: Any, tokens: list[str], name: str, run: int, most: int
) -> tuple[float, float, float]:
    """One run: relative error of reach, shuffle distance of the frequencies, seconds from the last report."""
    task, epsilon = f"{name.replace(' ', '-').replace(',', '')}-{run}", repr(most * LOG_3)
    admin.make_task(task, epsilon=epsilon, cells=2**17, item_types=["int"], max_contributions=most)
    drawn = Scenario.draw(name, np.random.default_rng(run))
    rows = [np.repeat(items, counts) for items, counts in zip(drawn.items, drawn.counts)]
    jobs = [(place, address, task, *job, epsilon, most) for job in zip(tokens, rows, range(len(rows)))]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: _site(*job), jobs))
    began = time.perf_counter()
    answer = admin.collect(task)
    waited = time.perf_counter() - began
    truth = drawn.frequencies(len(rows))
    seen = {each["count"]: each["value"] for each in answer["exactly"]}
    above = next(each["value"] for each in answer["at_least"] if each["count"] == 10)
    frequencies = np.array([*(seen[t] for t in range(1, 10)), above])
    return answer["reach"]["value"] / truth.size - 1, shuffle_distance(frequencies, histogram(truth)), waited


def _site(
    place: Path, address: str, task: str, token: str, items: np.ndarray, number: int, epsilon: str, most: int
) -> None:
    source, target = place / f"{number}.npy", place / f"{number}.sketch"
    np.save(source, items)
    target.unlink(missing_ok=True)
    words = [address, token, task, str(source), str(target), epsilon, str(most)]
    subprocess.run([sys.executable, "-c", SITE, *words], check=True)


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "--server":
        return run_server(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "verified")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    parser.add_argument("--parts", nargs="+", default=["load", "scenarios"])
    parser.add_argument("--reports", type=int, default=500)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--cells", type=int, default=2**20)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unnoise-collector-") as name:
        place = Path(name)
        parts = {
            "load": lambda: load(place, options.reports, options.clients, options.cells),
            "scenarios": lambda: scenarios(place, options.runs),
        }  # fmt: skip
        texts = {part: "\n".join(parts[part]()) for part in options.parts}
    for part, text in texts.items():
        print(text)
        if options.write:
            about = machine("starlette", "uvicorn", "sqlalchemy")
            write_section(f"collector-{part}", f"### The collector: {part}\n\n{text}\n\n{about}")
    return None


if __name__ == "__main__":
    main()
