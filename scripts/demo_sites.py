"""Twenty sites, two servers and a collector on this machine: start them, let the sites send, print the page's address.

Two tasks are shown: sealed sketches over three days, merged; and shares of cells, added up by the two servers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

import unnoise as un
from unnoise.protocols.shares import Site
from unnoise.serve.client import Client
from unnoise.serve.tasks import Task

SITES = (
    "amsterdam", "athens", "berlin", "bern", "brno", "cork", "gdansk", "ghent", "helsinki", "lisbon", "lyon", "madrid",
    "oslo", "paris", "porto", "prague", "riga", "rome", "sofia", "vienna",
)  # fmt: skip
DAYS = ("2026-11-14", "2026-11-15", "2026-11-16")
USERS, DAILY = 200_000, 20_000
TASK = {"epsilon": "1", "cells": 2**17, "item_types": ["int"], "noun": "user"}


def start(processes: list[subprocess.Popen[bytes]], folder: Path, *options: str) -> str:
    """Start a server on a free port, one of the processes to end with this one, and wait until it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "unnoise", "serve", "--data", str(folder), "--port", str(port), *options]
    with open(f"{folder}.log", "wb") as log:
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log))
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{address}/readyz", trust_env=False).status_code == 200:
                return address
        time.sleep(0.1)
    raise SystemExit(f"a server did not start: see {folder}.log")


def token(folder: Path) -> str:
    return (folder / "administrator.token").read_text()


def send_sealed(address: str, admin: Client, place: Path, rng: np.random.Generator) -> None:
    """Every site sends one sealed sketch a day."""
    admin.make_task("campaign", title="Autumn campaign: sealed sketches, merged", every="day", **TASK)
    for site in SITES:
        with Client(address, admin.make_token("site", site)) as client:
            for day in DAYS:
                sketch = un.Sketch.hashed(2**17, epsilon=1, item_types=["int"])
                sketch.update(rng.integers(0, USERS, DAILY))
                sketch.save(place / "day.sketch")
                client.send("campaign", place / "day.sketch", period=day)
        print(f"  {site} has sent its sketches", flush=True)


def send_shares(
    addresses: list[str], folders: list[Path], admin: Client, place: Path, rng: np.random.Generator
) -> None:
    """Every site sends one share to each server."""
    values = {**TASK, "title": "Autumn campaign: shares, added up by two servers", "way": "two-servers", "min_sites": 5}
    task = Task.from_dict({"id": "shares", **values})
    admin.make_task("shares", **values)
    admin.reports("shares")  # makes the task known to both servers
    makers = [Client(address, token(folder)) for address, folder in zip(addresses, folders)]
    for name in SITES:
        site = Site(task.for_servers("once"), name)
        site.update(rng.integers(0, USERS, DAILY))
        shares = site.split()
        for maker, address, message in zip(makers, addresses, (shares.seed, shares.difference)):
            (place / "share").write_bytes(message)
            with Client(address, maker.make_token("site", name)) as client:
                client.send_share(place / "share")
    admin.ask_for_sum("shares")
    print(f"  {len(SITES)} sites have sent their shares, and all of them were added up", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="leave when everything has been sent")
    once = parser.parse_args().once
    rng, processes = np.random.default_rng(2024), list[subprocess.Popen[bytes]]()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # by way of finally, as Ctrl-C
    with tempfile.TemporaryDirectory(prefix="unnoise-sites-") as name:
        place = Path(name)
        folders, addresses, servers = [place / "seed", place / "difference"], [], []
        try:
            for folder in folders:
                address = start(processes, folder, "--side", folder.name)
                addresses.append(address)
                with Client(address, token(folder)) as admin:
                    servers.append({"url": address, "token": admin.make_token("collector")})
            (place / "servers.json").write_text(json.dumps({"servers": servers}))
            collector = start(processes, place / "data", "--servers", str(place / "servers.json"))
            print(f"collector {collector}, servers {' and '.join(addresses)}", flush=True)
            with Client(collector, token(place / "data")) as admin:
                send_shares(addresses, folders, admin, place, rng)
                send_sealed(collector, admin, place, rng)
                reach = admin.collect("shares")["reach"]
                print(f"reach by two servers: {reach['value']:,.0f} ({reach['low']:,.0f} – {reach['high']:,.0f})")
                link = f"{collector}/login#{admin.make_token('administrator')}"
            print(f"\nThe page: {link}\n", flush=True)
            if not once:
                print("Ctrl-C ends it.", flush=True)
                processes[-1].wait()
        except KeyboardInterrupt:
            print()
        finally:
            for process in processes:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
