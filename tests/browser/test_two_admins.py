"""Two administrators who press the same button at the same moment, on either database."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from django_eventbus.models import OutboxEvent, Plan, PlannedLetter
from tests.admin.test_admin import user_with
from tests.browser.redriving import GROUPS, LETTERS, fill_in, page_of, wait_for_state
from tests.shop.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = ("view_deadletter", "redrive_deadletter", "view_plan")
#: Seconds until both press: enough for both browsers to be told.
SOON = 1


def press_together(pages, name: str) -> None:
    """Have the button pressed by the clock in every page, without waiting for any of them."""
    moment = (time.time() + SOON) * 1000
    for each in pages:
        each.get_by_role("button", name=name).evaluate(
            "(button, moment) => { setTimeout(() => button.click(), moment - Date.now()) }", moment
        )


def test_two_admins_at_once_move_each_dead_letter_once(page, page_for, letters, mended):
    mended.touch()
    pages = (page, page_for(user_with(*RIGHTS)))
    for each in pages:
        each.goto(f"{GROUPS}dry-run/?subscription=shop.climb")
        fill_in(each, canary=0, per_second=2)

    press_together(pages, "Start the re-drive")
    for each in pages:
        wait_for_state(each, "Done")

    outcomes = Counter(PlannedLetter.objects.values_list("state", flat=True))
    assert outcomes["healed"] == LETTERS
    assert outcomes.keys() == {"healed", "skipped"}
    assert OutboxEvent.objects.filter(subscription="shop.climb").count() == LETTERS
    assert Effect.objects.filter(subscription="shop.climb").count() == LETTERS
    assert_each_is_told_who_was_first(page)


def assert_each_is_told_who_was_first(page) -> None:
    first, second = Plan.objects.order_by("pk")
    for plan, other in ((first, second), (second, first)):
        words = f"{other.created_by} re-drove it in the meantime"
        skipped = PlannedLetter.objects.filter(plan=plan, state="skipped")
        assert {row.reason_text for row in skipped} <= {words}
        page.goto(f"{page_of(plan)}?outcome=skipped")
        assert page.get_by_role("cell", name=words).count() == skipped.count()
