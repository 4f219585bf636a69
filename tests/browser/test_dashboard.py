"""The dashboard and the pages of queues in a browser."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_eventbus import subscribe
from django_eventbus.conf import conf
from django_eventbus.models import (
    BrokerRequest,
    DeadLetter,
    Outage,
    OutboxEvent,
    Queue,
    Throughput,
    Worker,
)
from tests.browser.accessibility import problems_in_every_view

DASHBOARD = "/admin/eventbus/"
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def busy(transactional_db, no_subscriptions) -> str:
    """A bus at work, with something wrong; return the name of its queue."""
    subscribe("order.*", queue="billing", name="charge")(print)
    name, now = conf.queue("billing"), timezone.now()
    Queue.objects.create(
        name=name,
        service=conf.service,
        messages=1234,
        consumers=2,
        tiers={"30s": 3, "5m": 1, "30m": 0},
        dlq=f"{name}.dlq",
        dlq_messages=7,
        measured_at=now,
    )
    worker = Worker.objects.create(
        kind="both", service=conf.service, host="worker-1.example", pid=4711, queues=[name]
    )
    Worker.objects.create(
        kind="relay",
        service=conf.service,
        host="worker-2.example",
        pid=12,
        outage="connection",
        outage_since=now - timedelta(minutes=4),
    )
    Outage.objects.create(
        worker_id=worker.pk,
        host="worker-1.example",
        part="consumer",
        kind="database",
        began_at=now - timedelta(hours=2),
        ended_at=now - timedelta(hours=1),
    )
    start = now.replace(second=0, microsecond=0)
    for minute in range(0, 24 * 60, 3):
        Throughput.objects.create(
            worker_id=worker.pk,
            minute=start - timedelta(minutes=minute),
            published=300 + minute % 97,
            handled=290 + minute % 83,
            retried=minute % 7,
            parked=int(minute % 51 == 0),
        )
    for state in ("unroutable", "unroutable", "failed", "scheduled", "ready"):
        due_at = now + timedelta(hours=3) if state == "scheduled" else None
        OutboxEvent.objects.create(
            state=state, type="order.placed", body=b"{}", due_at=due_at, error=f"because {SCRIPT}"
        )
    DeadLetter.objects.create(queue=name, message_id="1", kind="failed", body=b"", error=SCRIPT)
    return name


def width_of(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth")


def test_one_look_says_what_needs_doing_and_leads_to_it(page, busy):
    page.goto("/admin/")
    page.get_by_role("link", name="Event bus").first.click()

    page.get_by_role("heading", name="There are 5 problems:").wait_for()
    page.get_by_role(
        "link", name="2 events were not delivered: no queue is bound to receive them."
    ).click()

    page.locator("#result_list tbody tr").nth(1).wait_for()
    assert "state__exact=unroutable" in page.url
    assert page.locator("#result_list tbody tr").count() == 2


def test_a_calm_bus_says_that_nothing_needs_doing(page, transactional_db, no_subscriptions):
    page.goto(DASHBOARD)

    page.get_by_role("heading", name="There are no problems.").wait_for()


def test_the_dashboard_fits_a_telephone(page, busy):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(DASHBOARD)

    assert width_of(page) <= 390
    page.get_by_text("The same as a table").click()
    assert width_of(page) <= 390


def test_each_plot_is_told_in_words_and_as_a_table(page, busy):
    page.goto(DASHBOARD)

    assert page.get_by_role("img", name="Handled").count() == 2
    assert "in the last hour, at most" in page.locator("#eventbus-handled-hour-desc").text_content()
    assert page.locator("#eventbus-handled-hour-desc ~ path.eventbus-plot-bars").get_attribute("d")
    summary = page.get_by_text("The same as a table")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("table", name="The last hour, per minute").is_visible()


def test_the_dark_theme_changes_the_colours_of_the_plots(page, busy):
    def colour() -> str:
        script = "each => getComputedStyle(each).fill"
        return page.locator(".eventbus-plot-parked .eventbus-plot-bars").first.evaluate(script)

    page.emulate_media(color_scheme="light")
    page.goto(DASHBOARD)
    light = colour()

    page.emulate_media(color_scheme="dark")

    assert colour() != light


def queue_page(name: str) -> str:
    return f"/admin/eventbus/queue/{name}/change/"


def test_a_person_looks_into_a_dlq_and_sees_the_answer_come(page, busy):
    page.goto(DASHBOARD)
    page.get_by_role("link", name=busy, exact=True).click()
    page.get_by_role("button", name="Read the DLQ").click()
    page.get_by_role("heading", name="Read the DLQ: submitted").wait_for()

    answer(BrokerRequest.objects.get())

    page.get_by_role("heading", name="Read the DLQ: done").wait_for()
    assert page.get_by_text("the card is broken").is_visible()
    assert page.get_by_role("row").filter(has_text="order.placed").count() == 1


def test_the_level_is_fresh_after_a_broker_request_without_a_reload(page, busy):
    Queue.objects.update(dlq_messages=205, measured_at=timezone.now())
    page.goto(queue_page(busy))
    page.get_by_role("button", name="Read the DLQ").click()
    page.get_by_role("heading", name="Read the DLQ: submitted").wait_for()
    level = page.get_by_role("region", name="Level")
    assert level.get_by_text("205").is_visible()

    answer(BrokerRequest.objects.get())
    Queue.objects.update(dlq_messages=204, measured_at=timezone.now())

    level.get_by_text("204").wait_for()


def answer(request: BrokerRequest) -> None:
    """Do what a worker would."""
    facts = {
        "id": f"0199-{SCRIPT}",
        "type": "order.placed",
        "reason": "rejected",
        "error": "ValueError: the card is broken",
        "attempts": 3,
        "round": 0,
        "age_seconds": 4000,
        "bytes": 1234,
        "queue": request.queue,
    }
    BrokerRequest.objects.filter(pk=request.pk).update(
        state="done", ended_at=timezone.now(), result={"messages": [facts]}
    )


def test_the_page_of_a_queue_fits_a_telephone_and_works_by_keyboard(page, busy):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(queue_page(busy))
    assert width_of(page) <= 390

    page.get_by_label("Messages to read").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("3")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    page.get_by_role("heading", name="Read the DLQ: submitted").wait_for()
    answer(BrokerRequest.objects.get(limit=3))
    page.get_by_role("heading", name="Read the DLQ: done").wait_for()
    assert width_of(page) <= 390


def test_a_closed_button_tells_its_reason(page, busy):
    Queue.objects.update(is_collected=True)

    page.goto(queue_page(busy))

    button = page.get_by_role("button", name="Re-drive from the DLQ")
    assert button.is_disabled()
    assert "Re-drive those" in button.get_attribute("title")


def test_every_page_of_the_dashboard_is_fit_for_everybody(page_for, admin_client, busy):
    # axe-core itself makes styles, which the policy refuses.
    page = page_for(admin_client, bypass_csp=True)
    answer(BrokerRequest.objects.create(kind="peek", queue=busy, limit=10, submitted_by="ada"))

    problems = [
        each
        for path in (DASHBOARD, queue_page(busy))
        for each in problems_in_every_view(page, path)
    ]

    assert problems == []
