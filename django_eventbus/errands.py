"""Do on the broker what was asked for on a page, beside the work, and write down what came of it."""

from __future__ import annotations

import sys
import threading
from typing import Any

from django.db import DEFAULT_DB_ALIAS, transaction
from django.utils import timezone

from django_eventbus.broker_dead_letters import BrokerRedrive, find_dead_letter_queue, peek
from django_eventbus.conf import conf
from django_eventbus.dlq_audit import DlqAudit
from django_eventbus.exceptions import EventBusError
from django_eventbus.messages import storable
from django_eventbus.models import Errand, Queue, Worker
from django_eventbus.subscriptions import registry
from django_eventbus.transports.contract import Transport

#: Seconds between two looks for errands.
LOOK_EVERY = 2.0
#: The most that one errand takes, by its kind.
MOST: dict[str, int] = {Errand.Kind.PEEK: 50, Errand.Kind.REDRIVE: 1000}
#: Of what stays in the DLQ, so many are named.
_NAMED = 50
#: Of what was moved, so many.
_FIRST = 10


def ask(kind: str, queue: str, *, limit: int, by: str, reason: str = "") -> Errand:
    """Ask the workers of this service to do it, soon."""
    with transaction.atomic(using=DEFAULT_DB_ALIAS):
        errand = Errand(
            kind=kind,
            service=conf.service,
            queue=queue,
            limit=min(limit, MOST[kind]),
            asked_by=storable(by, 255),
            reason=storable(reason, 2000),
        )
        errand.save(using=DEFAULT_DB_ALIAS, force_insert=True)
        _audit_of(errand).asked(kind, errand.limit)
    return errand


def owners_of_dlq(queue: str) -> list[str]:
    """Return *queue*, and the others whose dead messages lie in the same DLQ."""
    dlq = _dlq_of(queue)
    named = {each for each in registry.queues() if _dlq_of(each) == dlq}
    rows = Queue.objects.using(DEFAULT_DB_ALIAS)
    # Also those of other services, and of before: their messages are seen there too.
    own = rows.filter(name=queue).exclude(dlq="").values("dlq")
    return sorted({queue, *named, *rows.filter(dlq__in=own).values_list("name", flat=True)})


def _dlq_of(queue: str) -> str:
    return conf.queue_part("dead_letter_queue", queue)


class ErrandRunner:
    """Takes the errands of a worker's service, one at a time."""

    def __init__(self, transport: Transport, worker: Worker, stop: threading.Event) -> None:
        self.transport = transport
        self.worker = worker
        self.stop = stop

    def look(self) -> None:
        """Do all errands that wait."""
        errands = Errand.objects.using(DEFAULT_DB_ALIAS)
        errands.give_up(timezone.now())
        while not self.stop.is_set() and (errand := errands.take(self.worker)):
            self._run(errand)

    def _run(self, errand: Errand) -> None:
        try:
            result = self._do(errand)
        except EventBusError as error:
            with transaction.atomic(using=DEFAULT_DB_ALIAS):
                errand.failed(str(error))
                if errand.kind == Errand.Kind.REDRIVE:
                    _audit_of(errand).failed_to_redrive(error)
            return
        sys.audit("eventbus.errands.worked")
        with transaction.atomic(using=DEFAULT_DB_ALIAS):
            errand.done(result)
            if errand.kind == Errand.Kind.REDRIVE:
                _audit_of(errand).redrove(result["moved"], result["stayed"])

    def _do(self, errand: Errand) -> dict[str, Any]:
        dlq = find_dead_letter_queue(self.transport, errand.queue)
        if errand.kind == Errand.Kind.PEEK:
            now = timezone.now()
            found = peek(self.transport, dlq, errand.limit)
            return {"messages": [each.facts(now) for each in found]}
        redrive = BrokerRedrive(self.transport, dlq, by=errand.asked_by, stop=self.stop)
        moved = redrive.run(errand.limit)
        return {
            "moved": len(moved.moved),
            "first": moved.moved[:_FIRST],
            "stayed": len(moved.left),
            "left": dict(list(moved.left.items())[:_NAMED]),
        }


def _audit_of(errand: Errand) -> DlqAudit:
    return DlqAudit(
        queues=owners_of_dlq(errand.queue),
        by=errand.asked_by,
        why=errand.reason,
        using=DEFAULT_DB_ALIAS,
    )
