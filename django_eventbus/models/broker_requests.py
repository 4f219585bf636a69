"""Requests from the admin to a worker that is connected to the broker."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_eventbus.events.text import storable, storable_json
from django_eventbus.models.monitoring import SILENCE, Worker

#: A request that has run for longer is abandoned: its worker could not write the result.
_TIME_LIMIT = timedelta(minutes=15)
_ABANDONED = _(
    "The worker stopped before the request was finished. Check the DLQ before you submit it again."
)


class BrokerRequestQuerySet(models.QuerySet["BrokerRequest"]):
    """Claim requests, and abandon those whose worker died."""

    def claim(self, worker: Worker) -> BrokerRequest | None:
        """Claim the oldest request that waits on one of the worker's queues, if any."""
        waiting = self.filter(
            state=BrokerRequest.State.SUBMITTED, service=worker.service, queue__in=worker.queues
        )
        request = waiting.order_by("id").first()
        if request is None:
            return None
        now = timezone.now()
        claimed = {"state": BrokerRequest.State.RUNNING, "worker_id": worker.pk, "claimed_at": now}
        # Only one of two workers that read the same row can change it with this statement.
        if not waiting.filter(pk=request.pk).update(**claimed):
            return None
        for name, value in claimed.items():
            setattr(request, name, value)
        return request

    def abandon(self, now: datetime) -> int:
        """Close the requests that a worker claimed before it died. They are not run again."""
        running = self.filter(state=BrokerRequest.State.RUNNING, claimed_at__lt=now - SILENCE)
        live = Worker.objects.using(self.db).live(now).values("pk")
        gone = running.exclude(worker_id__in=live) | running.filter(
            claimed_at__lt=now - _TIME_LIMIT
        )
        return gone.update(state=BrokerRequest.State.ABANDONED, ended_at=now)


class BrokerRequest(models.Model):
    """A request to a worker, since no web request may wait for the broker."""

    class Kind(models.TextChoices):
        PEEK = "peek", _("read the DLQ")
        REDRIVE = "redrive", _("re-drive from the DLQ")

    class State(models.TextChoices):
        SUBMITTED = "submitted", _("submitted")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")
        #: Its worker died or took too long, so the result is not known.
        ABANDONED = "abandoned", _("abandoned")

    kind = models.CharField(max_length=10, choices=Kind.choices)
    state = models.CharField(max_length=10, choices=State.choices, default=State.SUBMITTED)
    service = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    limit = models.PositiveIntegerField()
    reason = models.TextField(blank=True)
    submitted_by = models.CharField(max_length=255)
    submitted_at = models.DateTimeField(default=timezone.now)
    worker_id = models.UUIDField(null=True, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    #: Never contains a payload.
    result = models.JSONField(default=dict, blank=True)
    error = models.TextField(blank=True)

    objects = BrokerRequestQuerySet.as_manager()

    class Meta:
        verbose_name = _("broker request")
        verbose_name_plural = _("broker requests")
        indexes = (
            models.Index(fields=["queue", "-id"], name="eventbus_brokerrequest_queue"),
            models.Index(
                fields=["state", "id"],
                condition=models.Q(state__in=["submitted", "running"]),
                name="eventbus_brokerrequest_open",
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.queue}"

    @property
    def is_open(self) -> bool:
        return self.state in (self.State.SUBMITTED, self.State.RUNNING)

    def done(self, result: dict[str, Any]) -> None:
        self._end(self.State.DONE, result=storable_json(result))

    def failed(self, reason: str) -> None:
        self._end(self.State.FAILED, error=storable(reason, 2000))

    @property
    def error_text(self) -> str:
        """The error, or why nobody knows the result, in the reader's language."""
        return str(_ABANDONED) if self.state == self.State.ABANDONED else self.error

    def _end(self, state: str, **values: Any) -> None:
        changes = {"state": state, "ended_at": timezone.now(), **values}
        # Only if the request is still claimed: it may have been abandoned in the meantime.
        rows = type(self).objects.using(self._state.db).filter(pk=self.pk)
        rows.filter(state=self.State.RUNNING, worker_id=self.worker_id).update(**changes)
