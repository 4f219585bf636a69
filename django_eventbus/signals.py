"""
What the package announces. Receivers get keyword arguments and always **kwargs.

Sent with send_robust: a receiver that raises is logged and changes nothing.
The sender is the class named before the colon; `meta` is the Meta of the event.
Those of the consumer also have seconds, which a handling took, and size, the bytes of the body.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal

#: Relay: the broker confirmed it. Arguments: row (OutboxEvent).
event_published = Signal(use_caching=True)
#: Relay: the broker took it, but no queue wanted it. Arguments: row, policy.
event_unroutable = Signal(use_caching=True)
#: Relay: the broker will never take it. Arguments: row, reason.
event_failed = Signal(use_caching=True)
#: Consumer. Arguments: meta.
event_handled = Signal(use_caching=True)
#: Consumer: the inbox knew it already. Arguments: meta, state.
event_repeated = Signal(use_caching=True)
#: Consumer. Arguments: meta, reason, error (None unless one was raised).
event_skipped = Signal(use_caching=True)
#: Consumer: a failed attempt that will be tried again. Arguments: meta, error, delay.
event_retried = Signal(use_caching=True)
#: Consumer: too early, comes back without an attempt counted. Arguments: meta, until.
event_deferred = Signal(use_caching=True)
#: Consumer: put aside as a dead letter. Arguments: meta, kind, reason, error.
event_parked = Signal(use_caching=True)
#: A dead letter was sent back. Arguments: dead_letter.
event_redriven = Signal(use_caching=True)
#: A process lost or regained a server. Arguments: part, kind, over (bool), seconds, error.
outage = Signal()


def announce(signal: Signal, sender: object, **details: Any) -> None:
    """Send *signal* so that no receiver can fail a delivery."""
    signal.send_robust(sender, **details)
