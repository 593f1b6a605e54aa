"""The pages that people see: tasks, and the answers of one task (templates and scripts beside this file)."""

from __future__ import annotations

import csv
import io
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

from anyio import to_thread
from jinja2 import Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ..answers.questions import tidied
from ..layout import Account, guarantee
from ..noise import DiscreteLaplace
from .access import Visitor, allowed
from .app import service_of, task_of, visitor_of
from .guard import COOKIE, Problem
from .store import Store
from .sums import sums_of
from .tasks import Task

__all__ = ["page_routes"]

LONGEST_FORM = 1 << 12


def page_routes() -> list[BaseRoute]:
    """The addresses of the pages."""
    return [
        Route("/", _tasks_page), Route("/view/{task}", _view), Route("/login", _login),
        Route("/login", _enter, methods=["POST"]), Route("/logout", _leave, methods=["POST"]),
        Route("/tasks/{task}/answer.csv", _csv), Route("/tasks/{task}/report.html", _report),
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _templates() -> Environment:
    return Environment(loader=PackageLoader("unnoise.serve"), autoescape=True, trim_blocks=True)


def _page(request: Request, name: str, status: int = 200, **values: Any) -> Response:
    return HTMLResponse(_templates().get_template(name).render(root=_root(request), **values), status)


def _root(request: Request) -> str:
    """The way from a page to where the collector begins: a proxy may have put it under a prefix."""
    return "../" * (request.url.path.count("/") - 1) or "./"


async def _visitor(request: Request) -> Visitor | None:
    try:
        return await visitor_of(request, "see answers")
    except Problem:
        return None


async def _tasks_page(request: Request) -> Response:
    visitor = await _visitor(request)
    if visitor is None:
        return RedirectResponse(f"{_root(request)}login", 303)
    store = service_of(request).store
    listed = []
    for task in await to_thread.run_sync(store.tasks):
        rows = await to_thread.run_sync(_sent, store, task)
        last = max((row["received"] for row in rows), default="")
        sites = len({row["site"] for row in rows})
        listed.append({"task": task, "sites": sites, "reports": len(rows), "last": last[:10]})
    return _page(request, "tasks.html", visitor=visitor, tasks=listed, address=str(request.base_url).rstrip("/"))


async def _view(request: Request) -> Response:
    visitor = await _visitor(request)
    if visitor is None:
        return RedirectResponse(f"{_root(request)}login", 303)
    task = await task_of(request)
    rows = await to_thread.run_sync(_sent, service_of(request).store, task)
    return _page(
        request, "view.html", visitor=visitor, task=task, promise=_promise(task), guarantee=_guarantee(task, rows),
        ledger=_ledger(task, rows),
    )  # fmt: skip


def _sent(store: Store, task: Task) -> list[dict[str, Any]]:
    """The reports of a task that were released: by their sites, or in a sum of the two servers."""
    if task.way != "two-servers":
        return list(store.reports(task.id))
    return [
        {"site": site, "received": one["asked"], "sum": one["digest"]}
        for one in sums_of(store, task.id) for site in one["sites"]
    ]  # fmt: skip


def _promise(task: Task) -> str:
    unit = (
        f"person with at most {task.max_contributions} occurrences in a report"
        if task.max_contributions
        else "occurrence"
    )
    fewest = _number_of(task.min_sites, "site")
    return f"ε = {task.epsilon} per {unit} · {task.layout.cells:,} cells · answered from {fewest} on"


def _guarantee(task: Task, rows: list[dict[str, Any]]) -> str:
    """The promise about everything that was sent, in the words of every sketch."""
    account = Account(calls=len(rows) if task.max_contributions else 0)
    added = len(rows) if task.way == "two-servers" else 0
    return guarantee(DiscreteLaplace(task.noise.epsilon), task.layout, account, max(1, len(rows)), added)


def _number_of(many: int, what: str) -> str:
    return f"{many} {what}{'' if many == 1 else 's'}"


def _ledger(task: Task, rows: list[dict[str, Any]]) -> str:
    """What has been released so far, and what more answers cost."""
    sent = _number_of(len(rows), "report")
    if task.way == "two-servers":
        asked, most = _number_of(len({row["sum"] for row in rows}), "sum"), _number_of(task.most_sums, "sum")
        return f"{asked} of {sent} released. Every sum asked for is one more release; a report may be in {most}."
    return f"{sent} released by their sites, each once. Answers for any subset, now and later, cost nothing more."


async def _login(request: Request) -> Response:
    return _page(request, "login.html", wrong=False)


async def _enter(request: Request) -> Response:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_FORM:
            raise Problem(413, "too long", "a token is shorter")
    token = parse_qs(body.decode("ascii", "replace")).get("token", [""])[0].strip()
    visitor = await to_thread.run_sync(service_of(request).store.visitor, token)
    if visitor is None or not allowed(visitor, "see answers"):
        return _page(request, "login.html", 401, wrong=True)
    response = RedirectResponse(_root(request), 303)
    response.set_cookie(  # for this path alone: others may be somebody else's
        COOKIE, token, path=None, httponly=True, samesite="strict", secure=request.app.state.secure,
        max_age=30 * 86400,
    )  # fmt: skip
    return response


async def _leave(request: Request) -> Response:
    response = RedirectResponse(f"{_root(request)}login", 303)
    response.set_cookie(COOKIE, "", path=None, max_age=0)
    return response


# ── exports ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _asked(request: Request, work: str) -> dict[str, Any]:
    """Wait for an answer about the sites and periods in the address."""
    await visitor_of(request, "see answers")
    task, service = await task_of(request), service_of(request)
    rows = await service.choose(task, request.query_params.getlist("site"), request.query_params.getlist("period"))
    job = await service.answer(work, task, rows, patience=300)
    if job["state"] != "done":
        raise Problem(422, "no answer", str((job["answer"] or {}).get("error", "it takes too long")))
    answer: dict[str, Any] = job["answer"]
    return answer


async def _csv(request: Request) -> Response:
    answer = await _asked(request, "answer")
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(["question", "count", "value", "low", "high", "mark"])
    rows = [("reach", "", answer["reach"]), ("total", "", answer["total"])]
    rows += [(name, n["count"], n) for name in ("at_least", "exactly") for n in answer[name]]
    for name, count, n in rows:
        numbers = (n[key] if n[key] is None else tidied(n[key]) for key in ("value", "low", "high"))
        table.writerow([name, count, *numbers, n["mark"]])
    return _attachment(out.getvalue(), "text/csv; charset=utf-8", f"{request.path_params['task']}.csv")


async def _report(request: Request) -> Response:
    answer = await _asked(request, "report")
    return _attachment(answer["html"], "text/html; charset=utf-8", f"{request.path_params['task']}.html")


def _attachment(text: str, media_type: str, name: str) -> Response:
    return Response(text, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
