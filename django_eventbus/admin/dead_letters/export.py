"""Export dead letters."""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any
from unicodedata import normalize

from asgiref.sync import sync_to_async
from django.contrib.admin import ModelAdmin
from django.core.exceptions import BadRequest
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from django_eventbus.admin.dead_letters.dry_run import requested_selection
from django_eventbus.admin.pages import database_of, require_view
from django_eventbus.admin.permissions import hidden_from
from django_eventbus.dead_letters import audit
from django_eventbus.dead_letters.query import matching
from django_eventbus.dead_letters.redaction import redacted
from django_eventbus.models import DeadLetter
from django_eventbus.models.dead_letters import DeadLetterQuerySet

COLUMNS = (
    "id", "message_id", "type", "queue", "subscription", "state", "kind", "round", "attempts",
    "error_type", "error", "source", "correlation_id", "sent_at", "parked_at", "closed_at",
    "note", "headers", "payload",
)  # fmt: skip
#: Dead letters that are in memory at a time.
BATCH_SIZE = 500
#: Characters that begin a formula in a spreadsheet; full-width forms are normalized to the first four.
_FORMULA = ("=", "+", "-", "@", "\N{MINUS SIGN}")
#: Characters that some spreadsheets remove from the start of a cell.
_REMOVED = ("\t", "\r", "\n")
Row = dict[str, Any]


def export_view(model_admin: ModelAdmin[Any], request: HttpRequest) -> HttpResponseBase:
    """Send the selection as a file, without values that are hidden from the user."""
    require_view(model_admin, request)
    writer = WRITERS.get(request.GET.get("format", ""))
    if writer is None:
        raise BadRequest("The format must be ndjson or csv.")
    using = model_admin.get_queryset(request).db
    selection = requested_selection(request, using)
    letters = matching(selection, using).defer("body", "traceback")
    audit.record(
        "export",
        by=request.user.get_username(),
        selection=selection,
        # Lists may be read from a replica, which cannot be written to.
        using=database_of(model_admin, request),
        count=letters.order_by().count(),
        outcome={"format": request.GET["format"]},
    )
    rows = rows_of(in_batches(letters), request.user)
    write, content_type = writer
    name = f"dead-letters.{request.GET['format']}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    headers["X-Content-Type-Options"] = "nosniff"
    parts = write(rows)
    # Under ASGI, Django would read an ordinary iterator into a list first.
    body = asynchronous(parts) if isinstance(request, ASGIRequest) else parts
    return StreamingHttpResponse(body, content_type=content_type, headers=headers)


async def asynchronous(lines: Iterator[str]) -> AsyncIterator[str]:
    """Yield *lines* in batches, each read in the thread that has the database connection."""
    read = sync_to_async(lambda: "".join(islice(lines, BATCH_SIZE)), thread_sensitive=True)
    while part := await read():
        yield part


def in_batches(letters: DeadLetterQuerySet) -> Iterator[DeadLetter]:
    """Yield all of *letters* by id, read in batches."""
    # Not iterator(): outside a transaction PostgreSQL computes the whole result first.
    last = 0
    while batch := list(letters.filter(pk__gt=last).order_by("pk")[:BATCH_SIZE]):
        yield from batch
        last = batch[-1].pk


def rows_of(letters: Iterable[DeadLetter], user: Any) -> Iterator[Row]:
    """Yield each dead letter as plain values."""

    @cache
    def rules(queue: str) -> tuple[str, ...]:
        return hidden_from(user, queue)

    for letter in letters:
        row = {name: getattr(letter, name) for name in COLUMNS}
        for name in ("headers", "payload"):
            row[name] = redacted(row[name], name, rules(letter.queue))
        for name in ("sent_at", "parked_at", "closed_at"):
            row[name] = row[name].isoformat() if row[name] else None
        yield row


def as_ndjson(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line of JSON for each row."""
    for row in rows:
        yield f"{json.dumps(row, ensure_ascii=False)}\n"


class _Echo:
    """A file whose write() returns the text."""

    def write(self, text: str) -> str:
        return text


def as_csv(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line of CSV for each row, after one with the names."""
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for row in rows:
        yield writer.writerow([cell(row[name]) for name in COLUMNS])


def cell(value: Any) -> str:
    """Return *value* as text that no spreadsheet reads as a formula."""
    if value is None:
        return ""
    is_json = isinstance(value, dict | list | bool)
    text = json.dumps(value, ensure_ascii=False) if is_json else str(value)
    # An apostrophe first, as OWASP advises: quoting the cell does not keep it from being a formula.
    return f"'{text}" if _may_be_formula(text) and not isinstance(value, int) else text


def _may_be_formula(text: str) -> bool:
    # By the first visible character: spreadsheets ignore blanks and invisible characters before it.
    visible = next((each for each in text if each.isprintable() and not each.isspace()), "")
    return text.startswith(_REMOVED) or normalize("NFKC", visible).startswith(_FORMULA)


WRITERS: dict[str, tuple[Callable[[Iterable[Row]], Iterator[str]], str]] = {
    "ndjson": (as_ndjson, "application/x-ndjson"),
    "csv": (as_csv, "text/csv; charset=utf-8"),
}
