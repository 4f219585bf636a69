"""
What the package announces. Receivers get keyword arguments and always **kwargs.

Sent with send_robust: a receiver that raises is logged and changes nothing.
The sender is the class named before the colon; `meta` is the Meta of the event.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal

#: Relay: the broker confirmed it. Arguments: row (OutboxEvent).
event_published = Signal()
#: Relay: the broker took it, but no queue wanted it. Arguments: row, policy.
event_unroutable = Signal()
#: Relay: the broker will never take it. Arguments: row, reason.
event_failed = Signal()
#: Consumer. Arguments: meta, seconds.
event_handled = Signal()
#: Consumer: the inbox knew it already. Arguments: meta, state.
event_repeated = Signal()
#: Consumer. Arguments: meta, reason, error (None unless one was raised).
event_skipped = Signal()
#: Consumer: a failed attempt that will be tried again. Arguments: meta, error, delay.
event_retried = Signal()
#: Consumer: too early, comes back without an attempt counted. Arguments: meta, until.
event_deferred = Signal()
#: Consumer: put aside as a dead letter. Arguments: meta, kind, reason, error.
event_parked = Signal()
#: A dead letter was sent back. Arguments: dead_letter.
event_redriven = Signal()
#: Relay or consumer lost or regained a server. Arguments: kind, over (bool), seconds, error.
outage = Signal()


def announce(signal: Signal, sender: object, **details: Any) -> None:
    """Send *signal* so that no receiver can fail a delivery."""
    signal.send_robust(sender, **details)
