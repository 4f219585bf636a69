"""A message on its way through one subscription: how it arrived, and what became of it. Values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django_eventbus.messages import Message
from django_eventbus.outcomes import Outcome
from django_eventbus.subscriptions import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A readable message as it arrived on a queue."""

    message: Message
    payload: Any
    queue: str
    is_redelivered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What became of a message for one subscription, and why."""

    subscription: Subscription | None
    outcome: Outcome
    #: As it was tried, if that is not as it arrived: a later attempt of an ordered one.
    message: Message | None = None
    error: BaseException | None = None
    event: Any = None
    seconds: float = 0.0
    #: In which it was tried; None if nobody traces.
    span: Any = None
