"""The test project on the broker, driven from the test's own thread."""

from __future__ import annotations

import json
import threading

import pika

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.events.message import uuid7
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.workers.loops import ConsumerLoop, MessageLimit
from tests.shop.models import Effect
from tests.support.helpers import eventually


class Shop:
    """The test project's queue `acts` on the broker, driven from the test's own thread."""

    def __init__(self, amqp, settings):
        self.amqp = amqp
        self.settings = settings
        self.queue = amqp.queue("acts")
        self.dlq = f"{self.queue}.dlq"
        self.transport = transports.connect(conf.broker_url)
        self.transport.declare(queue_specs())

    def configure(self, **values):
        self.settings.EVENTBUS = {**self.settings.EVENTBUS, **values}
        self.amqp.settings.update(values)

    @staticmethod
    def properties(message_id, **values):
        values = {"type": "act.now", "headers": {}, "delivery_mode": 2, **values}
        return pika.BasicProperties(message_id=message_id, **values)

    def put(self, do="ok", *, to=None, exchange="", body=None, message_id=None, **properties):
        """Publish as a stranger would; return the message's id."""
        message_id = None if properties.pop("no_id", False) else message_id or str(uuid7())
        body = json.dumps({"do": do}).encode() if body is None else body
        with self.amqp.channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish(
                exchange,
                to or self.queue,
                body,
                self.properties(message_id, **properties),
                mandatory=True,
            )
        return message_id

    def bury(self, *args, **options):
        """Put a message to death: published, and rejected by some other client."""
        message_id = self.put(*args, **options)
        self.reject()
        return message_id

    def reject(self):
        def is_rejected():
            with self.amqp.channel() as channel:
                method, *_ = channel.basic_get(self.queue)
                if method:
                    channel.basic_nack(method.delivery_tag, requeue=False)
                return method

        eventually(is_rejected)
        eventually(lambda: self.amqp.count(self.dlq))

    def work(self, limit=None):
        """Relay, consume and collect until nothing is due, or so many messages are handled."""
        publisher = self.transport.publisher()
        relay = Relay(publisher, "default")
        while relay.relay_once():
            pass
        relay.close()
        workers = ConsumerLoop(
            self.transport,
            [self.queue],
            threading.Event(),
            prefetch=10,
            limit=MessageLimit(limit),
            is_idle=lambda: True,
        )
        workers.run()
        workers.close()

    def dead(self):
        """Return the messages in the DLQ, and leave none."""
        with self.amqp.channel() as channel:
            found = []
            while (message := channel.basic_get(self.dlq, auto_ack=True))[0]:
                found.append(message)
        return found

    @property
    def effects(self):
        return sorted(Effect.objects.values_list("event_id", "subscription"))
