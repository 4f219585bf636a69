"""Record what people do: who, when, what, why, to how many dead letters, and the result."""

from __future__ import annotations

from typing import Any

from django_eventbus.conf import conf
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.text import storable, storable_json
from django_eventbus.exceptions import BadSelection
from django_eventbus.models import AuditEntry


def record(
    verb: str,
    *,
    by: str,
    using: str,
    why: str = "",
    selection: Selection | str = "",
    **facts: Any,
) -> AuditEntry:
    """
    Add an entry, in the caller's transaction.

    *facts*: count, plan_id, outcome, note and note_detail. A *selection* may also be text.
    Values that REDACT names are not recorded: the permission to read the audit does not include
    them, and an entry cannot be changed later.
    """
    written = recorded(selection)
    facts["outcome"] = storable_json(facts.get("outcome", {}))
    entry = AuditEntry(
        verb=verb, by=storable(by, 255), why=storable(why, 2000), filter=written, **facts
    )
    entry.save(using=using, force_insert=True)
    return entry


def recorded(selection: Selection | str) -> str:
    """Return *selection* as it is recorded, without the values that REDACT names."""
    if isinstance(selection, Selection):
        return selection.redacted(conf.redact).query()
    try:
        return recorded(Selection.from_query(selection))
    except BadSelection:
        # Outbox events, which have no filters.
        return selection
