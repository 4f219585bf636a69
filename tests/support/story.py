"""A shop's bad day, for screenshots and for tests that look at every page."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.db.models import F, TextField, Value
from django.db.models.functions import Replace
from django.utils import timezone

from django_eventbus import publish
from django_eventbus.conf import conf
from django_eventbus.dead_letters.groups import record_decision
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import (
    Attempt,
    DeadLetter,
    FailureGroup,
    InboxRecord,
    Outage,
    OutboxEvent,
    Plan,
    Queue,
    Throughput,
    Worker,
)
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import discard, start_plan, unpaced
from django_eventbus.redrive.plans import Pace, make_plan
from tests.support.bus import Bus

USING = "default"
ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = ("billing", "shipping", "notifications")


class CardExpired(Exception):
    """A card that can no longer be charged."""


class PaymentTimeout(Exception):
    """The bank did not answer."""


@dataclass
class Shop:
    """Handlers, and whether the bank answers again."""

    is_bank_back: bool = False

    def charge(self, event: Any) -> None:
        order = event.payload["order_id"]
        if order % 5 == 0:
            raise CardExpired(f"the card of order {order} expired on 2026-10-31")
        if order % 5 in (1, 2) and (order == 21 or not self.is_bank_back):
            raise PaymentTimeout(f"no answer for order {order} within 10 s")

    def pack(self, event: Any) -> None:
        if event.payload["order_id"] % 8 == 3:
            event.payload["address"]["postcode"]

    def confirm(self, event: Any) -> None:
        """Nothing goes wrong here."""


def tell(bus: Bus, orders: int = 60) -> Shop:
    """Let the day pass: failures, what people did about them, and what workers report."""
    shop = Shop()
    bus.subscribe("order.*", name="charge", queue="billing", retry=["30s", "5m"])(shop.charge)
    bus.subscribe("order.placed", name="pack", queue="shipping", retry=["1m"])(shop.pack)
    bus.subscribe("order.*", name="confirm", queue="notifications")(shop.confirm)
    for number in range(1, orders + 1):
        payload = {"order_id": number, "item": "teapot", "total": "39.90", "address": {}}
        publish("order.placed", payload, key=number, headers={"tenant": "acme"})
    for _ in range(2):
        bus.put(queue="billing", body=b"<order/>")
    bus.put(queue="shipping", type="cart.abandoned")
    bus.drain()
    _spread(DeadLetter.objects.order_by("pk"))
    _people(bus, shop)
    _outbox()
    _machines()
    _elsewhere()
    return shop


def _spread(letters: Any) -> None:
    """Let them have failed over the last twenty hours, more of them lately."""
    found = list(letters)
    for place, letter in enumerate(found):
        share = 1 - place / len(found)
        _shift(letter, timedelta(minutes=4 + 1200 * share**2))
    for group in FailureGroup.objects.all():
        first = DeadLetter.objects.filter(fingerprint=group.pk).earliest("parked_at")
        FailureGroup.objects.filter(pk=group.pk).update(created_at=first.parked_at)


def _shift(letter: DeadLetter, delta: timedelta) -> None:
    rows = {
        DeadLetter: ("created_at", "parked_at", "sent_at"),
        Attempt: ("started_at",),
        InboxRecord: ("created_at", "settled_at", "sent_at"),
    }
    for model, names in rows.items():
        mine = model.objects.filter(message_id=letter.message_id, subscription=letter.subscription)
        mine.update(**{name: F(name) - delta for name in names})
    sent = OutboxEvent.objects.filter(message_id=letter.message_id, queue="")
    published = letter.parked_at - delta - timedelta(minutes=6, seconds=2)
    sent.update(created_at=published, published_at=published + timedelta(seconds=1))
    attempts = Attempt.objects.filter(message_id=letter.message_id)
    for attempt in attempts.filter(subscription=letter.subscription):
        back = timedelta(seconds={1: 360, 2: 300}.get(attempt.attempt, 2))
        started_at = letter.parked_at - delta - back
        attempts.filter(pk=attempt.pk).update(started_at=started_at, duration=1.2)


def _people(bus: Bus, shop: Shop) -> None:
    expired, timeouts, addresses = (
        DeadLetter.objects.filter(error_type__endswith=name).first()
        for name in ("CardExpired", "PaymentTimeout", "KeyError")
    )
    note = "Shipping is told; mended with release 2.4."
    record_decision(addresses.fingerprint, "acknowledge", by="grace", note=note, using=USING)
    _plan(bus, expired, by="grace", reason="New cards were asked for.")
    shop.is_bank_back = True
    _plan(bus, timeouts, by="ada", reason="The bank answers again.")
    last = DeadLetter.objects.filter(fingerprint=addresses.fingerprint).latest("pk")
    discard([last.pk], by="grace", reason="A test order.", using=USING)
    _discard(bus, addresses)


def _plan(bus: Bus, letter: DeadLetter, *, by: str, reason: str) -> None:
    """Make a plan and let it run for a while, at one in two seconds."""
    chosen = Selection.of([("group", letter.fingerprint)])
    pace = Pace(canary=3, rate=0.5, in_flight=10)
    plan = make_plan(chosen, by=by, reason=reason, using=USING, pace=pace)
    plans.start(plan.pk, by=by, using=USING)
    for _ in range(12):
        if Plan.objects.get(pk=plan.pk).state in ("paused", "done"):
            return
        minute = timezone.now() - timedelta(seconds=30)
        Plan.objects.filter(pk=plan.pk).update(paced_at=minute)
        bus.drain()
        bus.relay()


def _discard(bus: Bus, letter: DeadLetter) -> None:
    """Begin to discard what fails like *letter*, as far as the canary."""
    chosen, pace = Selection.of([("group", letter.fingerprint)]), unpaced(canary=2)
    reason = "Packed by hand."
    start_plan("discard", chosen, by="grace", reason=reason, using=USING, pace=pace)
    for _ in range(2):
        bus.relay()


def _outbox() -> None:
    row = {"body": b'{"order_id": 61}', "source": conf.service, "exchange": "shop.events"}
    now = timezone.now()
    OutboxEvent.objects.create(
        type="invoice.sent", state="unroutable", error="No queue is bound to it.",
        message_id=str(uuid.UUID(int=1)), routing_key="invoice.sent", **row,
    )  # fmt: skip
    for days in (1, 3):
        OutboxEvent.objects.create(
            type="order.reminder", state="scheduled", message_id=str(uuid.UUID(int=days + 1)),
            routing_key="order.reminder", due_at=now + timedelta(days=days, minutes=1), **row,
        )  # fmt: skip


def _machines() -> None:
    now = timezone.now()
    queues = [conf.queue(name) for name in NAMES]
    common = {"service": conf.service, "host": "app-1", "version": "0.1.0"}
    started = now - timedelta(days=2, hours=3)
    relay = Worker.objects.create(kind="relay", pid=412, started_at=started, **common)
    Worker.objects.create(kind="consumer", pid=413, started_at=started, queues=queues, **common)
    Outage.objects.create(
        worker_id=relay.pk, host="app-1", part="relay", kind="connection",
        began_at=now - timedelta(hours=5, minutes=12), ended_at=now - timedelta(hours=5, minutes=9),
    )  # fmt: skip
    for name, waiting, tiers in zip(
        queues, (7, 0, 2), ({"30s": 2, "5m": 1}, {"1m": 0}, {}), strict=True
    ):
        Queue.objects.update_or_create(
            name=name,
            defaults={
                "service": conf.service, "messages": waiting, "consumers": 2, "tiers": tiers,
                "dlq": f"{name}.dlq", "dlq_messages": 0, "is_collected": True, "measured_at": now,
            },
        )  # fmt: skip
    Throughput.objects.bulk_create(_minutes(relay.pk, now))


def _elsewhere() -> None:
    """Let it have happened on a server, in a module of the shop."""
    for model in (DeadLetter, Attempt):
        model.objects.update(host="app-1", traceback=_replaced("traceback"))
    FailureGroup.objects.update(place=_replaced("place"))


def _replaced(column: str) -> Any:
    texts = {
        f"{ROOT}/tests/support/story.py": "/app/shop/handlers.py",
        "tests.support.story": "shop.handlers",
    }
    texts |= {f"{ROOT}/": "/app/lib/", ":Shop.": ":"}
    found: Any = F(column)
    for old, new in texts.items():
        found = Replace(found, Value(old), Value(new), output_field=TextField())
    return found


def _minutes(worker_id: uuid.UUID, now: datetime) -> list[Throughput]:
    minute = now.replace(second=0, microsecond=0)
    return [_minute(worker_id, minute - timedelta(minutes=ago), ago) for ago in range(1440)]


def _minute(worker_id: uuid.UUID, minute: datetime, ago: int) -> Throughput:
    wave = 40 + 25 * math.sin(ago / 230) + 9 * math.sin(ago / 3.7) + 5 * math.cos(ago / 1.3)
    published = max(0, round(wave))
    retried = round(wave / 6) if 20 < ago < 34 else int(ago % 7 == 0)
    return Throughput(
        worker_id=worker_id,
        minute=minute,
        published=published,
        handled=published * 2,
        retried=retried,
        parked=round(retried / 3) if retried > 3 else 0,
    )
