"""One file per table: rows are nouns of state, transitions are verbs on them."""

from __future__ import annotations

from django_eventbus.models.attempt import Attempt
from django_eventbus.models.audit_entry import AuditEntry
from django_eventbus.models.binding import Binding
from django_eventbus.models.dead_letter import DeadLetter
from django_eventbus.models.errand import Errand
from django_eventbus.models.failure_group import FailureGroup
from django_eventbus.models.inbox_mark import InboxMark
from django_eventbus.models.inbox_record import InboxRecord
from django_eventbus.models.outage import Outage
from django_eventbus.models.outbox_event import OutboxEvent
from django_eventbus.models.plan import Plan
from django_eventbus.models.planned_letter import PlannedLetter
from django_eventbus.models.queue import Queue
from django_eventbus.models.queued_message import QueuedMessage
from django_eventbus.models.relay_lease import RelayLease
from django_eventbus.models.throughput import Throughput
from django_eventbus.models.worker import Worker

__all__ = [
    "Attempt",
    "AuditEntry",
    "Binding",
    "DeadLetter",
    "Errand",
    "FailureGroup",
    "InboxMark",
    "InboxRecord",
    "Outage",
    "OutboxEvent",
    "Plan",
    "PlannedLetter",
    "Queue",
    "QueuedMessage",
    "RelayLease",
    "Throughput",
    "Worker",
]
