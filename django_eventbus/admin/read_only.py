"""What all screens share: they show rows, and change none."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.views.main import ERROR_FLAG, SEARCH_VAR
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_eventbus.admin.paging import CappedPaginator
from django_eventbus.admin.related import attempts_of, elsewhere
from django_eventbus.messages import is_storable

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class PlainReadOnlyAdmin(_ModelAdmin):
    """Lists and pages without add, change and delete."""

    show_full_result_count = False
    list_per_page = 50
    paginator = CappedPaginator

    class Media:
        css = {"all": ["eventbus/admin.css"]}

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Leave out filters that PostgreSQL could not compare with, as Django does with wrong ones."""
        # Django itself refuses what cannot be searched for.
        filters = ((name, each) for name, each in request.GET.lists() if name != SEARCH_VAR)
        if all(is_storable("".join((name, *texts))) for name, texts in filters):
            return super().changelist_view(request, extra_context)
        return redirect(f"{request.path}?{ERROR_FLAG}=1")

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return the row, or None: also for a key that PostgreSQL could not compare with."""
        is_key = is_storable(object_id)
        return super().get_object(request, object_id, from_field) if is_key else None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        context["has_history"] = has_history(context["original"])
        return super().render_change_form(request, context, *args, **kwargs)


class ReadOnlyAdmin(PlainReadOnlyAdmin):
    """Lists and pages of what is known of messages."""

    #: Columns that may be large: read on the page of one row, where it shows them.
    deferred: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self.deferred)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context["original"]
        context["attempts"] = attempts_of(row)
        context["elsewhere"] = elsewhere(request, self.admin_site, row)
        return super().render_change_form(request, context, *args, **kwargs)


def has_history(row: Model) -> bool:
    """Whether Django's admin has anything to tell of *row*: most is in the audit alone."""
    kind = ContentType.objects.get_for_model(row)
    return LogEntry.objects.filter(content_type=kind, object_id=str(row.pk)).exists()


class ValuesFilter(admin.SimpleListFilter):
    """A filter by the values that a column holds in the latest rows, of which it lists some."""

    limit = 30
    #: The rows that are looked at: a look at all of them would take seconds.
    latest = 10_000

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        column = self.parameter_name
        rows = model_admin.get_queryset(request).order_by("-pk")
        found = set(rows.values_list(column, flat=True)[: self.latest])
        if self.value() is not None:
            found.add(self.value())
        return [(value, value or _("none")) for value in sorted(found)[: self.limit]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else queryset.filter((str(self.parameter_name), value))


class TypeFilter(ValuesFilter):
    """By type."""

    title = gettext_lazy("type")
    parameter_name = "type"


class QueueFilter(ValuesFilter):
    """By queue."""

    title = gettext_lazy("queue")
    parameter_name = "queue"


class SubscriptionFilter(ValuesFilter):
    """By subscription."""

    title = gettext_lazy("subscription")
    parameter_name = "subscription"


class ErrorTypeFilter(ValuesFilter):
    """By error type."""

    title = gettext_lazy("error type")
    parameter_name = "error_type"


def ago(moment: datetime | None) -> str:
    """Render how long ago *moment* was, with the moment itself on hover."""
    if moment is None:
        return "-"
    local = localised(moment)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(),
        date_format(local, "DATETIME_FORMAT"),
        _age(moment),
    )


def localised(moment: datetime) -> datetime:
    """Return *moment* in the time zone that pages are in."""
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def _age(moment: datetime) -> str:
    if timezone.now() - moment < timedelta(minutes=1):
        return _("just now")
    return timesince(moment, time_strings=_AGO, depth=1)


#: Whole, not put together of an age and a word: in German, the age would have another ending.
_AGO: dict[str, Any] = {
    "year": ngettext_lazy("%(num)d year ago", "%(num)d years ago", "num"),
    "month": ngettext_lazy("%(num)d month ago", "%(num)d months ago", "num"),
    "week": ngettext_lazy("%(num)d week ago", "%(num)d weeks ago", "num"),
    "day": ngettext_lazy("%(num)d day ago", "%(num)d days ago", "num"),
    "hour": ngettext_lazy("%(num)d hour ago", "%(num)d hours ago", "num"),
    "minute": ngettext_lazy("%(num)d minute ago", "%(num)d minutes ago", "num"),
}
