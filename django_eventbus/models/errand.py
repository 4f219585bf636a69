"""Errands: what a person asked of the broker, done by a worker."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_eventbus.messages import storable, storable_json
from django_eventbus.models.worker import SILENCE, Worker
from django_eventbus.sentences import gettext_noop, known

#: No errand takes so long: its worker could not write what came of it.
_LONGEST = timedelta(minutes=15)
_ABANDONED = known(
    gettext_noop("Its worker stopped in the middle of it. Look at the DLQ before you ask again.")
)


class ErrandQuerySet(models.QuerySet["Errand"]):
    """Taking errands, and giving up those that nobody does any more."""

    def take(self, worker: Worker) -> Errand | None:
        """Take the errand about one of the worker's queues that was asked first, if any."""
        asked = self.filter(
            state=Errand.State.ASKED, service=worker.service, queue__in=worker.queues
        )
        errand = asked.order_by("id").first()
        if errand is None:
            return None
        now = timezone.now()
        taken = {"state": Errand.State.RUNNING, "worker_id": worker.pk, "taken_at": now}
        # By the statement alone: of two workers that saw it, one changes it.
        if not asked.filter(pk=errand.pk).update(**taken):
            return None
        for name, value in taken.items():
            setattr(errand, name, value)
        return errand

    def give_up(self, now: datetime) -> int:
        """Fail what a worker took that is not heard of any more. It is not done again."""
        running = self.filter(state=Errand.State.RUNNING, taken_at__lt=now - SILENCE)
        live = Worker.objects.using(self.db).live(now).values("pk")
        gone = running.exclude(worker_id__in=live) | running.filter(taken_at__lt=now - _LONGEST)
        return gone.update(state=Errand.State.FAILED, error=_ABANDONED, ended_at=now)


class Errand(models.Model):
    """Something to do on the broker, which no web request may wait for."""

    class Kind(models.TextChoices):
        PEEK = "peek", _("look into the DLQ")
        REDRIVE = "redrive", _("re-drive from the DLQ")

    class State(models.TextChoices):
        ASKED = "asked", _("asked")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")

    kind = models.CharField(max_length=10, choices=Kind.choices)
    state = models.CharField(max_length=10, choices=State.choices, default=State.ASKED)
    service = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    limit = models.PositiveIntegerField()
    reason = models.TextField(blank=True)
    asked_by = models.CharField(max_length=255)
    asked_at = models.DateTimeField(default=timezone.now)
    worker_id = models.UUIDField(null=True, blank=True)
    taken_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    #: What came of it; never a payload.
    result = models.JSONField(default=dict, blank=True)
    error = models.TextField(blank=True)

    objects = ErrandQuerySet.as_manager()

    class Meta:
        verbose_name = _("errand")
        verbose_name_plural = _("errands")
        indexes = (
            models.Index(fields=["queue", "-id"], name="eventbus_errand_queue"),
            models.Index(
                fields=["state", "id"],
                condition=models.Q(state__in=["asked", "running"]),
                name="eventbus_errand_open",
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.queue}"

    @property
    def is_open(self) -> bool:
        return self.state in (self.State.ASKED, self.State.RUNNING)

    def done(self, result: dict[str, Any]) -> None:
        self._end(self.State.DONE, result=storable_json(result))

    def failed(self, reason: str) -> None:
        self._end(self.State.FAILED, error=storable(reason, 2000))

    def _end(self, state: str, **values: Any) -> None:
        changes = {"state": state, "ended_at": timezone.now(), **values}
        # Only while it is ours: it may have been given up meanwhile.
        rows = type(self).objects.using(self._state.db).filter(pk=self.pk)
        rows.filter(state=self.State.RUNNING, worker_id=self.worker_id).update(**changes)
