"""Causes and effects of an event, each linked to its page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from django_eventbus.messages import CAUSATION, EDITED_FROM
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.models.carried_message import CarriedMessage
from django_eventbus.permissions import sees

#: How far causes are followed, and how many effects are shown.
GENERATIONS = 10
EFFECTS_LIMIT = 50
LETTERS_LIMIT = 5


@dataclass(slots=True, kw_only=True)
class Relative:
    """An event of the same chain; without an outbox row if another service published it."""

    message_id: str
    row: OutboxEvent | None = None
    #: It went out in the place of the other, with changes that a person made.
    is_edited: bool = False
    url: str = ""
    letters: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What led to an event, the first cause first, and what it led to."""

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
        _link(request, site, relative, row._state.db)
    return Lineage(causes=causes, effects=found, is_cut=len(effects) > EFFECTS_LIMIT)


def causation_of(row: CarriedMessage) -> str:
    """Return the id of the event whose handler published this one."""
    value = row.headers.get(CAUSATION, "")
    return value if isinstance(value, str) else ""


def _causes(row: Any) -> Iterator[Relative]:
    seen, cause = {row.message_id}, causation_of(row)
    while cause and cause not in seen and len(seen) <= GENERATIONS:
        seen.add(cause)
        # One that was edited is addressed; of any other, the row that is not tells more.
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
        relative = Relative(message_id=each.message_id, row=each, is_edited=_is_edit(each, row))
        found.setdefault(each.message_id, relative)
    return list(found.values())


def _is_edit(edited: OutboxEvent, row: Any) -> bool:
    return bool(edited.headers.get(EDITED_FROM) == row.message_id)


def _rows(row: Any) -> QuerySet[OutboxEvent]:
    return OutboxEvent.objects.using(row._state.db).defer("body")


def _link(request: HttpRequest, site: AdminSite, relative: Relative, using: str) -> None:
    if relative.row and _may_see_row(request, site, relative.row):
        relative.url = _url(site, relative.row)
    if _may_see(request, site, DeadLetter):
        letters = DeadLetter.objects.using(using).filter(message_id=relative.message_id)
        shown = letters.only("id", "state", "subscription", "queue").order_by("id")
        seen = [each for each in shown[:LETTERS_LIMIT] if sees(request.user, [each.queue])]
        relative.letters = [_letter(site, each) for each in seen]


def _may_see_row(request: HttpRequest, site: AdminSite, row: OutboxEvent) -> bool:
    queues = [row.queue] if row.is_addressed else []
    return _may_see(request, site, OutboxEvent) and sees(request.user, queues)


def _letter(site: AdminSite, letter: DeadLetter) -> dict[str, Any]:
    place = letter.subscription or letter.queue
    return {"url": _url(site, letter), "place": place, "state": letter.get_state_display()}


def _may_see(request: HttpRequest, site: AdminSite, model: type[CarriedMessage]) -> bool:
    screen = site.get_model_admin(model) if site.is_registered(model) else None
    return screen is not None and screen.has_view_permission(request)


def _url(site: AdminSite, row: CarriedMessage) -> str:
    opts = row._meta
    view = f"admin:{opts.app_label}_{opts.model_name}_change"
    return reverse(view, args=[quote(row.pk)], current_app=site.name)
