"""The way from a failure to its end, in a browser, on PostgreSQL and RabbitMQ."""

from __future__ import annotations

import pytest

from django_eventbus.models import DeadLetter, Plan, PlannedLetter
from tests.browser.redriving import (
    GROUPS,
    LETTERS,
    counts,
    outcomes,
    start_from_page,
    wait_for_state,
)
from tests.shop.models import Effect
from tests.support.helpers import eventually

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
    pytest.mark.django_db(transaction=True),
]

CANARY = 2


@pytest.fixture
def worker(manage, amqp):
    return manage("consume_events", "--with-relay", env=amqp.environment)


def test_a_group_heals_over_rabbitmq_the_canary_first_and_the_rest_after_it(page, letters, mended):
    mended.touch()

    plan = start_from_page(page, canary=CANARY, per_second=4)
    eventually(lambda: counts(page).get("healed", 0) >= CANARY, timeout=30)
    wait_for_state(page, "Done")

    assert counts(page) == {"healed": LETTERS}
    assert page.get_by_role("progressbar").get_attribute("aria-valuenow") == "100"
    assert outcomes(page, "healed") == LETTERS
    assert_the_rest_followed_the_canary(plan)
    assert Effect.objects.filter(subscription="shop.climb").count() == LETTERS
    assert set(DeadLetter.objects.values_list("state", "round")) == {("healed", 1)}
    page.goto(GROUPS)
    page.get_by_text("No dead letters are waiting.").wait_for()


def assert_the_rest_followed_the_canary(plan: Plan) -> None:
    sent = list(PlannedLetter.objects.filter(plan=plan).order_by("sent_at"))
    known = max(each.settled_at for each in sent[:CANARY])
    assert all(each.sent_at >= known for each in sent[CANARY:])
