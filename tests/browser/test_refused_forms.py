"""Forms that are refused, in a browser."""

from __future__ import annotations

from django_eventbus.models import DeadLetter
from django_eventbus.redrive import plans
from tests.browser.test_admin import LIST
from tests.browser.test_admin import charge as charge

# Pages look the same on every database, and a browser takes its time.


def focused(page) -> str:
    return page.evaluate("document.activeElement.id")


def test_whoever_ignores_a_group_without_a_time_is_led_to_the_field(page, charge):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{LIST}groups/{DeadLetter.objects.first().fingerprint}/")

    page.locator("button[value=ignore]").press("Enter")

    page.get_by_role("alert").get_by_text(
        "Enter the time until which the group is ignored."
    ).wait_for()
    assert focused(page) == "id_until"
    assert page.locator("#id_until").is_visible()
    page.get_by_role("alert").get_by_role("link", name="Ignore until").press("Enter")
    assert focused(page) == "id_until"


def test_whoever_starts_a_plan_without_a_reason_is_led_to_the_field(page, charge, monkeypatch):
    monkeypatch.setattr(plans, "REASON_ABOVE", 1)
    page.goto(f"{LIST}dry-run/?state=open")

    page.get_by_role("button", name="Start the re-drive").press("Enter")

    page.get_by_role("alert").get_by_role("link", name="Reason").wait_for()
    assert focused(page) == "id_reason"


def test_whoever_writes_a_patch_that_is_none_is_led_to_it(page, charge):
    page.goto(f"{LIST}dry-run/?state=open")
    page.get_by_text("Change the payloads").click()
    page.get_by_label("JSON merge patch").fill("{")

    page.get_by_role("button", name="Start the re-drive").press("Enter")

    page.get_by_role("alert").get_by_role("link", name="JSON merge patch").wait_for()
    assert focused(page) == "id_patch"
