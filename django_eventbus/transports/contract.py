"""What the relay and the consumer need of a broker, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from django_eventbus.findings import Finding
from django_eventbus.messages import Message


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
    """To whoever asked, if that is still there: Message.reply_to of the question."""

    reply_to: str


Address = ToExchange | ToQueue | ToTier | ToReply


class Outgoing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message and where it goes."""

    address: Address
    message: Message


class Confirmed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The broker has it in every queue it belongs to."""


class Unroutable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """No queue wanted it."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Not taken this time: send it again."""

    reason: str


class Rejected(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Never taken as it is: sending it again cannot help."""

    reason: str


Receipt = Confirmed | Unroutable | Refused | Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A queue to declare: what it is bound by, and the delays of its tiers."""

    name: str
    exchange: str
    patterns: tuple[str, ...]
    delays: tuple[float, ...]
    #: Exchanges and patterns beside those, for event types that have an exchange of their own.
    elsewhere: tuple[tuple[str, str], ...] = ()
    #: And those by which it gets the bus's own events: without them it is only not pinged.
    system: tuple[tuple[str, str], ...] = ()
    #: Whether its first message is handed out alone, to one subscriber, until that is settled.
    is_ordered: bool = False

    @property
    def bindings(self) -> tuple[tuple[str, str], ...]:
        """Every exchange and pattern that it is bound by."""
        wanted = ((self.exchange, pattern) for pattern in self.patterns)
        return tuple(dict.fromkeys((*wanted, *self.elsewhere, *self.system)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How full a queue, its tiers and its DLQ are."""

    queue: str
    #: Those that wait to be received. None: there is no such queue.
    messages: int | None
    #: None where the transport does not know.
    consumers: int | None = None
    #: By the label of the delay; "" where the transport does not tell the tiers apart.
    tiers: Mapping[str, int | None]
    #: "" if there is none.
    dlq: str = ""
    dlq_messages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Published:
    """Something that this project publishes, and where."""

    type: str
    exchange: str
    routing_key: str


#: Waits for the confirms of a batch: see Publisher.publish() for what it returns and raises.
Receipts = Callable[[], Sequence[Receipt]]
#: Sends a batch that is ready to go, without waiting for its confirms. To be called once.
Dispatch = Callable[[], Receipts]


class Publisher(Protocol):
    """Sends with confirms. May be used from any thread."""

    def open(self) -> None:
        """
        Connect, unless that is done; publish() does it too.

        Raise BrokerUnavailable if there is no connection to be had, or it takes no messages now.
        """

    def prepare(self, batch: Sequence[Outgoing]) -> Dispatch:
        """Make all of *batch* ready to be sent, as far as that can be done beforehand."""

    def publish(self, batch: Sequence[Outgoing]) -> Sequence[Receipt]:
        """
        Send all of *batch* and account for every message, in the same order.

        Raise BrokerUnavailable if that cannot be told of each in time; then any of them may
        or may not have been sent.
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
        """Settle it: the broker forgets it. Without effect if it is no longer ours."""

    def release(self, after: float = 0) -> None:
        """Return it, to be delivered again, in about *after* seconds where the broker can wait."""


class Subscriber(Protocol):
    """Receives from its queues. Its methods may be called from any thread."""

    def receive(self, timeout: float) -> Delivery | None:
        """Return the next delivery, or None after *timeout* seconds without one."""

    def is_drained(self) -> bool:
        """Whether nothing is due in the queues and nothing received is unsettled."""

    def close(self) -> None:
        """Stop receiving and return what is not settled."""


class ReplyBox(Protocol):
    """Asks, and receives the answers. Closed, it leaves nothing behind."""

    def ask(self, address: ToExchange, message: Message) -> Receipt:
        """Send *message* with the address of this box as its reply_to."""

    def receive(self, timeout: float) -> Message | None:
        """Return the next answer, or None after *timeout* seconds without one."""

    def close(self) -> None: ...


class Transport(Protocol):
    """A broker."""

    #: How many handler threads can be of use at once; None: any number.
    concurrency_limit: int | None

    def declare(self, queues: Sequence[QueueSpec]) -> None:
        """Make the queues, their tiers and their bindings exist. Idempotent."""

    def remove(self, queues: Sequence[QueueSpec]) -> None:
        """Delete the queues, what they are bound to, and what is in them. For tests."""

    def dead_letter_queue(self, queue: str) -> str | None:
        """Return where the broker puts what it gives up on in *queue*; None: it never does."""

    def owns_dead_letter_queues(self) -> bool:
        """Whether the DLQs are ours to empty, and not those of a bus that others laid out."""

    def examine(self, queues: Sequence[QueueSpec], published: Sequence[Published]) -> list[Finding]:
        """Look for what is wrong with *queues*, or keeps what is *published* from arriving."""

    def levels(self, queues: Sequence[QueueSpec]) -> list[Level]:
        """Look how full *queues* are; nothing is declared or received."""

    def publisher(self) -> Publisher: ...
    def subscriber(self, queues: Sequence[str], prefetch: int) -> Subscriber:
        """Receive from *queues*, at most *prefetch* unsettled deliveries of each at a time."""

    def reply_box(self) -> ReplyBox:
        """Connect to ask something."""
