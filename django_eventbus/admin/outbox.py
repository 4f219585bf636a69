"""The pages of outbox events, with publish again and cancel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import label_for_field, quote, unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern
from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_eventbus.admin.formatting import short
from django_eventbus.admin.message_admin import MESSAGE_FIELDS, MessageAdmin
from django_eventbus.admin.model_admin import QueueFilter, SubscriptionFilter, TypeFilter, ago
from django_eventbus.admin.pages import (
    Button,
    View,
    database_of,
    page,
    page_url,
    page_urls,
    require_view,
)
from django_eventbus.admin.permissions import missing_permission, visible_queues
from django_eventbus.admin.related import MESSAGE_LOOKUP
from django_eventbus.conf import conf
from django_eventbus.dead_letters import audit
from django_eventbus.models import OutboxEvent

#: Rows that one request changes: at some milliseconds each, more would outlast a web server's limit.
ROWS_LIMIT = 1_000
#: Groups that the confirmation page lists.
GROUPS_LIMIT = 50

#: Rows by id, each with the state that it had when it was shown.
Chosen = list[tuple[int, str]]


class PublishAgainForm(forms.Form):
    """Nothing to fill in: the button is the answer."""


class CancelForm(forms.Form):
    """Why a scheduled event is not sent."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A change of outbox events that a person confirms."""

    name: str
    title: Any
    question: Any
    button: Any
    form: type[forms.Form]
    #: The states in which a row can be changed.
    states: tuple[str, ...]
    #: The columns by which the confirmation page groups the rows.
    columns: tuple[str, ...]
    #: Change the row, which *rows* consists of; return how many were changed.
    apply: Callable[[Any, OutboxEvent], int]
    #: Return the text for the row's history, with the reason.
    history: Callable[[OutboxEvent, str], str]
    #: Texts that contain a number.
    forecast: Any
    changed: Any
    unchanged: Any

    def denial(self, user: Any) -> str:
        """Say why *user* may not do it; "" if they may."""
        return missing_permission(user, f"eventbus.{self.name}_outboxevent")


PUBLISH_AGAIN = Action(
    name="publish_again",
    title=gettext_lazy("Publish outbox events again"),
    question=gettext_lazy("The relay sends each event again, unchanged."),
    button=gettext_lazy("Publish again"),
    form=PublishAgainForm,
    states=(OutboxEvent.State.UNROUTABLE, OutboxEvent.State.FAILED),
    columns=("state", "type", "routing_key"),
    apply=lambda rows, row: rows.publish_again(),
    history=lambda row, reason: (
        _("Published again. It was %(state)s: %(error)s")
        % {"state": row.get_state_display(), "error": row.error}
    ),
    forecast=ngettext_lazy("%d event will be sent again", "%d events will be sent again"),
    changed=ngettext_lazy(
        "%d event is ready to be sent again", "%d events are ready to be sent again"
    ),
    unchanged=ngettext_lazy(
        "%d was not changed because its state is different now",
        "%d were not changed because their states are different now",
    ),
)
CANCEL = Action(
    name="cancel",
    title=gettext_lazy("Cancel scheduled outbox events"),
    question=gettext_lazy(
        "Each event is cancelled and never sent. Retries and events that were already sent are not changed."
    ),
    button=gettext_lazy("Cancel the event"),
    form=CancelForm,
    states=(OutboxEvent.State.SCHEDULED,),
    columns=("type", "queue", "routing_key"),
    apply=lambda rows, row: rows.cancel(row.message_id),
    history=lambda row, reason: _("Cancelled: %(reason)s") % {"reason": reason},
    forecast=ngettext_lazy("%d event will be cancelled", "%d events will be cancelled"),
    changed=ngettext_lazy("%d event was cancelled", "%d events were cancelled"),
    unchanged=ngettext_lazy("%d could no longer be cancelled", "%d could no longer be cancelled"),
)
ACTIONS = (PUBLISH_AGAIN, CANCEL)


@admin.register(OutboxEvent)
class OutboxEventAdmin(MessageAdmin):
    """Outbox events, newest first."""

    actions = ("publish_again", "cancel")
    sortable_by = ("created",)
    ordering = ("-id",)
    list_display = ("type", "outlook", "addressed_to", "key", "created", "what_failed")
    list_filter = ("state", TypeFilter, QueueFilter, SubscriptionFilter, "created_at")
    linked_lookups = (MESSAGE_LOOKUP,)
    search_fields = (
        "message_id__startswith", "correlation_id__exact", "key__exact", "type__startswith",
    )  # fmt: skip
    search_help_text = gettext_lazy("Message id, correlation id, key, or type")
    fieldsets = (
        (None, {"fields": ("state", "whole_error", "created_at", "due_at", "published_at")}),
        (gettext_lazy("Addressed to"), {"fields": ("queue", "subscription")}),
        (
            gettext_lazy("Message"),
            {"fields": (*MESSAGE_FIELDS, "version", "key", "shard", "causation_id")},
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        # What goes to an exchange is on no queue.
        return (
            rows.filter(queue__in=["", *visible_queues(request.user)]) if conf.permission else rows
        )

    def get_urls(self) -> list[URLPattern]:
        own: dict[str, tuple[str, View]] = {}
        for action in ACTIONS:
            path = f"{action.name}/"
            own[f"{action.name}_selected"] = (path, partial(selected_view, action))
            own[action.name] = (f"<path:object_id>/{path}", partial(single_view, action))
        return [*page_urls(self, own), *super().get_urls()]

    @admin.action(permissions=["publish_again"], description=PUBLISH_AGAIN.title)
    def publish_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return confirm_selected(PUBLISH_AGAIN, self, request, queryset)

    @admin.action(permissions=["cancel"], description=CANCEL.title)
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return confirm_selected(CANCEL, self, request, queryset)

    def has_publish_again_permission(self, request: HttpRequest) -> bool:
        return not PUBLISH_AGAIN.denial(request.user)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return not CANCEL.denial(request.user)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Name the missing permission of each action that the user may not choose."""
        closed = [
            Button(label=str(action.title), url="", denial=denial)
            for action in ACTIONS
            if (denial := action.denial(request.user))
        ]
        return super().changelist_view(request, {**(extra_context or {}), "closed": closed})

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context["original"]
        context["tools"] = [
            Button(
                label=str(action.button),
                url=_url(self, request, action.name, quote(row.pk)),
                denial=action.denial(request.user),
            )
            for action in ACTIONS
            if row.state in action.states
        ]
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description=gettext_lazy("state"))
    def outlook(self, row: OutboxEvent) -> str:
        state = row.get_state_display()
        if row.state == OutboxEvent.State.READY:
            age = timesince(row.due_at or row.created_at)
            return _("%(state)s for %(time)s") % {"state": state, "time": age}
        if row.state == OutboxEvent.State.SCHEDULED and row.due_at:
            time = timeuntil(row.due_at)
            return _("%(state)s, due in %(time)s") % {"state": state, "time": time}
        return str(state)

    @admin.display(description=gettext_lazy("addressed to"))
    def addressed_to(self, row: OutboxEvent) -> str:
        return row.subscription or row.queue

    @admin.display(description=gettext_lazy("created"), ordering="id")
    def created(self, row: OutboxEvent) -> str:
        return ago(row.created_at)

    @admin.display(description=gettext_lazy("error"))
    def what_failed(self, row: OutboxEvent) -> str:
        return short(row.error)


def confirm_selected(
    action: Action, model_admin: OutboxEventAdmin, request: HttpRequest, rows: QuerySet[Any]
) -> HttpResponse:
    """Answer the list's action: show what it would do to *rows*."""
    target = _url(model_admin, request, f"{action.name}_selected")
    back = _url(model_admin, request, "changelist")
    form = action.form()
    return _confirmation(action, model_admin, request, rows, form, target=target, back=back)


def selected_view(
    action: Action, model_admin: OutboxEventAdmin, request: HttpRequest
) -> HttpResponse:
    """Apply *action* to the rows that the form names; without a form there is nothing to show."""
    require_allowed(action, model_admin, request)
    back = _url(model_admin, request, "changelist")
    if request.method != "POST":
        return redirect(back)
    ids = [key for key, _state in read_chosen(request)]
    rows = model_admin.get_queryset(request).filter(pk__in=ids)
    return _confirm_or_apply(action, model_admin, request, rows, back)


def single_view(
    action: Action, model_admin: OutboxEventAdmin, request: HttpRequest, object_id: str
) -> HttpResponse:
    """Show what *action* would do to one row; by POST, apply it."""
    require_allowed(action, model_admin, request)
    row = model_admin.get_object(request, unquote(object_id))
    if row is None:
        raise Http404(f"There is no {model_admin.opts.verbose_name} {object_id}.")
    rows = model_admin.get_queryset(request).filter(pk=row.pk)
    back = _url(model_admin, request, "change", quote(row.pk))
    return _confirm_or_apply(action, model_admin, request, rows, back)


def require_allowed(action: Action, model_admin: OutboxEventAdmin, request: HttpRequest) -> None:
    """Raise PermissionDenied if the user may not see outbox events, or not change them so."""
    require_view(model_admin, request)
    if denial := action.denial(request.user):
        raise PermissionDenied(denial)


def read_chosen(request: HttpRequest) -> Chosen:
    """Return the rows that the confirmation page named, or raise BadRequest."""
    try:
        pairs = [each.split("_", 1) for each in request.POST.get("selection", "").split()]
        return [(int(key), state) for key, state in pairs[:ROWS_LIMIT]]
    except ValueError:
        raise BadRequest("The selection is not valid.") from None


def _confirm_or_apply(
    action: Action,
    model_admin: OutboxEventAdmin,
    request: HttpRequest,
    rows: QuerySet[Any],
    back: str,
) -> HttpResponse:
    form = action.form(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        target = request.get_full_path()
        return _confirmation(action, model_admin, request, rows, form, target=target, back=back)
    chosen = read_chosen(request)
    done = apply(action, model_admin, request, chosen, form.cleaned_data.get("reason", ""))
    left = len(chosen) - done
    words = [str(action.changed % done), *([str(action.unchanged % left)] if left else [])]
    level = messages.WARNING if left or not done else messages.SUCCESS
    model_admin.message_user(request, f"{', '.join(words)}.", level)
    return redirect(back)


def apply(
    action: Action, model_admin: OutboxEventAdmin, request: HttpRequest, chosen: Chosen, reason: str
) -> int:
    """Change the rows that are still in the state that was shown, and return how many were."""
    rows, using = model_admin.get_queryset(request), database_of(model_admin, request)
    done = 0
    # One transaction: what is done is audited, or not done.
    with transaction.atomic(using=using):
        for key, state in chosen:
            row = rows.using(using).filter(pk=key, state=state).first()
            if row and action.apply(OutboxEvent.objects.using(using).filter(pk=key), row) == 1:
                model_admin.log_change(request, row, action.history(row, reason))
                done += 1
        if done:
            audit.record(
                action.name.replace("_", " "),
                by=request.user.get_username(),
                why=reason,
                selection=f"outbox={','.join(str(key) for key, _state in chosen)}",
                count=done,
                outcome={"changed": done, "left": len(chosen) - done},
                using=using,
            )
    return done


def _confirmation(
    action: Action,
    model_admin: OutboxEventAdmin,
    request: HttpRequest,
    rows: QuerySet[Any],
    form: forms.Form,
    **urls: str,
) -> HttpResponse:
    movable, staying = rows.filter(state__in=action.states), rows.exclude(state__in=action.states)
    # One form field for all of them: Django refuses forms with more than a thousand.
    chosen = list(movable.order_by("pk").values_list("pk", "state")[:ROWS_LIMIT])
    count = movable.count() if len(chosen) == ROWS_LIMIT else len(chosen)
    states, columns = dict(OutboxEvent.State.choices), action.columns
    groups = movable.order_by().values_list(*columns).annotate(count=Count("pk"))
    context = {
        "verb": action,
        "form": form,
        **urls,
        "selection": " ".join(f"{key}_{state}" for key, state in chosen),
        "count": count,
        "is_cut": len(chosen) < count,
        "forecast": action.forecast % len(chosen),
        "staying": [
            (states.get(state, state), number)
            for state, number in staying.order_by("state")
            .values_list("state")
            .annotate(Count("pk"))
        ],
        "columns": [label_for_field(each, OutboxEvent, model_admin) for each in columns],
        "groups": [
            (values, number)
            for *values, number in groups.order_by("-count", *columns)[:GROUPS_LIMIT]
        ],
    }
    return page(model_admin, request, "confirm_outbox", str(action.title), **context)


def _url(model_admin: OutboxEventAdmin, request: HttpRequest, name: str, *args: Any) -> str:
    """Return the URL of a page that leads back to the list as it is filtered."""
    filters = model_admin.get_preserved_filters(request)
    url = page_url(model_admin, name, *args)
    return add_preserved_filters({"preserved_filters": filters, "opts": model_admin.opts}, url)
