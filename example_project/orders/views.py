"""The page of the shop: place an order, and see the progress of the latest ones."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from orders.checkout import place
from orders.forms import OrderForm
from orders.models import Order
from orders.progress import Progress, Step

SHOWN = 10
#: For this time after an order, the page reloads by itself while an order is in progress.
WATCHED = timedelta(seconds=30)

History = list[tuple[Order, list[Step]]]


@require_http_methods(["GET", "HEAD", "POST"])
def shop(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST or None)
    if form.is_valid():
        order = place(form.save(commit=False))
        return redirect(f"{reverse('shop')}?placed={order.pk}")
    history = recent_orders()
    context = {
        "form": form,
        "history": history,
        "placed": request.GET.get("placed", ""),
        "is_busy": not form.is_bound and is_busy(history),
    }
    return render(request, "orders/shop.html", context)


def recent_orders() -> History:
    orders = list(Order.objects.all()[:SHOWN])
    progress = Progress(orders)
    return [(order, progress.of(order)) for order in orders]


def is_busy(history: History) -> bool:
    since = timezone.now() - WATCHED
    watched = [step for order, steps in history if order.placed_at > since for step in steps]
    return not all(step.is_settled for step in watched)
