"""Write to the customers."""

from __future__ import annotations

from django.dispatch import receiver
from django_eventbus import publish, subscribe

from notifications.events import OpinionWanted
from notifications.models import Notification
from orders.events import OrderPlaced
from shipping.events import ORDER_SHIPPED, OrderShipped

#: A real shop would wait for days.
TIME_TO_ARRIVE = 2


@subscribe(OrderPlaced, queue="notifications")
def confirm(event: OrderPlaced) -> None:
    write(event, Notification.Subject.THANKS)


@receiver(ORDER_SHIPPED, dispatch_uid="notifications.say_shipped", queue="notifications")
def say_shipped(sender: type[OrderShipped], event: OrderShipped, **kwargs: object) -> None:
    write(event, Notification.Subject.SHIPPED)
    later = OpinionWanted(order_id=event.order_id, email=event.email)
    publish(later, key=event.order_id, delay=TIME_TO_ARRIVE)


@subscribe(OpinionWanted, queue="notifications")
def ask(event: OpinionWanted) -> None:
    write(event, Notification.Subject.OPINION)


def write(event: OrderPlaced | OrderShipped | OpinionWanted, subject: Notification.Subject) -> None:
    Notification.objects.create(order_id=event.order_id, email=event.email, subject=subject)
