"""The pages of queues, and requests to read or re-drive a broker's DLQ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.model_admin import PlainReadOnlyAdmin, ago
from django_eventbus.admin.pages import (
    changelist_url,
    form_errors,
    page,
    page_url,
    permitted_url,
    require_view,
)
from django_eventbus.admin.permissions import Verb, denial_for_all, may_see
from django_eventbus.dead_letters.query import capped_count, matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.durations import label, seconds
from django_eventbus.models import BrokerRequest, DeadLetter, Queue
from django_eventbus.monitoring.problems import number
from django_eventbus.monitoring.status import read_queues, read_status
from django_eventbus.monitoring.status_values import WorkerStatus
from django_eventbus.redrive import plans
from django_eventbus.redrive.broker_requests import LIMITS, owners_of_dlq, submit
from django_eventbus.subscriptions.subscription import registry


class BrokerRequestForm(forms.Form):
    """How many messages a request may concern."""

    limit = forms.IntegerField(label=gettext_lazy("At most"), min_value=1)


class PeekForm(BrokerRequestForm):
    """How many of the first messages to read."""

    limit = forms.IntegerField(
        label=gettext_lazy("Messages to read"),
        min_value=1,
        max_value=LIMITS[BrokerRequest.Kind.PEEK],
        initial=10,
    )


class RedriveForm(BrokerRequestForm):
    """How many of the first messages to re-drive; many need a reason."""

    limit = forms.IntegerField(
        label=gettext_lazy("Messages to re-drive"),
        min_value=1,
        max_value=LIMITS[BrokerRequest.Kind.REDRIVE],
        initial=100,
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=1000, required=False)

    def clean(self) -> dict[str, object]:
        """Require a reason for many messages."""
        cleaned = super().clean() or {}
        if cleaned.get("limit", 0) > plans.REASON_ABOVE and not cleaned.get("reason"):
            words = _("A reason is required for more than %(number)d.") % {
                "number": plans.REASON_ABOVE
            }
            self.add_error("reason", words)
        return cleaned


FORMS: dict[str, type[BrokerRequestForm]] = {
    BrokerRequest.Kind.PEEK: PeekForm,
    BrokerRequest.Kind.REDRIVE: RedriveForm,
}


def request_denial(
    kind: str, request: HttpRequest, queue: Queue, live: Sequence[WorkerStatus]
) -> str:
    """Say why the request cannot be submitted now; "" if it can."""
    verb: Verb = "view" if kind == BrokerRequest.Kind.PEEK else "redrive"
    if denial := denial_for_all(request.user, verb, owners_of_dlq(queue.name)):
        return denial
    if not queue.dlq:
        return _("This queue has no DLQ. Its dead letters are in the database.")
    if kind == BrokerRequest.Kind.REDRIVE and queue.is_collected:
        return _("Consumers store the messages of the DLQ as dead letters. Re-drive those instead.")
    # A relay does not count: it may lack the right to read queues.
    has_consumer = any(queue.name in each.queues for each in live)
    return "" if has_consumer else _("No consumer of this queue is running.")


#: How many requests the page of a queue shows.
_SHOWN = 5

#: How long after a request the page waits for a new level: workers measure every ten seconds.
_MEASURED_WITHIN = timedelta(minutes=1)

#: Kinds of requests that move messages: they are confirmed on a page of their own.
CONFIRMED = (BrokerRequest.Kind.REDRIVE,)


class QueueList(ChangeList):
    """Rows, each with the figures that the dashboard shows as well."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        figures = {each.name: each for each in read_queues()}
        rows = list(self.result_list)
        for row in rows:
            row.figures = figures.get(row.name)
        self.result_list = rows


@admin.register(Queue)
class QueueAdmin(PlainReadOnlyAdmin):
    """The queues of this project, not those of other services."""

    ordering = ("name",)
    list_display = ("name", "waiting", "in_tiers", "in_dlq", "consumed_by", "measured")

    class Media:
        css = {"all": ["eventbus/dashboard.css"]}
        js = ["eventbus/broker_requests.js"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        names = [each for each in registry.queues() if may_see(request.user, [each])]
        return super().get_queryset(request).filter(name__in=names)

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return QueueList

    @admin.display(description=gettext_lazy("Waiting"), ordering="messages")
    def waiting(self, queue: Queue) -> str:
        return format_count(queue.messages)

    @admin.display(description=gettext_lazy("In the DLQ"), ordering="dlq_messages")
    def in_dlq(self, queue: Queue) -> str:
        return format_count(queue.dlq_messages)

    @admin.display(description=gettext_lazy("consumers"))
    def consumed_by(self, queue: Any) -> int | None:
        return queue.figures.consumers if queue.figures else None

    @admin.display(description=gettext_lazy("in tiers"))
    def in_tiers(self, queue: Queue) -> str:
        return format_count(queue.in_tiers)

    @admin.display(description=gettext_lazy("measured"), ordering="measured_at")
    def measured(self, queue: Queue) -> str:
        return ago(queue.measured_at)

    def get_urls(self) -> list[URLPattern]:
        own = [
            path(
                f"<path:object_id>/{kind}/",
                self.admin_site.admin_view(partial(self.request_view, kind)),
                name=f"eventbus_queue_{kind}",
            )
            for kind in BrokerRequest.Kind.values
        ]
        return [*own, *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        return self._page(request, self._queue(request, unquote(object_id)), {})

    def request_view(self, kind: str, request: HttpRequest, object_id: str) -> HttpResponse:
        """Submit a request by POST; one that moves messages is confirmed on a page of its own."""
        queue = self._queue(request, unquote(object_id))
        back, is_confirmed = page_url(self, "change", quote(queue.name)), kind in CONFIRMED
        if request.method != "POST" and not is_confirmed:
            return redirect(back)
        denial = request_denial(kind, request, queue, read_status().live)
        typed = {name: text for name, text in request.GET.items() if name == "limit"}
        form = FORMS[kind](request.POST or None, auto_id=f"{kind}-%s", initial=typed)
        if request.method == "POST":
            if denial:
                raise PermissionDenied
            if form.is_valid():
                submit(kind, queue.name, by=request.user.get_username(), **form.cleaned_data)
                self.message_user(
                    request, _("The request was submitted to a worker."), messages.SUCCESS
                )
                return redirect(back)
        if not is_confirmed:
            return self._page(request, queue, {kind: form})
        context = {"queue": queue, "dlq": queue.dlq, "form": form, "denial": denial, "back": back}
        title = str(capfirst(BrokerRequest.Kind(kind).label))
        return page(self, request, "broker_request", title, **context)

    def _queue(self, request: HttpRequest, name: str) -> Queue:
        require_view(self, request)
        queue: Queue | None = self.get_object(request, name)
        if queue is None:
            raise Http404(
                f"{name} is not a queue of this project, or no worker has measured it yet."
            )
        return queue

    def _page(
        self, request: HttpRequest, queue: Queue, forms: dict[str, BrokerRequestForm]
    ) -> HttpResponse:
        name, status = queue.name, read_status()
        found = requests_on(request, name)
        context = {
            "original": queue,
            **form_errors(forms.values()),
            "queue": queue,
            "figures": next(each for each in status.queues if each.name == name),
            "tiers": tiers_of(queue),
            "consumers": [each for each in status.live if name in each.queues],
            "subscriptions": [
                (
                    each,
                    retry_policy_text(each),
                    changelist_url(request, "inboxrecord", subscription=each.record_name),
                )
                for each in registry.on_queue(name)
            ],
            "dead_letters": dead_letters_url(request, name),
            "dead_letter_count": number(count_dead_letters(name)),
            "offers": [
                {
                    "kind": kind,
                    "label": BrokerRequest.Kind(kind).label,
                    "url": page_url(self, kind, quote(name)),
                    "is_confirmed": kind in CONFIRMED,
                    "form": forms.get(kind) or FORMS[kind](auto_id=f"{kind}-%s"),
                    "denial": request_denial(kind, request, queue, status.live),
                }
                for kind in BrokerRequest.Kind.values
            ],
            "broker_requests": [(each, is_outdated(each, found)) for each in found],
            "is_awaited": any(is_awaited(each, queue) for each in found),
        }
        return page(self, request, "queue", name, **context)


def requests_on(request: HttpRequest, name: str) -> list[BrokerRequest]:
    """Return the latest requests; none if a queue that shares the DLQ is hidden from the user."""
    if not may_see(request.user, owners_of_dlq(name)):
        return []
    found = BrokerRequest.objects.using(DEFAULT_DB_ALIAS).filter(queue=name)
    return list(found.order_by("-id")[:_SHOWN])


def format_count(count: int | None) -> str:
    """Format a count in the reader's locale; "-" if it is not known."""
    return "-" if count is None else number(count)


def dead_letters_url(request: HttpRequest, name: str) -> str:
    """Return the URL of the list of the dead letters of a queue; "" if the user may not see it."""
    address = permitted_url(request, "deadletter_list")
    return f"{address}?{urlencode({'queue': name})}" if address else ""


def count_dead_letters(name: str) -> int:
    """Count the dead letters that the list of a queue shows, up to the limit of that list."""
    shown = Selection.of([("queue", name), ("state", "open"), ("ignored", "no")])
    return capped_count(matching(shown, DeadLetter.objects.db))


def is_outdated(broker_request: BrokerRequest, others: Iterable[BrokerRequest]) -> bool:
    """Whether a re-drive has moved messages out of the DLQ since this request read it."""
    since = broker_request.ended_at
    if broker_request.kind != BrokerRequest.Kind.PEEK or since is None:
        return False
    redrives = (each for each in others if each.kind == BrokerRequest.Kind.REDRIVE)
    return any(each.claimed_at and each.ended_at and each.ended_at > since for each in redrives)


def is_awaited(broker_request: BrokerRequest, queue: Queue) -> bool:
    """Whether the request is open, or has ended and the level of the queue is older."""
    if broker_request.is_open:
        return True
    ended, measured = broker_request.ended_at, queue.measured_at
    if ended is None or ended < timezone.now() - _MEASURED_WITHIN:
        return False
    return measured is None or measured < ended


def tiers_of(queue: Queue) -> list[tuple[str, int | None]]:
    """Return the tiers by their delay, the shortest first."""
    return sorted(queue.tiers.items(), key=lambda each: seconds(each[0]) if each[0] else 0)


def retry_policy_text(subscription: Any) -> str:
    """Return the attempts and delays of a subscription as text."""
    policy = subscription.policy
    delays = ", ".join(map(label, policy.delays)) or "-"
    words = ngettext(
        "%(tries)d attempt, after %(delays)s", "%(tries)d attempts, after %(delays)s", policy.tries
    )
    return words % {"tries": policy.tries, "delays": delays}
