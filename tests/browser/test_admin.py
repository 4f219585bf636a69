"""The admin in a browser, under `Content-Security-Policy: default-src 'self'`."""

from __future__ import annotations

import pytest

from django_eventbus import publish
from django_eventbus.models import DeadLetter
from tests.shop.models import Effect

# Pages look the same on every database, and a browser takes its time.
pytestmark = pytest.mark.sqlite

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


def test_discard_asks_again_until_it_has_a_reason(page, charge):
    letter = DeadLetter.objects.first()
    page.goto(f"{LIST}{letter.pk}/change/")
    page.get_by_role("link", name="Discard").click()
    page.get_by_role("button", name="Discard").click()
    page.get_by_text("This field is required.").wait_for()

    page.get_by_label("Reason:").fill("A test order.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    page.get_by_text("discarded: A test order.").wait_for()
