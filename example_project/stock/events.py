"""The event of the stock."""

from __future__ import annotations

from django_eventbus import Event, publish_model_events

from stock.models import StockItem


class StockChanged(Event, type="stock.changed", version=1):
    """A StockItem was saved. Each save publishes this event in the same transaction."""

    item: str
    left: int


publish_model_events(StockItem, updated=StockChanged, fields=["left"])
