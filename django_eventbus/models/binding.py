"""Bindings of the database transport."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import models


class BindingQuerySet(models.QuerySet["Binding"]):
    """Bindings are written by consumers and relays when they start."""

    def bind(self, exchange: str, queue: str, patterns: Iterable[str]) -> None:
        """Bind *queue* to *exchange* by *patterns* too."""
        # Nothing is unbound: an older process that starts again during a deploy would take
        # away what a newer one has just bound.
        self.bulk_create(
            [Binding(exchange=exchange, queue=queue, pattern=each) for each in sorted(patterns)],
            ignore_conflicts=True,
        )


class Binding(models.Model):
    """A queue's wish for what an exchange is sent."""

    exchange = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    pattern = models.CharField(max_length=255)

    objects = BindingQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["exchange", "queue", "pattern"], name="eventbus_binding_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.exchange} → {self.queue} by {self.pattern}"
