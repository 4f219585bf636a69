"""What notifications tell themselves, later."""

from __future__ import annotations

from django_eventbus import Event


class OpinionWanted(Event, type="opinion.wanted", version=1):
    """The parcel has had time to arrive: ask how it was."""

    order_id: int
    email: str
