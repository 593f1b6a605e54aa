"""Kill a server of the share protocol at every step, start it again, and see what it remembers.

Run as ``python shares_kills.py MODE SIDE SEED TWICE``: the process forks a child for every run, which plays a whole
epoch on one server and dies by SIGKILL at its n-th system call that touches a file (a write is cut in half); the
parent then opens the directory, goes on, and compares. Prints one JSON line. MODE is "honest", or a broken server
that must be found.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

from unnoise.protocols.shares import Server, Site, Task, combine
from unnoise.protocols.shares.server import Disk

CALLS = ("open", "write", "fsync", "replace", "unlink")
CELLS = 16
FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""In memory where that is possible: a killed process loses nothing there either, and waits for no disk."""


def die_at(step: int) -> None:
    """Let this process die at its step-th call of CALLS."""
    left = [step]

    def wrapped(name):
        real = getattr(os, name)

        def call(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, wrapped(name))


def break_server(mode: str) -> None:
    """Break the server in a way that the test must notice."""
    if mode == "unstored":  # sends before it stores
        Server.answer = lambda self, agreement: self._noised(self._require_agreed(json_head(agreement)))
    elif mode == "torn":  # writes in place, so that a kill leaves half a file
        def write(self, name, data):
            handle = os.open(self.root / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(handle, data)
            os.close(handle)

        Disk.write = write


def json_head(message: bytes):
    from unnoise.protocols.shares.task import unpack

    return unpack(message, "agreement")[0]


def epoch(server: Server, shares, agreement: bytes, send) -> bytes:
    """Play the epoch; every step may have happened before."""
    for message in shares:
        server.receive(message)
    answer = server.answer(agreement)
    send(answer)
    again = server.answer(agreement)
    assert again == answer
    server.close()
    send(server.answer(agreement))
    return answer


def run(mode: str, side: str, step: int, later: int | None, epsilon: float) -> tuple[bool, list[str], int]:
    """One run; returns whether the last child lived, what went wrong, and the kills."""
    task = Task.known(CELLS, epsilon=epsilon, epoch="e", sums=1)
    counts = np.random.default_rng(step).integers(0, 50, (3, CELLS))
    parts = []
    for i, name in enumerate("aab"):  # the second report of site a replaces the first
        site = Site(task, name)
        site.update(np.arange(CELLS), counts[i])
        parts.append(site.split())
    other_side = "difference" if side == "seed" else "seed"
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="unnoise-kills-", dir=FOLDER) as folder:
        root = Path(folder)
        with Server.create(root / "other", task, other_side) as other:
            for part in parts:
                other.receive(getattr(part, other_side))
            word = other.agree([parts[1].report, parts[2].report])
            mine = [getattr(part, side) for part in parts]
            sent: list[bytes] = []
            lived, kills = True, 0
            for at in (step, later):
                if at is not None:
                    lived, answers = child(root / "mine", task, side, mine, word, mode, at)
                    sent += answers
                    kills += not lived
            try:
                with Server.create(root / "mine", task, side) as server:
                    last = epoch(server, mine[1:], word, sent.append) if not (root / "mine/closed").exists() else (
                        server.answer(word))
                    kept = server._store.names("reports", ".share")
                    total = combine(task, *((last, other.answer(server.agree([p.report for p in parts[1:]])))
                                            if side == "seed" else
                                            (other.answer(server.agree([p.report for p in parts[1:]])), last)))
                    if len(server._sums) != 1 or len(server._reports) != 2:
                        wrong.append(f"{len(server._sums)} sums, {len(server._reports)} reports")
            except Exception as error:
                return lived, [f"step {step}, {later}: {type(error).__name__}: {error}"], kills
            if any(answer != last for answer in sent):
                wrong.append(f"step {step}, {later}: two noises for one sum")
            if kept:
                wrong.append(f"step {step}, {later}: shares kept after the epoch: {kept}")
            if epsilon >= 40 and (total.release().counts != counts[1:].sum(axis=0)).any():
                wrong.append(f"step {step}, {later}: counted twice or lost")
    return lived, wrong, kills


def child(directory: Path, task: Task, side: str, mine, word: bytes, mode: str, step: int) -> tuple[bool, list[bytes]]:
    """Play the epoch in a fork that dies at a step; return whether it lived, and what it had sent."""
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(source)
        real = os.write

        def send(answer: bytes) -> None:
            real(sink, len(answer).to_bytes(8, "little") + answer)

        try:
            break_server(mode)
            die_at(step)
            with Server.create(directory, task, side) as server:
                if server._sums:
                    send(server.answer(word))
                else:
                    for message in mine if not server._reports else mine[1:]:
                        server.receive(message)
                    epoch(server, mine[1:], word, send)
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        data = stream.read()
    status = os.waitpid(pid, 0)[1]
    answers = []
    while data:
        size = int.from_bytes(data[:8], "little")
        answers.append(data[8 : 8 + size])
        data = data[8 + size :]
    return not os.WIFSIGNALED(status), answers


def main() -> None:
    mode, side, seed, twice = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if mode != "honest":
        break_server(mode)
    kills, steps, wrong = 0, 0, []
    for step in range(1, 1000):
        lived, found, killed = run(mode, side, step, None, 40 if step % 2 else 1)
        kills, wrong = kills + killed, wrong + found
        if lived or (found and mode != "honest"):  # one is enough of a broken server
            steps = step - 1
            break
    rng = random.Random(seed)
    for _ in range(twice):
        _, found, killed = run(mode, side, rng.randint(1, steps), rng.randint(1, steps), rng.choice([1, 40]))
        kills, wrong = kills + killed, wrong + found
    print(json.dumps({"kills": kills, "steps": steps, "wrong": wrong}))


if __name__ == "__main__":
    main()
