"""The tables. The methods of a row are its transitions; each file has related tables."""

from __future__ import annotations

from django_eventbus.models.audit import AuditEntry
from django_eventbus.models.broker_requests import BrokerRequest
from django_eventbus.models.database_queues import Binding, QueuedMessage
from django_eventbus.models.dead_letters import DeadLetter, FailureGroup
from django_eventbus.models.inbox import Attempt, InboxMark, InboxRecord
from django_eventbus.models.monitoring import Outage, Queue, Throughput, Worker
from django_eventbus.models.outbox import OutboxEvent, RelayLease
from django_eventbus.models.plans import Plan, PlannedLetter

__all__ = [
    "Attempt",
    "AuditEntry",
    "Binding",
    "BrokerRequest",
    "DeadLetter",
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
