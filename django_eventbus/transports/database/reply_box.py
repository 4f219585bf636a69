"""Ask through an exchange, and receive the answers as rows that only the asker looks at."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from django_eventbus.conf import conf
from django_eventbus.messages import Message, uuid7
from django_eventbus.models import QueuedMessage
from django_eventbus.outages import proven
from django_eventbus.transports.contract import Outgoing, Receipt, ToExchange
from django_eventbus.transports.database.publisher import DatabasePublisher

#: Seconds between two looks for an answer.
_PAUSE = 0.05


class DatabaseReplyBox:
    """A queue of its own for as long as somebody asks; what comes later is not put there."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.name = f"reply.{uuid7()}"
        with proven(using):
            QueuedMessage.objects.using(using).open_box(self.name)

    def ask(self, address: ToExchange, message: Message) -> Receipt:
        asking = Outgoing(address=address, message=replace(message, reply_to=self.name))
        receipts: Sequence[Receipt] = DatabasePublisher(self.using).publish([asking])
        return receipts[0]

    def receive(self, timeout: float) -> Message | None:
        deadline = time.monotonic() + timeout
        while True:
            with proven(self.using):
                row = QueuedMessage.objects.using(self.using).lease(self.name, conf.lease)
                if row and row.ack():
                    return row.message()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, _PAUSE))

    def close(self) -> None:
        with proven(self.using):
            QueuedMessage.objects.using(self.using).close_box(self.name)
