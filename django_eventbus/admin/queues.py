"""Queues: each with its tiers, its consumers and its DLQ, as far as the tables tell."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.dashboard import listed, url
from django_eventbus.admin.errand_forms import FORMS, ErrandForm, why_not
from django_eventbus.admin.pages import page
from django_eventbus.admin.read_only import PlainReadOnlyAdmin, ago
from django_eventbus.admin.refused_forms import refused_among
from django_eventbus.durations import label, seconds
from django_eventbus.errands import ask, owners_of_dlq
from django_eventbus.matching import capped_count, letters_of
from django_eventbus.models import DeadLetter, Errand, Queue
from django_eventbus.needs import number
from django_eventbus.permissions import sees
from django_eventbus.selections import Selection
from django_eventbus.status import look, queue_figures
from django_eventbus.subscriptions import registry

#: Errands that the page of a queue shows.
_ERRANDS = 5
#: A worker measures every ten seconds; without one the page is not followed for ever.
_SETTLING = timedelta(minutes=1)
#: Errands that move messages: asked for on a page of their own.
CONFIRMED = (Errand.Kind.REDRIVE,)


class QueueList(ChangeList):
    """Rows with the figures that the dashboard and the pages show of them."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        figures = {each.name: each for each in queue_figures()}
        rows = list(self.result_list)
        for row in rows:
            row.figures = figures.get(row.name)
        self.result_list = rows


@admin.register(Queue)
class QueueAdmin(PlainReadOnlyAdmin):
    """The queues of this project; those of others are not offered."""

    ordering = ("name",)
    list_display = ("name", "waiting", "in_tiers", "in_dlq", "consumed_by", "measured")

    class Media:
        css = {"all": ["eventbus/dashboard.css"]}
        js = ["eventbus/errands.js"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        names = [each for each in registry.queues() if sees(request.user, [each])]
        return super().get_queryset(request).filter(name__in=names)

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return QueueList

    @admin.display(description=gettext_lazy("Waiting"), ordering="messages")
    def waiting(self, queue: Queue) -> str:
        return written(queue.messages)

    @admin.display(description=gettext_lazy("In the DLQ"), ordering="dlq_messages")
    def in_dlq(self, queue: Queue) -> str:
        return written(queue.dlq_messages)

    @admin.display(description=gettext_lazy("consumers"))
    def consumed_by(self, queue: Any) -> int | None:
        return queue.figures.consumers if queue.figures else None

    @admin.display(description=gettext_lazy("in tiers"))
    def in_tiers(self, queue: Queue) -> str:
        return written(queue.in_tiers)

    @admin.display(description=gettext_lazy("measured"), ordering="measured_at")
    def measured(self, queue: Queue) -> str:
        return ago(queue.measured_at)

    def get_urls(self) -> list[URLPattern]:
        own = [
            path(
                f"<path:object_id>/{kind}/",
                self.admin_site.admin_view(partial(self.errand_view, kind)),
                name=f"eventbus_queue_{kind}",
            )
            for kind in Errand.Kind.values
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

    def errand_view(self, kind: str, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask a worker for an errand; by POST only, and what moves messages on a page of its own."""
        queue = self._queue(request, unquote(object_id))
        back, is_confirmed = self._url(queue.name), kind in CONFIRMED
        if request.method != "POST" and not is_confirmed:
            return redirect(back)
        refusal = why_not(kind, request, queue, look().live)
        typed = {name: text for name, text in request.GET.items() if name == "limit"}
        form = FORMS[kind](request.POST or None, auto_id=f"{kind}-%s", initial=typed)
        if request.method == "POST":
            if refusal:
                raise PermissionDenied
            if form.is_valid():
                self._ask(kind, request, queue, form)
                return redirect(back)
        if not is_confirmed:
            return self._page(request, queue, {kind: form})
        context = {"queue": queue, "dlq": queue.dlq, "form": form, "why_not": refusal, "back": back}
        return page(self, request, "errand", str(capfirst(Errand.Kind(kind).label)), **context)

    def _ask(self, kind: str, request: HttpRequest, queue: Queue, form: ErrandForm) -> None:
        by = request.user.get_username()
        ask(kind, queue.name, by=by, **form.cleaned_data)
        self.message_user(request, _("A worker was asked to do it."), messages.SUCCESS)

    def _queue(self, request: HttpRequest, name: str) -> Queue:
        if not self.has_view_permission(request):
            raise PermissionDenied
        queue: Queue | None = self.get_object(request, name)
        if queue is None:
            raise Http404(f"{name} is no queue of this project, or no worker has looked at it yet.")
        return queue

    def _page(
        self, request: HttpRequest, queue: Queue, forms: dict[str, ErrandForm]
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": queue,
            "has_view_permission": True,
            "media": self.media,
            **refused_among(forms.values()),
            **self._context(request, queue, forms),
        }
        return TemplateResponse(request, "admin/eventbus/queue.html", context)

    def _context(
        self, request: HttpRequest, queue: Queue, forms: dict[str, ErrandForm]
    ) -> dict[str, Any]:
        name, status = queue.name, look()
        found = errands_of(request, name)
        return {
            "title": name,
            "queue": queue,
            "figures": next(each for each in status.queues if each.name == name),
            "tiers": tiers_of(queue),
            "consumers": [each for each in status.live if name in each.queues],
            "subscriptions": [
                (
                    each,
                    policy_of(each),
                    listed(request, "inboxrecord", subscription=each.record_name),
                )
                for each in registry.on_queue(name)
            ],
            "dead_letters": dead_letters_of(request, name),
            "dead_letter_count": number(count_dead_letters(name)),
            "offers": [
                {
                    "kind": kind,
                    "label": Errand.Kind(kind).label,
                    "url": self._url(name, kind),
                    "is_confirmed": kind in CONFIRMED,
                    "form": forms.get(kind) or FORMS[kind](auto_id=f"{kind}-%s"),
                    "why_not": why_not(kind, request, queue, status.live),
                }
                for kind in Errand.Kind.values
            ],
            "errands": [(each, is_outdated(each, found)) for each in found],
            "is_awaited": any(is_awaited(each, queue) for each in found),
        }

    def _url(self, name: str, verb: str = "change") -> str:
        view, site = f"admin:eventbus_queue_{verb}", self.admin_site.name
        return reverse(view, args=[quote(name)], current_app=site)


def errands_of(request: HttpRequest, name: str) -> list[Errand]:
    """Return the latest errands on a queue; they tell of every queue that its DLQ is of."""
    if not sees(request.user, owners_of_dlq(name)):
        return []
    errands = Errand.objects.using(DEFAULT_DB_ALIAS).filter(queue=name)
    return list(errands.order_by("-id")[:_ERRANDS])


def written(count: int | None) -> str:
    """Write a count in the reader's way; "-" if it is not known."""
    return "-" if count is None else number(count)


def dead_letters_of(request: HttpRequest, name: str) -> str:
    """Return the list of the dead letters of a queue."""
    address = url(request, "deadletter_list")
    return f"{address}?{urlencode({'queue': name})}" if address else ""


def count_dead_letters(name: str) -> int:
    """Count what the list of the dead letters of a queue shows, no further than it does."""
    shown = Selection.of([("queue", name), ("state", "open"), ("ignored", "no")])
    return capped_count(letters_of(shown, DeadLetter.objects.db))


def is_outdated(errand: Errand, errands: Iterable[Errand]) -> bool:
    """Whether it is a look into the DLQ from which a re-drive took messages since."""
    since = errand.ended_at
    if errand.kind != Errand.Kind.PEEK or since is None:
        return False
    redrives = (each for each in errands if each.kind == Errand.Kind.REDRIVE)
    return any(each.taken_at and each.ended_at and each.ended_at > since for each in redrives)


def is_awaited(errand: Errand, queue: Queue) -> bool:
    """Whether it is still to be done; or has just been, and the level is of before."""
    if errand.is_open:
        return True
    ended, measured = errand.ended_at, queue.measured_at
    if ended is None or ended < timezone.now() - _SETTLING:
        return False
    return measured is None or measured < ended


def tiers_of(queue: Queue) -> list[tuple[str, int | None]]:
    """Return the tiers by their delay, the shortest first."""
    return sorted(queue.tiers.items(), key=lambda each: seconds(each[0]) if each[0] else 0)


def policy_of(subscription: Any) -> str:
    """Say how often and after what delays a subscription tries."""
    policy = subscription.policy
    delays = ", ".join(map(label, policy.delays)) or "-"
    return _("%(tries)d tries, after %(delays)s") % {"tries": policy.tries, "delays": delays}
