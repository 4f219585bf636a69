"""The delayed event that notifications publish for themselves."""

from __future__ import annotations

from django_eventbus import Event


class OpinionWanted(Event, type="opinion.wanted", version=1):
    """The parcel should have arrived, so ask the customer for an opinion."""

    order_id: int
    email: str
