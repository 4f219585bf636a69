"""The interface between a broker and the relay and consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from django_eventbus.events.message import Message
from django_eventbus.subscriptions.queue_specs import QueueSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem, or something that could not be checked, with its remedy."""

    #: An error means that messages are lost or do not arrive.
    severity: Literal["error", "warning", "unchecked"]
    #: Stable, for programs.
    code: str
    #: A sentence.
    text: str
    #: What to do about it.
    remedy: str
    #: What the problem is about by name, such as {"queue": "shop.orders"}.
    about: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def error(code: str, text: str, remedy: str, **about: Any) -> Problem:
    return Problem(severity="error", code=code, text=text, remedy=remedy, about=about)


def warning(code: str, text: str, remedy: str, **about: Any) -> Problem:
    return Problem(severity="warning", code=code, text=text, remedy=remedy, about=about)


def unchecked(code: str, text: str, remedy: str, **about: Any) -> Problem:
    return Problem(severity="unchecked", code=code, text=text, remedy=remedy, about=about)


class ToExchange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """To every queue whose binding matches."""

    exchange: str
    routing_key: str


class ToQueue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """To one queue only."""

    queue: str


class ToTier(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """To one queue only, after *delay* seconds in the tier of that delay."""

    queue: str
    delay: float


class ToReply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """To the sender of a question, by its Message.reply_to, if it still waits."""

    reply_to: str


Address = ToExchange | ToQueue | ToTier | ToReply


class Outgoing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message and its address."""

    address: Address
    message: Message


class Confirmed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The broker stored the message in every matching queue."""


class Unroutable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """No queue matched."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The broker refused the message for now; it can be sent again."""

    reason: str


class Rejected(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The broker never accepts this message; it must not be sent again."""

    reason: str


Receipt = Confirmed | Unroutable | Refused | Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How full a queue, its tiers and its DLQ are."""

    queue: str
    #: The messages that wait to be received; None if the queue does not exist.
    messages: int | None
    #: None where the transport does not know.
    consumers: int | None = None
    #: By the label of the delay; "" if the transport has no separate tiers.
    tiers: Mapping[str, int | None]
    #: "" if there is none.
    dlq: str = ""
    dlq_messages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PublishedType:
    """A type that this project publishes, with its exchange and routing key."""

    type: str
    exchange: str
    routing_key: str


class PendingBatch(Protocol):
    """A batch that is ready to be sent; each method is called once."""

    def send(self) -> None:
        """Send all of it, without waiting for confirms. A failure is kept for receipts()."""

    def receipts(self) -> Sequence[Receipt]:
        """Wait for the confirms; see Publisher.publish() for what is returned and raised."""


class Publisher(Protocol):
    """Sends with confirms. May be used from any thread."""

    def open(self) -> None:
        """
        Connect, unless connected; publish() does it too.

        Raise BrokerUnavailable if the broker does not answer or accepts no messages now.
        """

    def prepare(self, batch: Sequence[Outgoing]) -> PendingBatch:
        """Encode *batch*, so that it can be sent at once. A failure is kept for receipts()."""

    def publish(self, batch: Sequence[Outgoing]) -> Sequence[Receipt]:
        """
        Send all of *batch* and return a receipt for every message, in the same order.

        Raise BrokerUnavailable if a receipt does not arrive in time; then any of the messages
        may or may not have been sent.
        """

    def close(self) -> None: ...


class Delivery(Protocol):
    """A received message that is not settled yet. Its methods may be called from any thread."""

    @property
    def message(self) -> Message: ...
    @property
    def queue(self) -> str: ...
    @property
    def is_redelivered(self) -> bool:
        """Whether it may have been delivered before."""

    def ack(self) -> None:
        """Settle it: the broker deletes it. Has no effect if the delivery has been returned."""

    def release(self, after: float = 0) -> None:
        """Return it to be delivered again, after about *after* seconds if the broker supports it."""


class Subscriber(Protocol):
    """Receives from its queues. Its methods may be called from any thread."""

    def receive(self, timeout: float) -> Delivery | None:
        """Return the next delivery, or None after *timeout* seconds without one."""

    def is_drained(self) -> bool:
        """Whether nothing is due in the queues and nothing received is unsettled."""

    def close(self) -> None:
        """
        Stop receiving and return unsettled deliveries; do nothing if closed already.

        The next consumer of an ordered queue gets them before any later message.
        """


class ReplyBox(Protocol):
    """Sends a question and receives the answers. close() removes its queue."""

    def ask(self, address: ToExchange, message: Message) -> Receipt:
        """Send *message* with the address of this box as its reply_to."""

    def receive(self, timeout: float) -> Message | None:
        """Return the next answer, or None after *timeout* seconds without one."""

    def close(self) -> None: ...


class Transport(Protocol):
    """A broker."""

    #: The maximum number of useful handler threads; None means unlimited.
    concurrency_limit: int | None

    def declare(self, queues: Sequence[QueueSpec]) -> None:
        """Declare the queues, their tiers and their bindings. Idempotent."""

    def remove(self, queues: Sequence[QueueSpec]) -> None:
        """Delete the queues with their messages and exchanges. For tests."""

    def dead_letter_queue(self, queue: str) -> str | None:
        """Return the DLQ of *queue*, or None if the transport has none."""

    def owns_dead_letter_queues(self) -> bool:
        """Whether the DLQs belong to this project, so that it may empty them."""

    def diagnose(
        self, queues: Sequence[QueueSpec], published: Sequence[PublishedType]
    ) -> list[Problem]:
        """Return the problems of *queues* and of the delivery of *published*."""

    def levels(self, queues: Sequence[QueueSpec]) -> list[Level]:
        """Return how full *queues* are, without declaring or receiving anything."""

    def publisher(self) -> Publisher: ...
    def subscriber(self, queues: Sequence[str], prefetch: int) -> Subscriber:
        """Receive from *queues*, at most *prefetch* unsettled deliveries of each at a time."""

    def reply_box(self) -> ReplyBox:
        """Connect, and return a box for questions."""
