"""The OpenAPI documents of the collector and of a server of shares."""

from __future__ import annotations

from typing import Any

from .access import ROLES
from .tasks import EVERY, WAYS, Task

__all__ = ["document"]

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}

_TYPES: dict[str, dict[str, Any]] = {
    "id": {"type": "string"}, "epsilon": {"type": "string", "example": "1"}, "title": {"type": "string"},
    "kind": {"type": "string", "enum": ["hashed", "known"]}, "cells": {"type": "integer"},
    "levels": {"type": "integer"}, "hash_seed": {"type": "integer"},
    "item_types": {"type": "array", "items": {"type": "string", "enum": ["int", "str"]}},
    "max_contributions": {"type": ["integer", "null"]}, "every": {"type": "string", "enum": list(EVERY)},
    "min_sites": {"type": "integer"}, "noun": {"type": "string"}, "way": {"type": "string", "enum": list(WAYS)},
    "most_sums": {"type": "integer"}, "occurrences": {"type": ["integer", "null"]},
}  # fmt: skip

_NUMBER = {
    "type": "object",
    "properties": {
        "value": {"type": ["number", "null"]}, "low": {"type": ["number", "null"]},
        "high": {"type": ["number", "null"]}, "marked": {"type": "boolean"},
        "mark": {"type": "string"},
    },
}  # fmt: skip


def _parameter(name: str, where: str, text: str, **schema: Any) -> dict[str, Any]:
    return {
        "name": name, "in": where, "required": where == "path", "description": text,
        "schema": schema or {"type": "string"},
    }  # fmt: skip


def _operation(
    text: str, role: str, answers: dict[str, str], *extra: dict[str, Any], body: Any = None
) -> dict[str, Any]:
    responses: dict[str, Any] = {code: {"description": words} for code, words in answers.items()}
    responses["default"] = {"description": "What went wrong.", "content": _PROBLEM}
    operation: dict[str, Any] = {"summary": text, "description": f"For: {role}.", "responses": responses}
    if extra:
        operation["parameters"] = list(extra)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    if role != "anyone":
        operation["security"] = [{"token": []}]
    return operation


_TASK = _parameter("task", "path", "Name of the task.")
_DIGEST = _parameter("digest", "path", "SHA-256 of the file, hexadecimal.", type="string", pattern="^[0-9a-f]{64}$")
_SITES = _parameter("site", "query", "Sites to count; all when none is named.", type="array", items={"type": "string"})
_PERIODS = _parameter("period", "query", "Periods to count; all when none.", type="array", items={"type": "string"})
_FILE = {"application/vnd.apache.arrow.file": {"schema": {"type": "string", "format": "binary"}}}


def _json(reference: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{reference}"}}}


_SEEN = "viewers and administrators"


def _operations() -> dict[str, Any]:
    return {
        "/healthz": {"get": _operation("Whether the process is alive.", "anyone", {"200": "It is."})},
        "/readyz": {"get": _operation("Whether database and folder can be reached.", "anyone", {"200": "They can."})},
        "/metrics": {"get": _operation("Numbers for Prometheus.", _SEEN, {"200": "The numbers."})},
        "/openapi.json": {"get": _operation("This document.", "anyone", {"200": "The document."})},
        "/audit": {"get": _operation("Who did what.", "administrators", {"200": "The newest 1,000 entries."})},
    }


def _tasks() -> dict[str, Any]:
    return {
        "/events": {"get": _operation("News as they come (server-sent events).", _SEEN, {"200": "A stream."})},
        "/tasks": {"get": _operation("All tasks.", "anyone with a token", {"200": "The tasks."})},
        "/tasks/{task}": {
            "get": _operation("One task.", "anyone with a token", {"200": "The task."}, _TASK),
            "put": _operation(
                "Make a task; the same again changes nothing, another one under its name is refused.", "administrators",
                {"201": "Made.", "200": "It was there.", "409": "Another is there."}, _TASK, body=_json("Task"),
            ),
        },
        "/tasks/{task}/reports": {
            "get": _operation("Reports of a task; for a site, its own. With two servers, what both hold in a period.",
                              "anyone with a token", {"200": "Them."}, _TASK, _PERIODS)
        },
        "/tasks/{task}/reports/{digest}": {
            "put": _operation(
                "Send a report: a sealed sketch file, as it is or gzipped.", "sites",
                {"201": "Verified and kept.", "200": "It was there.", "409": "It contradicts what is there.",
                 "413": "Longer than the task's layout can weigh.", "422": "Refused: the detail says why."},
                _TASK, _DIGEST, _parameter("period", "query", "2026-01-31, 2026-W05, 2026-01 or once."), body=_FILE,
            ),
            "get": _operation("The file of a report.", _SEEN, {"200": "The file."}, _TASK, _DIGEST),
        },
        "/tasks/{task}/sums": {
            "get": _operation("Sums of two servers that were asked for.", _SEEN, {"200": "Them."}, _TASK),
            "post": _operation("Ask the two servers for a sum: one more release.", "administrators",
                               {"201": "The sum.", "409": "It cannot be."}, _TASK, body=_json("Sum")),
        },
    }  # fmt: skip


def _answers() -> dict[str, Any]:
    return {
        "/tasks/{task}/answer": {
            "get": _operation("Reach and frequency of any subset.", _SEEN, {"200": "The answer.", "202": "Under way."},
                              _TASK, _SITES, _PERIODS)
        },
        "/tasks/{task}/over-time": {
            "get": _operation("Every period, and all up to it.", _SEEN,
                              {"200": "Points; where an answer is missing, why.", "202": "Under way."}, _TASK, _SITES)
        },
        "/tasks/{task}/overlap": {
            "get": _operation("How many are at both of two sites.", _SEEN, {"200": "A matrix.", "202": "Under way."},
                              _TASK, _SITES, _PERIODS)
        },
        "/tasks/{task}/answer.csv": {
            "get": _operation("The answer as a table.", _SEEN, {"200": "The file."}, _TASK, _SITES, _PERIODS)
        },
        "/tasks/{task}/report.html": {
            "get": _operation("The page of the sum, for people.", _SEEN, {"200": "The file."}, _TASK, _SITES, _PERIODS)
        },
        "/tasks/{task}/sketch": {
            "get": _operation("The merged sketch.", _SEEN, {"200": "The file."}, _TASK, _SITES, _PERIODS)
        },
    }  # fmt: skip


def _tokens() -> dict[str, Any]:
    return {
        "/tokens": {
            "get": _operation("Tokens, without secrets.", "administrators", {"200": "Them."}),
            "post": _operation("Make a token; it is shown once.", "administrators", {"201": "It."},
                               body=_json("NewToken")),
        },
        "/tokens/{token}": {
            "delete": _operation("Revoke a token.", "administrators", {"204": "Done."},
                                 _parameter("token", "path", "Its name: the 16 digits after un_."))
        },
    }  # fmt: skip


_MESSAGE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_COLLECTORS = "collectors"


def _shares() -> dict[str, Any]:
    """The addresses of a server of shares; messages are bytes as docs/sites.md has them."""
    task = _parameter("task", "path", "SHA-256 of the task message, hexadecimal.")
    return {
        "/shares": {"post": _operation("Make a task known; the same again changes nothing.", _COLLECTORS,
                                       {"201": "Made.", "200": "It was there."}, body=_MESSAGE)},
        "/shares/{task}": {"get": _operation("Which side this server is.", "sites", {"200": "The side."}, task)},
        "/shares/{task}/reports": {
            "post": _operation("Send a share; the same again changes nothing.", "sites",
                               {"200": "It was there already.", "201": "Kept."}, task,
                               body=_MESSAGE)
        },
        "/shares/{task}/sites": {
            "get": _operation("Sites of the reports that can be added, by id.", _COLLECTORS, {"200": "Them."}, task)
        },
        "/shares/{task}/sums": {
            "get": _operation("Sums that were given: report ids by site.", _COLLECTORS, {"200": "Them."}, task)
        },
        "/shares/{task}/offer": {"get": _operation("The offer.", _COLLECTORS, {"200": "A message."}, task)},
        "/shares/{task}/agree": {
            "post": _operation("The word on a set of reports; spends nothing.", _COLLECTORS, {"200": "A message."},
                               task, body=_json("Reports"))
        },
        "/shares/{task}/answer": {
            "post": _operation("The noised sum, given the other server's word; asked again, the same bits.",
                               _COLLECTORS, {"200": "A message."}, task, body=_MESSAGE)
        },
    }  # fmt: skip


def document(*, shares: bool = False) -> dict[str, Any]:
    """Return the document of a collector, or of a server of shares.

    >>> sorted(document())
    ['components', 'info', 'openapi', 'paths']
    """
    from .. import __version__

    return {
        "openapi": "3.1.0",
        "info": {"title": f"unnoise {'server of shares' if shares else 'collector'}", "version": __version__},
        "paths": {**_operations(), **(_shares() if shares else {**_tasks(), **_answers()}), **_tokens()},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Task": {
                    "type": "object", "required": ["epsilon"], "additionalProperties": False,
                    "properties": {name: _TYPES[name] for name in Task.__dataclass_fields__},
                },
                "NewToken": {
                    "type": "object", "required": ["role"],
                    "properties": {"role": {"type": "string", "enum": list(ROLES)}, "site": {"type": "string"}},
                },
                "Sum": {
                    "type": "object",
                    "properties": {
                        "period": {"type": "string"}, "sites": {"type": "array", "items": {"type": "string"}},
                    },
                },
                "Reports": {
                    "type": "object", "required": ["reports"],
                    "properties": {"reports": {"type": "array", "items": {"type": "string"}}},
                },
                "Number": _NUMBER,
                "Problem": {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
                        "detail": {"type": "string"},
                    },
                },
            },
        },
    }  # fmt: skip
