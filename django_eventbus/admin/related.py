"""What else is known of a message: its rows on the other screens, and its failed attempts."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from django_eventbus.models import Attempt, DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.permissions import sees

ROWS_LIMIT = 10
ATTEMPTS_LIMIT = 20
_CHANGELIST = ("changelist", "message_id__exact")


def attempts_of(row: Any) -> list[Attempt]:
    """Return the last failed attempts at the message of *row*, in order."""
    attempts = Attempt.objects.using(row._state.db).filter(
        message_id=row.message_id, subscription=row.subscription
    )
    return list(attempts.order_by("-round", "-attempt", "-id")[:ATTEMPTS_LIMIT])[::-1]


def elsewhere(request: HttpRequest, site: AdminSite, row: Any) -> list[dict[str, Any]]:
    """Return the other rows of the message of *row*, per screen that the user may see."""
    screens = [
        _screen(request, site, model, row) for model in (OutboxEvent, InboxRecord, DeadLetter)
    ]
    return [screen for screen in screens if screen]


def _screen(
    request: HttpRequest, site: AdminSite, model: type[Model], row: Any
) -> dict[str, Any] | None:
    screen = site.get_model_admin(model) if site.is_registered(model) else None
    if not row.message_id or screen is None or not screen.has_view_permission(request):
        return None
    rows: QuerySet[Any] = screen.get_queryset(request).filter(message_id=row.message_id)
    if isinstance(row, model):
        rows = rows.exclude(pk=row.pk)
    found = [
        each
        for each in rows.order_by("pk")[: ROWS_LIMIT + 1]
        if not each.queue or sees(request.user, [each.queue])
    ]
    return _links(site, rows, found, row.message_id) if found else None


def _links(
    site: AdminSite, rows: QuerySet[Any], found: list[Any], message_id: str
) -> dict[str, Any]:
    opts = rows.model._meta
    name = f"admin:{opts.app_label}_{opts.model_name}"
    # The screen of dead letters begins with groups; its list has filters of its own.
    page, term = ("list", "message_id") if rows.model is DeadLetter else _CHANGELIST
    everything = reverse(f"{name}_{page}", current_app=site.name)
    return {
        "name": opts.verbose_name_plural,
        "links": [_link(site, f"{name}_change", each) for each in found[:ROWS_LIMIT]],
        "more": f"{everything}?{urlencode({term: message_id})}" if len(found) > ROWS_LIMIT else "",
    }


def _link(site: AdminSite, view: str, row: Any) -> dict[str, Any]:
    return {
        "url": reverse(view, args=[quote(row.pk)], current_app=site.name),
        "place": row.subscription or row.queue or row.routing_key,
        "state": row.get_state_display(),
    }
