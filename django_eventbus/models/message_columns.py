"""The columns of a message, shared by the tables that store one."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_eventbus.events.message import Message
from django_eventbus.events.text import storable, storable_json


def message_index(name: str) -> models.Index:
    """Return one index that finds message ids by value and, on PostgreSQL, by their beginning."""
    # db_index=True would create two indexes on PostgreSQL, which makes each write slower.
    return models.Index(fields=["message_id"], name=name, opclasses=["varchar_pattern_ops"])


class MessageColumns(models.Model):
    """A message in columns. The body is bytes, so that it can be sent again unchanged."""

    #: Not a UUID, because other services use other ids.
    message_id = models.CharField(_("message id"), max_length=255, blank=True)
    type = models.CharField(_("type"), max_length=255, blank=True)
    body = models.BinaryField(_("body"))
    content_type = models.CharField(
        _("content type"), max_length=255, default="application/json", blank=True
    )
    #: The service that published the event.
    source = models.CharField(_("source"), max_length=255, blank=True)
    sent_at = models.DateTimeField(_("sent at"), null=True, blank=True)
    correlation_id = models.CharField(_("correlation id"), max_length=255, blank=True)
    headers = models.JSONField(_("headers"), default=dict, blank=True)
    exchange = models.CharField(_("exchange"), max_length=255, blank=True)
    routing_key = models.CharField(_("routing key"), max_length=255, blank=True)

    class Meta:
        abstract = True

    def message(self, **headers: Any) -> Message:
        """Return the message of the row with additional *headers*."""
        return Message(
            id=self.message_id,
            type=self.type,
            body=bytes(self.body),
            content_type=self.content_type,
            source=self.source,
            sent_at=self.sent_at,
            correlation_id=self.correlation_id,
            headers={**self.headers, **headers},
            exchange=self.exchange,
            routing_key=self.routing_key,
        )


def message_columns(message: Message) -> dict[str, Any]:
    """Return *message* as values for the columns that every database accepts."""
    return {
        "message_id": storable(message.id, 255),
        "type": storable(message.type, 255),
        "body": message.body,
        "content_type": storable(message.content_type, 255),
        "source": storable(message.source, 255),
        "sent_at": message.sent_at,
        "correlation_id": storable(message.correlation_id, 255),
        "headers": storable_json(message.headers),
        "exchange": storable(message.exchange, 255),
        "routing_key": storable(message.routing_key, 255),
    }
