"""What the screens of rows that carry a message share."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from django_eventbus.admin.confirmation import ConfirmingAdmin
from django_eventbus.admin.excerpts import body_of, headers_of, text_of
from django_eventbus.admin.lineage import lineage_of
from django_eventbus.admin.traces import trace_id_of, trace_link, without
from django_eventbus.permissions import hidden_from, may, why_not
from django_eventbus.redaction import redacted

MESSAGE_FIELDS = (
    "message_id", "type", "source", "sent_at", "correlation_id", "trace", "exchange", "routing_key",
    "content_type", "body_shown", "headers_shown",
)  # fmt: skip


class CarriedMessageAdmin(ConfirmingAdmin):
    """Shows the message with its body cut and its headers in a table."""

    deferred: ClassVar[tuple[str, ...]] = ("body", "headers")
    readonly_fields: ClassVar[Any] = ("body_shown", "headers_shown", "trace", "whole_error")

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_body"
        view = self.admin_site.admin_view(self.body_view)
        return [path("<path:object_id>/body/", view, name=name), *super().get_urls()]

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return the row, with what is to be hidden of it from the user."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            # On the row: Django shows fields by functions that are not told who asks.
            row.hidden = hidden_from(request.user, row.queue)
        return row

    def body_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Download the exact bytes: as a file that no browser opens as anything else."""
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
        if refusal := why_not(request.user, "see_sensitive", row.queue):
            context["body_why_not"] = refusal
        else:
            context["body_url"] = self._url(request, "body", row)
        return super().render_change_form(request, context, *args, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out what nothing is known of."""
        fieldsets = super().get_fieldsets(request, obj)
        return fieldsets if obj and trace_id_of(obj) else without("trace", fieldsets)

    @admin.display(description=_("trace id"))
    def trace(self, row: Any) -> str:
        return trace_link(trace_id_of(row))

    @admin.display(description=_("body"))
    def body_shown(self, row: Any) -> str:
        return body_of(row, row.hidden)

    @admin.display(description=_("headers"))
    def headers_shown(self, row: Any) -> str:
        return headers_of(redacted(row.headers, "headers", row.hidden))

    @admin.display(description=_("error"))
    def whole_error(self, row: Any) -> str:
        return text_of(row.error)
