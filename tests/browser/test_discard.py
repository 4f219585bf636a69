"""Discards and restores in a browser: confirmed on a page, and carried out as plans."""

from __future__ import annotations

import pytest

from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import DeadLetter, Plan
from django_eventbus.redrive.discards import discard_selected, start_plan, unpaced
from tests.browser.redriving import LETTERS, LIST, counts, outcomes, page_of, wait_for_state

# Pages look the same on every database, and a browser takes its time.
pytestmark = pytest.mark.django_db(transaction=True)

WHO = {"by": "ada", "reason": "sent by hand", "using": "default"}
CANARY = 2


def states() -> set[str]:
    return set(DeadLetter.objects.values_list("state", flat=True))


def test_all_that_match_are_discarded_with_a_reason_and_the_plan_tells_of_each(page, letters):
    page.goto(LIST)
    page.get_by_role("link", name="Discard…").click()
    page.get_by_role("heading", name=f"{LETTERS} dead letters").wait_for()
    page.get_by_label("Reason").fill("sent by hand")
    page.get_by_role("button", name="Discard").click()
    page.get_by_text(f"{LETTERS} dead letters were discarded.").wait_for()
    page.get_by_role("link", name=f"Plan {Plan.objects.get().pk}").click()

    wait_for_state(page, "Done")
    assert counts(page) == {"discarded": LETTERS}
    assert outcomes(page, "discarded") == LETTERS
    assert states() == {"discarded"}


def test_a_discard_that_paused_after_its_canary_is_resumed_on_a_telephone(page, letters):
    page.set_viewport_size({"width": 390, "height": 844})
    pace = unpaced(canary=CANARY)
    plan = start_plan(Plan.Action.DISCARD, Selection(), pace=pace, **WHO)

    page.goto(page_of(plan))
    wait_for_state(page, f"Paused: The canary of {CANARY} is done. Check its result")
    assert counts(page) == {"discarded": CANARY, "pending": LETTERS - CANARY}
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Resume").click()
    wait_for_state(page, "Done")

    assert counts(page) == {"discarded": LETTERS}
    assert outcomes(page, "discarded") == LETTERS
    assert states() == {"discarded"}


def test_what_was_discarded_is_restored_from_the_list(page, letters):
    discard_selected(Selection(), **WHO)

    page.goto(LIST.replace("open", "discarded"))
    page.get_by_role("link", name="Restore…").click()
    page.get_by_role("button", name="Restore").click()
    page.get_by_text(f"{LETTERS} dead letters were restored.").wait_for()

    assert states() == {"open"}
    page.goto(page_of(Plan.objects.get(action="restore")))
    wait_for_state(page, "Done")
    assert outcomes(page, "restored") == LETTERS
