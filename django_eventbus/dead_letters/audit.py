"""Record what people do: who, when, what, why, to how many dead letters, and the result."""

from __future__ import annotations

from typing import Any

from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.text import storable, storable_json
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
    """
    written = selection.query() if isinstance(selection, Selection) else selection
    facts["outcome"] = storable_json(facts.get("outcome", {}))
    entry = AuditEntry(
        verb=verb, by=storable(by, 255), why=storable(why, 2000), filter=written, **facts
    )
    entry.save(using=using, force_insert=True)
    return entry
