"""The pages of rows that carry a message: outbox events and dead letters."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_eventbus.admin.formatting import render_body, render_headers, render_text
from django_eventbus.admin.model_admin import ReadOnlyAdmin
from django_eventbus.admin.pages import page_url
from django_eventbus.admin.permissions import denial_for, hidden_from, may
from django_eventbus.admin.related import lineage_of
from django_eventbus.conf import conf
from django_eventbus.conf.parsers import TRACE_ID
from django_eventbus.dead_letters.redaction import redacted
from django_eventbus.observability.tracing.tracer import trace_id_in


def trace_id_of(row: Any) -> str:
    """Return the trace id of *row*; "" if it has none, or it is hidden from the user."""
    return trace_id_in(redacted(row.headers, "headers", row.hidden))


def trace_link(trace_id: str) -> str:
    """Return *trace_id*, as a link if TRACE_URL is set."""
    if conf.trace_url is None:
        return trace_id
    url = conf.trace_url.replace(TRACE_ID, trace_id)
    return format_html('<a href="{}" rel="noreferrer">{}</a>', url, trace_id)


def without(name: str, fieldsets: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return *fieldsets* without the field *name*."""
    return [
        (title, {**options, "fields": tuple(each for each in options["fields"] if each != name)})
        for title, options in fieldsets
    ]


MESSAGE_FIELDS = (
    "message_id", "type", "source", "sent_at", "correlation_id", "trace", "exchange", "routing_key",
    "content_type", "body_shown", "headers_shown",
)  # fmt: skip


class MessageAdmin(ReadOnlyAdmin):
    """Shows the start of the body, and the headers as a table."""

    deferred: ClassVar[tuple[str, ...]] = ("body", "headers")
    readonly_fields: ClassVar[Any] = ("body_shown", "headers_shown", "trace", "whole_error")

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_body"
        view = self.admin_site.admin_view(self.body_view)
        return [path("<path:object_id>/body/", view, name=name), *super().get_urls()]

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return the row, with the rules that hide values from the user."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            # Kept on the row: Django calls the functions of fields without the request.
            row.hidden = hidden_from(request.user, row.queue)
        return row

    def body_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Download the exact bytes, as a file that no browser opens as another type."""
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404(f"There is no {self.opts.verbose_name} {object_id}.")
        allowed = self.has_view_permission(request, row)
        if not (allowed and may(request.user, "see_sensitive", row.queue)):
            raise PermissionDenied
        return HttpResponse(
            bytes(row.body),
            content_type="application/octet-stream",
            headers={
                "Content-Disposition": f'attachment; filename="{self.opts.model_name}-{row.pk}.bin"',
                "X-Content-Type-Options": "nosniff",
            },
        )

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context["original"]
        context["lineage"] = lineage_of(request, self.admin_site, row)
        if denial := denial_for(request.user, "see_sensitive", row.queue):
            context["body_denial"] = denial
        else:
            context["body_url"] = page_url(self, "body", quote(row.pk))
        return super().render_change_form(request, context, *args, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out the trace id if there is none."""
        fieldsets = super().get_fieldsets(request, obj)
        return fieldsets if obj and trace_id_of(obj) else without("trace", fieldsets)

    @admin.display(description=_("trace id"))
    def trace(self, row: Any) -> str:
        return trace_link(trace_id_of(row))

    @admin.display(description=_("body"))
    def body_shown(self, row: Any) -> str:
        return render_body(row, row.hidden)

    @admin.display(description=_("headers"))
    def headers_shown(self, row: Any) -> str:
        return render_headers(redacted(row.headers, "headers", row.hidden))

    @admin.display(description=_("error"))
    def whole_error(self, row: Any) -> str:
        return render_text(row.error)
