"""Submit requests from the admin, and run them in a worker that is connected to the broker."""

from __future__ import annotations

import sys
import threading
from typing import Any

from django.db import DEFAULT_DB_ALIAS, transaction
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.events.text import storable
from django_eventbus.exceptions import EventBusError
from django_eventbus.models import BrokerRequest, Queue, Worker
from django_eventbus.redrive.from_broker import (
    BrokerRedrive,
    DlqAudit,
    find_dead_letter_queue,
    peek,
)
from django_eventbus.subscriptions.subscription import registry
from django_eventbus.transports.contract import Transport

#: Seconds between two checks for new requests.
CHECK_EVERY = 2.0
#: How many messages one request may read or move, by its kind.
LIMITS: dict[str, int] = {BrokerRequest.Kind.PEEK: 50, BrokerRequest.Kind.REDRIVE: 1000}
#: How many of the messages that stayed in the DLQ a result names.
_NAMED_LEFT = 50
#: How many of the moved messages a result names.
_NAMED_MOVED = 10


def submit(kind: str, queue: str, *, limit: int, by: str, reason: str = "") -> BrokerRequest:
    """Submit a request to the workers of this service, and audit it."""
    with transaction.atomic(using=DEFAULT_DB_ALIAS):
        request = BrokerRequest(
            kind=kind,
            service=conf.service,
            queue=queue,
            limit=min(limit, LIMITS[kind]),
            submitted_by=storable(by, 255),
            reason=storable(reason, 2000),
        )
        request.save(using=DEFAULT_DB_ALIAS, force_insert=True)
        _audit_of(request).record_request(kind, request.limit)
    return request


def owners_of_dlq(queue: str) -> list[str]:
    """Return *queue*, and the other queues that share its DLQ."""
    dlq = _dlq_of(queue)
    named = {each for each in registry.queues() if _dlq_of(each) == dlq}
    rows = Queue.objects.using(DEFAULT_DB_ALIAS)
    # Include queues of other services and former ones: their messages are visible there too.
    own = rows.filter(name=queue).exclude(dlq="").values("dlq")
    return sorted({queue, *named, *rows.filter(dlq__in=own).values_list("name", flat=True)})


def _dlq_of(queue: str) -> str:
    return conf.queue_part("dead_letter_queue", queue)


class BrokerRequestRunner:
    """Runs the requests to a worker's service, one at a time."""

    def __init__(self, transport: Transport, worker: Worker, stop: threading.Event) -> None:
        self.transport = transport
        self.worker = worker
        self.stop = stop

    def run_waiting(self) -> None:
        """Abandon the requests of dead workers, then run all that wait."""
        requests = BrokerRequest.objects.using(DEFAULT_DB_ALIAS)
        requests.abandon(timezone.now())
        while not self.stop.is_set() and (request := requests.claim(self.worker)):
            self._run(request)

    def _run(self, request: BrokerRequest) -> None:
        try:
            result = self._result(request)
        except EventBusError as error:
            with transaction.atomic(using=DEFAULT_DB_ALIAS):
                request.failed(str(error))
                if request.kind == BrokerRequest.Kind.REDRIVE:
                    _audit_of(request).failed_to_redrive(error)
            return
        sys.audit("eventbus.errands.worked")
        with transaction.atomic(using=DEFAULT_DB_ALIAS):
            request.done(result)
            if request.kind == BrokerRequest.Kind.REDRIVE:
                _audit_of(request).redrove(result["moved"], result["stayed"])

    def _result(self, request: BrokerRequest) -> dict[str, Any]:
        dlq = find_dead_letter_queue(self.transport, request.queue)
        if request.kind == BrokerRequest.Kind.PEEK:
            now = timezone.now()
            found = peek(self.transport, dlq, request.limit)
            return {"messages": [each.facts(now) for each in found]}
        redrive = BrokerRedrive(self.transport, dlq, by=request.submitted_by, stop=self.stop)
        moved = redrive.run(request.limit)
        return {
            "moved": len(moved.moved),
            "first": moved.moved[:_NAMED_MOVED],
            "stayed": len(moved.left),
            "left": {key: moved.left[key]._asdict() for key in list(moved.left)[:_NAMED_LEFT]},
        }


def _audit_of(request: BrokerRequest) -> DlqAudit:
    return DlqAudit(
        queues=owners_of_dlq(request.queue),
        by=request.submitted_by,
        why=request.reason,
        using=DEFAULT_DB_ALIAS,
    )
