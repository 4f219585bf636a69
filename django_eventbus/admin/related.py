"""Links between the rows of one message and of its causes and effects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from django_eventbus.admin.permissions import may_see
from django_eventbus.events.message import CAUSATION, EDITED_FROM
from django_eventbus.models import Attempt, DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.models.message_columns import MessageColumns

#: How many causes are followed, and how many effects are shown.
CAUSES_LIMIT = 10
EFFECTS_LIMIT = 50
LETTERS_LIMIT = 5


@dataclass(slots=True, kw_only=True)
class Relative:
    """An event of the same chain; without an outbox row if another service published it."""

    message_id: str
    row: OutboxEvent | None = None
    #: Whether a person edited the event, and this one was sent in its place.
    is_edited: bool = False
    url: str = ""
    letters: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The causes of an event, the first one first, and its effects."""

    causes: list[Relative]
    effects: list[Relative]
    is_cut: bool

    def __bool__(self) -> bool:
        return bool(self.causes or self.effects)


def lineage_of(request: HttpRequest, site: AdminSite, row: Any) -> Lineage:
    """Return causes and effects of the message of *row*, with the links the user may follow."""
    causes = list(_causes(row))[::-1]
    effects = _effects(row)
    found = effects[:EFFECTS_LIMIT]
    for relative in (*causes, *found):
        _link_relative(request, site, relative, row._state.db)
    return Lineage(causes=causes, effects=found, is_cut=len(effects) > EFFECTS_LIMIT)


def causation_of(row: MessageColumns) -> str:
    """Return the id of the event whose handler published this one."""
    value = row.headers.get(CAUSATION, "")
    return value if isinstance(value, str) else ""


def _causes(row: Any) -> Iterator[Relative]:
    seen, cause = {row.message_id}, causation_of(row)
    while cause and cause not in seen and len(seen) <= CAUSES_LIMIT:
        seen.add(cause)
        # The row without a queue is the event itself; only an edited one has no such row.
        found = _rows(row).filter(message_id=cause).order_by("queue", "id").first()
        yield Relative(message_id=cause, row=found)
        cause = found.causation_id if found else ""


def _effects(row: Any) -> list[Relative]:
    if not row.message_id:
        return []
    caused = _rows(row).filter(causation_id=row.message_id).order_by("id")
    published = list(caused.filter(queue="")[: EFFECTS_LIMIT + 1])
    found = {each.message_id: Relative(message_id=each.message_id, row=each) for each in published}
    again = caused.exclude(queue="").exclude(message_id__in=found)
    for each in again[: EFFECTS_LIMIT + 1]:
        is_edited = each.headers.get(EDITED_FROM) == row.message_id
        relative = Relative(message_id=each.message_id, row=each, is_edited=is_edited)
        found.setdefault(each.message_id, relative)
    return list(found.values())


def _rows(row: Any) -> QuerySet[OutboxEvent]:
    return OutboxEvent.objects.using(row._state.db).defer("body")


def _link_relative(request: HttpRequest, site: AdminSite, relative: Relative, using: str) -> None:
    if relative.row and _may_see(request, site, OutboxEvent):
        queues = [relative.row.queue] if relative.row.is_addressed else []
        relative.url = _url(site, relative.row) if may_see(request.user, queues) else ""
    if _may_see(request, site, DeadLetter):
        letters = DeadLetter.objects.using(using).filter(message_id=relative.message_id)
        shown = letters.only("id", "state", "subscription", "queue").order_by("id")
        relative.letters = [
            {
                "url": _url(site, each),
                "place": each.subscription or each.queue,
                "state": each.get_state_display(),
            }
            for each in shown[:LETTERS_LIMIT]
            if may_see(request.user, [each.queue])
        ]


def _may_see(request: HttpRequest, site: AdminSite, model: type[Model]) -> bool:
    return site.is_registered(model) and site.get_model_admin(model).has_view_permission(request)


def _url(site: AdminSite, row: Model) -> str:
    opts = row._meta
    view = f"admin:{opts.app_label}_{opts.model_name}_change"
    return reverse(view, args=[quote(row.pk)], current_app=site.name)


ROWS_LIMIT = 10
ATTEMPTS_LIMIT = 20
#: The lookup of a message in the lists of the outbox and the inbox.
MESSAGE_LOOKUP = "message_id__exact"
_CHANGELIST = ("changelist", MESSAGE_LOOKUP)


def attempts_of(row: Any) -> list[Attempt]:
    """Return the last failed attempts at the message of *row*, in order."""
    attempts = Attempt.objects.using(row._state.db).filter(
        message_id=row.message_id, subscription=row.subscription
    )
    return list(attempts.order_by("-round", "-attempt", "-id")[:ATTEMPTS_LIMIT])[::-1]


def other_rows(request: HttpRequest, site: AdminSite, row: Any) -> list[dict[str, Any]]:
    """Return the other rows of the message of *row*, per table that the user may see."""
    tables = [
        _other_rows_of(model, request, site, row)
        for model in (OutboxEvent, InboxRecord, DeadLetter)
        if row.message_id and _may_see(request, site, model)
    ]
    return [table for table in tables if table]


def _other_rows_of(
    model: type[Model], request: HttpRequest, site: AdminSite, row: Any
) -> dict[str, Any] | None:
    model_admin = site.get_model_admin(model)
    rows: QuerySet[Any] = model_admin.get_queryset(request).filter(message_id=row.message_id)
    if isinstance(row, model):
        rows = rows.exclude(pk=row.pk)
    found = [
        each
        for each in rows.order_by("pk")[: ROWS_LIMIT + 1]
        if not each.queue or may_see(request.user, [each.queue])
    ]
    return _links(site, rows, found, row.message_id) if found else None


def _links(
    site: AdminSite, rows: QuerySet[Any], found: list[Any], message_id: str
) -> dict[str, Any]:
    opts = rows.model._meta
    name = f"admin:{opts.app_label}_{opts.model_name}"
    # The changelist of dead letters shows groups; their list has filters of its own.
    page, term = ("list", "message_id") if rows.model is DeadLetter else _CHANGELIST
    everything = reverse(f"{name}_{page}", current_app=site.name)
    return {
        "name": opts.verbose_name_plural,
        "links": [
            {
                "url": _url(site, each),
                "place": each.subscription or each.queue or each.routing_key,
                "state": each.get_state_display(),
            }
            for each in found[:ROWS_LIMIT]
        ],
        "more": f"{everything}?{urlencode({term: message_id})}" if len(found) > ROWS_LIMIT else "",
    }
