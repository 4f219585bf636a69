"""Read-only model admins for tables that may hold millions of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.filters import FieldListFilter
from django.contrib.admin.models import LogEntry
from django.contrib.admin.views.main import ERROR_FLAG, SEARCH_VAR
from django.contrib.contenttypes.models import ContentType
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_eventbus.admin.pages import error_page
from django_eventbus.admin.related import attempts_of, other_rows
from django_eventbus.admin.statement_limit import (
    StatementTimeout,
    limited_statements,
    timeout_text,
)
from django_eventbus.events.text import is_storable

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

#: Rows that can be paged through; older rows are found by a filter or a search.
PAGING_LIMIT = 10_000


class CappedPaginator(_Paginator):
    """Counts no further than PAGING_LIMIT, which is fast on every database."""

    @cached_property
    def count(self) -> int:
        """The number of rows that can be paged through."""
        return min(self._counted, PAGING_LIMIT)

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        # The order stays: without it PostgreSQL may choose a scan that finds matching rows late.
        return int(rows[: PAGING_LIMIT + 1].count())

    @property
    def is_cut(self) -> bool:
        """Whether there are more rows."""
        return self._counted > PAGING_LIMIT


if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class PlainReadOnlyAdmin(_ModelAdmin):
    """Lists and pages without add, change and delete."""

    show_full_result_count = False
    list_per_page = 50
    paginator = CappedPaginator
    #: Lookups in links of other pages, beside those of list_filter.
    linked_lookups: ClassVar[tuple[str, ...]] = ()

    class Media:
        css = {"all": ["eventbus/admin.css"]}

    @property
    def urls(self) -> list[URLPattern]:
        """The pages of get_urls(), also of subclasses, each with limited statements."""
        patterns = super().urls
        for pattern in patterns:
            pattern.callback = self._limited(pattern.callback)
        return patterns

    def _limited(self, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                with limited_statements():
                    response = view(request, *args, **kwargs)
                    # Most queries of a list run while its template is rendered.
                    return response.render() if isinstance(response, TemplateResponse) else response
            except StatementTimeout:
                return error_page(self, request, _("This took too long"), timeout_text(), 503)

        return answer

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow only the filters that the page offers: by any other, a user could guess a hidden value."""
        return lookup in self.linked_lookups or lookup in self._offered_lookups(request)

    def _offered_lookups(self, request: Any) -> Iterator[str]:
        filters: Any = self.list_filter
        for each in filters:
            if isinstance(each, str):
                field: Any = self.opts.get_field(each)
                found: Any = FieldListFilter.create(field, request, {}, self.model, self, each)
                yield from found.expected_parameters()
            else:
                yield each.parameter_name

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Redirect without filters that PostgreSQL cannot compare with, as Django does with invalid ones."""
        # Django itself rejects search terms that cannot be compared with.
        filters = ((name, each) for name, each in request.GET.lists() if name != SEARCH_VAR)
        if all(is_storable("".join((name, *texts))) for name, texts in filters):
            return super().changelist_view(request, extra_context)
        return redirect(f"{request.path}?{ERROR_FLAG}=1")

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return the row, or None; also for a key that PostgreSQL cannot compare with."""
        is_key = is_storable(object_id)
        return super().get_object(request, object_id, from_field) if is_key else None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may view; Django itself also accepts the permission to change."""
        codename = f"{self.opts.app_label}.view_{self.opts.model_name}"
        return bool(request.user.has_perm(codename))

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
    """Lists and pages of messages, with their attempts and their other rows."""

    #: Columns that may be large: they are read only on the page of one row.
    deferred: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self.deferred)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context["original"]
        context["attempts"] = attempts_of(row)
        context["other_rows"] = other_rows(request, self.admin_site, row)
        return super().render_change_form(request, context, *args, **kwargs)


def has_history(row: Model) -> bool:
    """Whether Django's admin has log entries of *row*: most changes are in the audit only."""
    kind = ContentType.objects.get_for_model(row)
    return LogEntry.objects.filter(content_type=kind, object_id=str(row.pk)).exists()


class ValuesFilter(admin.SimpleListFilter):
    """A filter by the values of a column in the latest rows; it lists some of them."""

    limit = 30
    #: The rows that are read: reading all of them would take seconds.
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


def ago(time: datetime | None) -> str:
    """Render how long ago *time* was, with the time itself on hover."""
    if time is None:
        return "-"
    local = localised(time)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(),
        date_format(local, "DATETIME_FORMAT"),
        _age(time),
    )


def localised(time: datetime) -> datetime:
    """Return *time* in the current time zone."""
    return timezone.localtime(time) if timezone.is_aware(time) else time


def _age(time: datetime) -> str:
    if timezone.now() - time < timedelta(minutes=1):
        return _("just now")
    return timesince(time, time_strings=_AGO, depth=1)


#: Whole phrases: an age and "ago" put together would have the wrong ending in German.
_AGO: dict[str, Any] = {
    "year": ngettext_lazy("%(num)d year ago", "%(num)d years ago", "num"),
    "month": ngettext_lazy("%(num)d month ago", "%(num)d months ago", "num"),
    "week": ngettext_lazy("%(num)d week ago", "%(num)d weeks ago", "num"),
    "day": ngettext_lazy("%(num)d day ago", "%(num)d days ago", "num"),
    "hour": ngettext_lazy("%(num)d hour ago", "%(num)d hours ago", "num"),
    "minute": ngettext_lazy("%(num)d minute ago", "%(num)d minutes ago", "num"),
}
