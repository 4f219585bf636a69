"""What a failed attempt leads to, as tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_eventbus.events.event import Meta
from django_eventbus.exceptions import (
    GiveUp,
    InvalidPayload,
    NotCommitted,
    RetryLater,
    Skip,
    StartedTooOften,
    TooEarly,
    TooOld,
    Undecodable,
    UnknownVersion,
    Unmatched,
)
from django_eventbus.subscriptions.outcomes import Defer, Park, Retry, Skipped
from django_eventbus.subscriptions.retries import DecisionTime, RetryPolicy, decide, describe
from tests.support.tables import table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PARKED = "parked"
WHEN = DecisionTime(now=NOON - timedelta(hours=1), since=NOON - timedelta(hours=2), latest=NOON)


class CardDeclined(Exception):
    pass


class CardExpired(CardDeclined):
    pass


class NotMyOrder(Skip):
    pass


class Hopeless(GiveUp):
    pass


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Wordless(Exception):
    def __str__(self):
        return None


def decision(error, attempt=1, delays=(30.0, 300.0), tries=3, **lists):
    policy = RetryPolicy(delays=delays, tries=tries, **lists)
    return decide(error, attempt, policy, WHEN)


def waits(delays, tries):
    """Return the wait after each attempt that fails, up to the one that parks."""
    policy = RetryPolicy(delays=tuple(map(float, delays)), tries=tries)
    outcomes = [decide(ValueError(), n, policy, WHEN) for n in range(1, tries + 1)]
    return [each.delay if isinstance(each, Retry) else PARKED for each in outcomes]


@table(
    ("delays", "tries", "expected"),
    [
        # tries = delays + 1: every delay once
        ([30, 300, 1800], 4, [30, 300, 1800, PARKED]),
        # fewer tries: the rest of the list is not used
        ([30, 300, 1800], 2, [30, PARKED]),
        ([30, 300, 1800], 1, [PARKED]),
        # more tries: the last delay repeats
        ([30, 300], 5, [30, 300, 300, 300, PARKED]),
        # delays repeat, and 0 is back at once
        ([0, 0, 5, 5], 5, [0, 0, 5, 5, PARKED]),
        # no delays at all
        ([], 1, [PARKED]),
        ([], 3, [0, 0, PARKED]),
    ],
)
def test_delays_are_used_in_order_and_the_last_one_repeats_up_to_the_tries(delays, tries, expected):
    assert waits(delays, tries) == expected


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 1e6), max_size=5), st.integers(1, 12))
def test_every_policy_parks_exactly_at_its_last_try(delays, tries):
    outcomes = waits(delays, tries)

    assert outcomes.index(PARKED) == tries - 1
    assert set(outcomes[:-1]) <= {*delays, 0.0}


@table("attempt", [3, 4, 2**30 + 1])
def test_an_attempt_past_the_last_is_parked_too(attempt):
    assert decision(ValueError("no"), attempt) == Park(kind="failed", reason="ValueError: no")


@table(("attempt", "tries", "expected"), [(1, 3, False), (2, 3, False), (3, 3, True), (4, 3, True)])
def test_is_last_says_what_decide_will_do(attempt, tries, expected):
    meta = Meta(id="1", type="order.placed", attempt=attempt, tries=tries)

    assert meta.is_last is expected
    assert isinstance(decision(ValueError(), attempt, tries=tries), Park) is expected


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (GiveUp("closed"), "given_up"),
        (Hopeless("closed"), "given_up"),
        (Undecodable("closed"), "undecodable"),
        (InvalidPayload("closed"), "invalid"),
        (TooOld("closed"), "too_old"),
        (StartedTooOften("closed"), "start_limit"),
    ],
)
def test_what_no_attempt_can_mend_is_parked_at_once(error, kind):
    outcome = decision(error, retry_on=(Exception,), skip_on=(type(error),))

    assert outcome == Park(kind=kind, reason=f"{type(error).__name__}: closed")


@table("error", [UnknownVersion("v2"), NotCommitted("rolled back"), Unmatched()])
def test_what_a_deploy_may_mend_is_retried(error):
    assert decision(error) == Retry(delay=30.0, by_tier=True)


def test_what_nothing_subscribes_to_is_parked_as_unmatched_after_the_last_try():
    assert decision(Unmatched("nobody"), attempt=3).kind == "unmatched"


@table(
    ("error", "reason"),
    [
        (Skip("not ours"), "not ours"),
        (NotMyOrder("not ours"), "not ours"),
        (Skip(), "the handler skipped it"),
    ],
)
def test_skip_is_settled_with_its_reason(error, reason):
    assert decision(error, park_on=(Exception,)) == Skipped(reason=reason)


@table(
    ("after", "expected"),
    [
        # without a time: the next delay of the subscription
        (None, Retry(delay=30.0, by_tier=True)),
        # a time that a tier has
        ("5m", Retry(delay=300.0, by_tier=True)),
        (timedelta(seconds=30), Retry(delay=30.0, by_tier=True)),
        # back at once needs no tier
        (0, Retry(delay=0.0, by_tier=True)),
        # an odd time: by the outbox
        ("31s", Retry(delay=31.0, by_tier=False)),
        (0.5, Retry(delay=0.5, by_tier=False)),
    ],
)
def test_retry_later_goes_by_a_tier_if_one_has_its_time(after, expected):
    assert decision(RetryLater(after=after)) == expected


def test_retry_later_at_the_last_try_is_parked():
    assert decision(RetryLater("busy", after="1s"), attempt=3) == Park(
        kind="failed", reason="RetryLater: busy"
    )


@table("after", [-1, "soon", 1e300, float("nan"), timedelta(days=-1)])
def test_retry_later_refuses_a_time_that_is_none(after):
    with pytest.raises(ValueError, match="is not a duration"):
        RetryLater(after=after)


@table(
    ("past_limit", "expected"),
    [
        (timedelta(days=-9), Defer(until=NOON - timedelta(days=9))),
        (timedelta(0), Defer(until=NOON)),
        (
            timedelta(microseconds=1),
            Park(
                kind="too_early",
                reason="the event cannot be deferred until 2026-01-01T12:00:00.000001+00:00, which is too late",
            ),
        ),
    ],
)
def test_too_early_is_deferred_up_to_the_limit_and_then_parked(past_limit, expected):
    assert decision(TooEarly(until=NOON + past_limit)) == expected


def test_too_early_counts_no_attempt_even_at_the_last_try():
    assert decision(TooEarly(until=NOON), attempt=3) == Defer(until=NOON)


def test_too_early_refuses_a_time_without_a_zone():
    with pytest.raises(ValueError, match="needs an aware datetime"):
        TooEarly(until=datetime(2026, 1, 1))


@table(
    ("lists", "expected"),
    [
        ({}, "retry"),
        ({"park_on": (CardExpired,)}, "park"),
        ({"park_on": (CardDeclined,)}, "park"),
        ({"skip_on": (Exception,)}, "skip"),
        # the nearest class decides, whichever list it is in
        ({"park_on": (Exception,), "retry_on": (CardDeclined,)}, "retry"),
        ({"park_on": (CardDeclined,), "retry_on": (Exception,)}, "park"),
        ({"skip_on": (CardExpired,), "park_on": (CardDeclined,), "retry_on": (Exception,)}, "skip"),
        # the same class in two lists: retrying loses nothing, parking less than skipping
        ({"park_on": (CardExpired,), "retry_on": (CardExpired,)}, "retry"),
        ({"park_on": (CardExpired,), "skip_on": (CardExpired,)}, "park"),
        # a class that is no ancestor decides nothing
        ({"park_on": (OSError,)}, "retry"),
    ],
)
def test_the_nearest_class_that_a_list_names_decides(lists, expected):
    kinds = {Retry: "retry", Park: "park", Skipped: "skip"}

    assert kinds[type(decision(CardExpired("2019"), **lists))] == expected


def test_an_error_to_park_on_counts_as_given_up_and_one_to_skip_on_gives_its_words():
    reason = "CardExpired: 2019"

    parked = decision(CardExpired("2019"), park_on=(CardDeclined,))
    skipped = decision(CardExpired("2019"), skip_on=(CardDeclined,))

    assert (parked, skipped) == (Park(kind="given_up", reason=reason), Skipped(reason=reason))


@table(
    ("error", "expected"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
        (SystemExit(1), "SystemExit: 1"),
        (Mute(), "Mute: its text is not available: its __str__ fails"),
        (Wordless(), "Wordless: its text is not available: its __str__ fails"),
    ],
)
def test_an_error_is_described_whatever_it_is(error, expected):
    assert describe(error) == expected
    assert isinstance(decision(error, attempt=3), Park)


def test_an_error_without_words_is_retried_and_parked_like_any_other(bus):
    @bus.subscribe("order.placed", retry=["1s"])
    def handler(event):
        raise Wordless

    bus.put()
    bus.drain()

    assert (bus.letter.kind, bus.letter.error_type) == ("failed", "Wordless")


class HttpError(Exception):
    def __init__(self, status_code, retry_after=None):
        super().__init__(f"status {status_code}")
        self.status_code = status_code
        self.retry_after = retry_after


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (409, Retry(delay=30.0)),
        (429, Retry(delay=30.0)),
        (503, Retry(delay=30.0)),
        (425, Defer(until=WHEN.now + timedelta(seconds=30))),
        (404, Park(kind="given_up", reason="HttpError: status 404")),
        (302, Park(kind="given_up", reason="HttpError: status 302")),
    ],
)
def test_an_error_with_a_status_follows_the_table_in_any_handler(status, expected):
    assert decision(HttpError(status)) == expected


def test_the_lists_come_before_the_status():
    assert isinstance(decision(HttpError(404), retry_on=(HttpError,)), Retry)
    assert isinstance(decision(HttpError(503), park_on=(HttpError,)), Park)


def test_client_errors_are_retried_by_option():
    assert decision(HttpError(404), retry_client_errors=True) == Retry(delay=30.0)


def test_an_error_carries_its_own_delay_by_a_tier_if_one_has_it():
    assert decision(HttpError(503, 300)) == Retry(delay=300.0)
    assert decision(HttpError(503, 7)) == Retry(delay=7.0, by_tier=False)
    assert decision(HttpError(425, 7)) == Defer(until=WHEN.now + timedelta(seconds=7))


def test_a_stranger_cannot_put_an_attempt_off_for_ever():
    assert decision(HttpError(503, 10**8)) == Retry(delay=3600.0, by_tier=False)
    assert decision(HttpError(425, 10**8)).kind == "too_early"


def test_what_an_error_was_raised_from_is_considered_too():
    error = ValueError("wrapped")
    error.__cause__ = CardExpired("gone")

    assert isinstance(decision(error, park_on=(CardDeclined,)), Park)
    assert isinstance(decision(error, park_on=(CardDeclined,), retry_on=(ValueError,)), Retry)


def test_a_function_decides_where_a_class_is_not_enough(caplog):
    def is_blocked(error):
        return error.args[0] == "blocked"

    lists = {"park_on": (is_blocked,), "retry_on": (CardDeclined,)}
    assert isinstance(decision(CardDeclined("blocked"), **lists), Park)
    assert isinstance(decision(CardDeclined("busy"), **lists), Retry)
    assert caplog.text == ""
    # It fails on an error that it does not know, and has decided nothing.
    assert isinstance(decision(ValueError(), **lists), Retry)
    assert "is_blocked raised IndexError and does not match the error." in caplog.text


@table(("budget", "kind"), [(3629, Park), (3631, Retry), (None, Retry)])
def test_nothing_is_tried_again_past_the_time_budget(budget, kind):
    # An hour has passed since the first attempt, and the delay is 30 s.
    assert isinstance(decision(ValueError(), retry_for=budget), kind)
