"""The admin in a browser, under `Content-Security-Policy: default-src 'self'`."""

from __future__ import annotations

import pytest

from django_eventbus import publish
from django_eventbus.models import AuditEntry, DeadLetter, OutboxEvent, Plan
from tests.shop.models import Effect

# Pages look the same on every database, and a browser takes its time.
LIST = "/admin/eventbus/deadletter/"
SCRIPT = "<script>alert(1)</script>"


class Charge:
    """Fails until it is mended."""

    is_broken = True

    def __call__(self, event) -> None:
        if self.is_broken:
            raise ValueError(f"the card is broken {SCRIPT}")
        Effect.objects.create(event_id=event.meta.id, subscription="charge")


@pytest.fixture
def charge(bus) -> Charge:
    charge = Charge()
    bus.subscribe("order.*", name="charge", retry=["1s"], tries=2)(charge)
    for number in range(3):
        publish("order.placed", {"order_id": number, "note": SCRIPT}, headers={"tenant": SCRIPT})
    bus.drain()
    return charge


def test_every_page_fits_a_telephone_and_shows_script_as_text(page, charge):
    page.set_viewport_size({"width": 390, "height": 844})
    letter = DeadLetter.objects.first()

    for path in (
        "",
        f"groups/{letter.fingerprint}/",
        "list/?state=open",
        f"{letter.pk}/change/",
        f"{letter.pk}/edit/",
        f"dry-run/?error={SCRIPT}",
        f"discard/?id={letter.pk}",
        "../auditentry/",
    ):
        page.goto(LIST + path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, path
        assert page.locator("script:not([src])").count() == 0, path


def test_every_list_is_one_of_cards_on_a_telephone(page, charge):
    long = "a-long-word-of-a-person-" * 5
    page.set_viewport_size({"width": 390, "height": 844})
    plan = Plan.objects.create(
        in_flight=1, fail_percent=20, reason=long, note="paused", note_detail=long, created_by=long
    )
    AuditEntry.objects.create(
        verb="plan re-drive", by="ada", why=long, filter=f"type={long}", plan_id=plan.pk
    )

    for name, label in (
        ("auditentry", "Result"),
        ("plan", "Reason"),
        ("outboxevent", "Error"),
        ("inboxrecord", "Error"),
    ):
        page.goto(f"{LIST}../{name}/")
        results = page.locator(".results")
        assert results.evaluate("each => each.scrollWidth - each.clientWidth") <= 0, name
        shown = page.locator(f'[data-label="{label}"]').first.bounding_box()
        assert shown["x"] + shown["width"] <= 390, name


@pytest.mark.parametrize("width", [390, 1200])
def test_a_long_id_is_beside_its_buttons_and_a_long_command_is_whole(page, charge, width):
    page.set_viewport_size({"width": width, "height": 844})
    letter = DeadLetter.objects.first()
    DeadLetter.objects.filter(pk=letter.pk).update(type="", message_id="sha256:" + "8badf00d" * 8)

    page.goto(f"{LIST}{letter.pk}/change/")

    # Django 6.1 puts them side by side where there is room.
    title = page.locator("#content h2").first.bounding_box()
    tools = page.locator(".object-tools").bounding_box()
    is_above = title["y"] + title["height"] <= tools["y"]
    assert is_above or title["x"] + title["width"] <= tools["x"]
    assert tools["x"] + tools["width"] <= width
    command = page.get_by_label("As a command")
    assert command.evaluate("each => each.scrollHeight - each.clientHeight") <= 0


def test_the_payload_has_room_on_a_telephone(page, charge):
    page.set_viewport_size({"width": 390, "height": 844})

    page.goto(f"{LIST}{DeadLetter.objects.first().pk}/edit/")

    assert page.get_by_label("Payload").bounding_box()["height"] >= 330


def test_the_columns_of_the_outbox_fit_beside_the_filters(page, charge):
    page.set_viewport_size({"width": 1300, "height": 844})
    OutboxEvent.objects.update(
        state="unroutable",
        error="no queue is bound to order.placed " * 4,
        type="warehouse.stock.order.placed",
        subscription="billing.charge_the_card_again",
        key="0190b5a2-7c5e-7cc3-98f1-0c5b1f7a2d11",
    )

    page.goto(f"{LIST}../outboxevent/")

    assert page.locator("#nav-sidebar").bounding_box()["x"] >= 0
    assert page.locator(".results").evaluate("each => each.scrollWidth - each.clientWidth") <= 0


def test_discard_asks_again_until_it_has_a_reason(page, charge):
    letter = DeadLetter.objects.first()
    page.goto(f"{LIST}{letter.pk}/change/")
    page.get_by_role("link", name="Discard").click()
    page.get_by_role("button", name="Discard").click()
    page.get_by_text("This field is required.", exact=True).wait_for()

    page.get_by_label("Reason:").fill("A test order.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    page.get_by_text("discarded: A test order.").wait_for()
