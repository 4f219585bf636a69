"""The model admins, a module each. Rows are read-only; what changes them is confirmed by a person."""

from __future__ import annotations

from django_eventbus.admin.audit import AuditEntryAdmin
from django_eventbus.admin.dead_letters.model_admin import DeadLetterAdmin
from django_eventbus.admin.inbox import InboxRecordAdmin
from django_eventbus.admin.outbox import OutboxEventAdmin
from django_eventbus.admin.plans import PlanAdmin
from django_eventbus.admin.queues import QueueAdmin
from django_eventbus.admin.workers import OutageAdmin, WorkerAdmin

__all__ = [
    "AuditEntryAdmin",
    "DeadLetterAdmin",
    "InboxRecordAdmin",
    "OutageAdmin",
    "OutboxEventAdmin",
    "PlanAdmin",
    "QueueAdmin",
    "WorkerAdmin",
]
