"""
The signals of the package. A receiver must accept **kwargs.

They are sent with send_robust(): an error in a receiver is logged and has no other effect.
The sender is the class before the colon; `meta` is the Meta of the event.
The signals of Consumer also have `seconds`, the duration of the handling, and `size`, the bytes of
the body.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal

#: Relay: the broker confirmed it. Arguments: row (OutboxEvent).
event_published = Signal(use_caching=True)
#: Relay: no queue is bound to receive it. Arguments: row, policy.
event_unroutable = Signal(use_caching=True)
#: Relay: the broker rejected it and will never accept it. Arguments: row, reason.
event_failed = Signal(use_caching=True)
#: Consumer. Arguments: meta.
event_handled = Signal(use_caching=True)
#: Consumer: the inbox already had a record of it. Arguments: meta, state.
event_repeated = Signal(use_caching=True)
#: Consumer. Arguments: meta, reason, error (None unless one was raised).
event_skipped = Signal(use_caching=True)
#: Consumer: the attempt failed and is retried. Arguments: meta, error, delay.
event_retried = Signal(use_caching=True)
#: Consumer: it is delivered again later; no attempt is counted. Arguments: meta, until.
event_deferred = Signal(use_caching=True)
#: Consumer: it became a dead letter. Arguments: meta, kind, reason, error.
event_parked = Signal(use_caching=True)
#: DeadLetter: it was re-driven. Arguments: dead_letter.
event_redriven = Signal(use_caching=True)
#: A process lost or regained a server. Arguments: part, kind, over (bool), seconds, error.
outage = Signal()


def announce(signal: Signal, sender: object, **details: Any) -> None:
    """Send *signal* so that no receiver can fail a delivery."""
    signal.send_robust(sender, **details)
