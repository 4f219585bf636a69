"""Re-driving dead letters in a browser, while a worker process carries the plans out."""

from __future__ import annotations

import pytest

from django_eventbus import publish
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import DeadLetter, Plan, PlannedLetter
from django_eventbus.redrive.discards import start_plan, unpaced
from tests.admin.test_admin import user_with
from tests.browser.accessibility import problems_in_every_view
from tests.browser.redriving import (
    GROUPS,
    LETTERS,
    LIST,
    SCRIPT,
    counts,
    fill_in,
    outcomes,
    page_of,
    start_from_page,
    submit_plan,
    wait_for_state,
)
from tests.shop.models import Effect
from tests.support.helpers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_group_is_found_tried_with_a_canary_and_healed(page, letters, mended):
    mended.touch()

    start_from_page(page, canary=2, per_second=20)
    wait_for_state(page, "Done")

    assert counts(page) == {"healed": LETTERS}
    assert page.get_by_role("progressbar").get_attribute("aria-valuenow") == "100"
    assert outcomes(page, "healed") == LETTERS
    assert Effect.objects.filter(subscription="shop.climb").count() == LETTERS
    page.goto(GROUPS)
    page.get_by_text("No dead letters are waiting.").wait_for()


def test_a_plan_pauses_itself_while_the_bug_is_still_there(page, letters, mended):
    start_from_page(page, canary=2)
    wait_for_state(page, "Paused: Too many of the latest re-drives failed again: 2/2")

    assert counts(page) == {"failed": 2, "pending": LETTERS - 2}
    mended.touch()
    page.get_by_role("button", name="Resume").click()
    wait_for_state(page, "Done")

    assert counts(page) == {"failed": 2, "healed": LETTERS - 2}


def test_a_page_says_when_it_no_longer_follows_its_plan_and_when_it_does_again(page, letters):
    start_from_page(page, canary=2)
    wait_for_state(page, "Paused: Too many of the latest re-drives failed again: 2/2")
    page.get_by_text("This page updates itself.").wait_for()

    cookies = page.context.cookies()
    page.context.clear_cookies()
    page.get_by_text("The server does not respond").wait_for()
    assert page.get_by_text("This page updates itself.").is_hidden()

    page.context.add_cookies(cookies)
    page.get_by_text("This page updates itself.").wait_for()
    assert page.get_by_text("The server does not respond").is_hidden()


def test_a_page_that_follows_its_plan_leaves_the_focus_where_it_is(page, letters, mended):
    mended.touch()
    start_from_page(page, canary=0, per_second=1)
    page.evaluate("window.said = document.querySelector('[role=status]')")

    for place in ("progress", "outcomes"):
        eventually(lambda: counts(page).get("healed", 0) >= 1, timeout=30)
        link = page.locator(f"[data-eventbus-part={place}] a").first
        link.focus()
        target, before = link.get_attribute("href"), counts(page)
        eventually(lambda before=before: counts(page) != before, timeout=30)
        assert page.evaluate("document.activeElement.getAttribute('href')") == target

    wait_for_state(page, "Done")
    assert page.evaluate("window.said.isConnected && window.said.textContent.trim()") == "Done"


def test_a_plan_is_cancelled_half_way(page, letters, mended):
    mended.touch()

    plan = start_from_page(page, canary=0, per_second=1)
    eventually(lambda: counts(page).get("healed", 0) >= 1, timeout=30)
    page.get_by_role("button", name="Cancel").click()
    wait_for_state(page, "Cancelled")
    eventually(lambda: not counts(page).keys() & {"pending", "sent"}, timeout=30)

    found = counts(page)
    assert found["skipped"] >= 1
    assert found["healed"] + found["skipped"] == LETTERS
    assert DeadLetter.objects.filter(state="open").count() == found["skipped"]
    page.goto(f"{page_of(plan)}?outcome=skipped")
    page.get_by_text("the plan was cancelled").first.wait_for()


def test_a_user_without_the_right_sees_the_disabled_button_and_why(page_for, letters):
    page = page_for(user_with("view_deadletter"))

    page.goto(LIST)

    button = page.get_by_role("button", name="Re-drive…").first
    assert button.is_disabled()
    page.get_by_text("You need the permission eventbus.redrive_deadletter.").first.wait_for()


def test_ticked_dead_letters_are_redriven_by_keyboard_alone(page, letters, mended):
    mended.touch()

    page.goto(LIST)
    page.get_by_role("checkbox", name=letters[0].message_id).focus()
    page.keyboard.press("Space")
    press_until(page, lambda text: text == "Re-drive…")
    page.get_by_text("1 would be re-driven").wait_for()
    press_until(page, lambda text: text == "Start the re-drive")
    wait_for_state(page, "Done")

    assert counts(page) == {"healed": 1}


def press_until(page, wanted) -> None:
    """Go on by Tab until the focus is on what is wanted, and press Enter there."""
    for _ in range(200):
        page.keyboard.press("Tab")
        name = "document.activeElement.value || document.activeElement.textContent"
        if wanted(page.evaluate(name).strip()):
            page.keyboard.press("Enter")
            return
    raise AssertionError("Tab does not lead there")


def test_without_a_tick_the_list_is_shown_again_and_says_so(page, letters):
    page.goto(LIST)
    page.get_by_role("button", name="Discard…").click()

    page.get_by_text("Select at least one dead letter.").wait_for()

    assert page.url.endswith(LIST)


def test_a_patch_that_was_only_typed_is_dry_run_before_it_starts(page, letters):
    page.goto(f"{GROUPS}dry-run/?id={letters[0].pk}")
    page.get_by_text("Change the payloads").click()
    page.get_by_label("JSON merge patch").fill('{\n  "currency": "EUR"\n}')
    fill_in(page, Reason="It was wrong.", per_second=7)
    page.get_by_role("button", name="Start the re-drive").click()

    page.get_by_text("Nothing was started").wait_for()
    page.get_by_text('+  "currency": "EUR"').wait_for()
    assert page.get_by_label("Reason").input_value() == "It was wrong."
    assert "currency" not in page.url

    plan = submit_plan(page)

    assert (plan.patch, plan.rate, plan.reason) == ({"currency": "EUR"}, 7, "It was wrong.")


def test_the_filter_form_leads_to_what_matches(page, letters):
    page.goto(LIST)
    page.get_by_text("Filter: state=open").click()
    page.get_by_label("Payload path").fill("order_id")
    page.get_by_label("Payload's value").fill("3")
    page.get_by_role("button", name="Show").click()

    page.get_by_role("heading", name="1 match", exact=True).wait_for()

    assert "payload.order_id=3" in page.url


def test_a_message_is_edited_reviewed_and_healed(page, worker):
    publish("act.now", {"do": "give up"})
    letter = eventually(DeadLetter.objects.first, timeout=60, message=lambda: worker.output)

    page.goto(f"{GROUPS}{letter.pk}/change/")
    page.get_by_role("link", name="Edit and re-drive…").click()
    page.get_by_label("Payload").fill('{"do": 1}')
    page.get_by_label("Reason").fill("It was told to give up.")
    page.get_by_role("button", name="Review the changes").click()
    page.get_by_role("button", name="Edit further").click()
    page.get_by_label("Payload").fill('{"do": "ok"}')
    page.get_by_role("button", name="Review the changes").click()
    page.get_by_text('+    "do": "ok"').wait_for()
    assert DeadLetter.objects.get().state == "open"
    page.get_by_role("button", name="Send it").click()
    page.get_by_text("Sent as").wait_for()

    eventually(lambda: Effect.objects.filter(subscription="shop.act").exists(), timeout=30)
    eventually(lambda: DeadLetter.objects.get().is_closed, timeout=30)
    page.get_by_role("link", name="Reload").click()
    page.get_by_text("replaced by an edited message").wait_for()


def test_a_dead_letter_is_copied_by_a_button(page_for, admin_client, letters):
    page = page_for(admin_client, permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"{GROUPS}{letters[0].pk}/change/")

    page.get_by_role("button", name="Copy").last.click()

    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("python manage.py redrive_events message_id=")


def every_page(letter: DeadLetter, *plans: Plan) -> list[str]:
    return [
        GROUPS,
        f"{GROUPS}groups/{letter.fingerprint}/",
        LIST,
        f"{GROUPS}{letter.pk}/change/",
        f"{GROUPS}dry-run/?group={letter.fingerprint}",
        f"{GROUPS}discard/?group={letter.fingerprint}",
        f"{GROUPS}ignore/?id={letter.pk}",
        f"{GROUPS}{letter.pk}/edit/",
        *map(page_of, plans),
        *(f"/admin/eventbus/{name}/" for name in ("plan", "auditentry")),
        *(f"/admin/eventbus/{name}/" for name in ("outboxevent", "inboxrecord", "worker")),
    ]


def paused_discard(letters: list[DeadLetter]) -> Plan:
    """Begin to discard *letters*, the first of which is the canary."""
    chosen, pace = Selection.of_ids([each.pk for each in letters]), unpaced(canary=1)
    plan = start_plan("discard", chosen, by="ada", reason=SCRIPT, using="default", pace=pace)
    eventually(lambda: Plan.objects.get(pk=plan.pk).state == "paused", timeout=30)
    return plan


@pytest.mark.timeout(300)
def test_every_page_is_fit_for_everybody(page_for, admin_client, letters):
    # axe-core itself makes styles, which the policy refuses.
    page = page_for(admin_client, bypass_csp=True)
    plan = start_from_page(page, canary=1)
    wait_for_state(page, "Paused")
    discard = paused_discard(letters[-2:])

    # A page says in which plans a dead letter is pending, with links in a sentence.
    pending = PlannedLetter.objects.filter(state="pending").first().dead_letter
    problems = [
        each
        for path in every_page(pending, plan, discard)
        for each in problems_in_every_view(page, path)
    ]

    assert problems == []


def test_a_plan_can_be_followed_without_javascript(page_for, admin_client, letters, mended):
    mended.touch()
    page = page_for(admin_client, java_script_enabled=False)

    start_from_page(page, canary=1)
    eventually(lambda: Plan.objects.get().state == "done", timeout=30)
    page.get_by_role("link", name="Refresh").click()

    wait_for_state(page, "Done")
    assert counts(page) == {"healed": LETTERS}
