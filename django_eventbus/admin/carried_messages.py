"""What the screens of rows that carry a message share."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from django_eventbus.admin.confirmation import ConfirmingAdmin
from django_eventbus.admin.excerpts import body_of, headers_of, text_of
from django_eventbus.models.carried_message import CarriedMessage

MESSAGE_FIELDS = (
    "message_id", "type", "source", "sent_at", "correlation_id", "exchange", "routing_key",
    "content_type", "body_shown", "headers_shown",
)  # fmt: skip


class CarriedMessageAdmin(ConfirmingAdmin):
    """Shows the message with its body cut and its headers in a table."""

    deferred: ClassVar[tuple[str, ...]] = ("body", "headers")
    readonly_fields: ClassVar[Any] = ("body_shown", "headers_shown", "whole_error")

    @admin.display(description=_("body"))
    def body_shown(self, row: CarriedMessage) -> str:
        return body_of(row)

    @admin.display(description=_("headers"))
    def headers_shown(self, row: CarriedMessage) -> str:
        return headers_of(row.headers)

    @admin.display(description=_("error"))
    def whole_error(self, row: Any) -> str:
        return text_of(row.error)
