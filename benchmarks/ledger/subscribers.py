"""The handler under load."""

from __future__ import annotations

from benchmarks.ledger.models import Entry
from django_eventbus import subscribe


@subscribe("order.*", name="ledger.enter")
def enter(event):
    """Write one row."""
    Entry.objects.create(event_id=event.meta.id)
