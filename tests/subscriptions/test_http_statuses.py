"""What an error says by an HTTP status and a Retry-After."""

from __future__ import annotations

import math
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message as Headers
from types import SimpleNamespace

from django_eventbus.subscriptions.retries import causes_of, retry_after, status_of, verdict_on
from tests.support.tables import table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HttpError(Exception):
    def __init__(self, status_code=None, **attributes):
        super().__init__("no")
        self.status_code = status_code
        vars(self).update(attributes)


def raised_from(error, cause):
    error.__cause__ = cause
    return error


@table(
    ("statuses", "verdict"),
    [
        ([409, 429, 500, 502, 503, 504, 599], "retry"),
        ([425], "defer"),
        ([300, 301, 304, 308], "park"),
        ([400, 401, 403, 404, 410, 418, 422, 451, 499], "park"),
        ([200, 204], "retry"),
    ],
)
def test_the_status_table(statuses, verdict):
    assert {verdict_on(each, retry_client_errors=False) for each in statuses} == {verdict}


def test_client_errors_are_tried_again_on_request_and_redirects_are_not():
    assert verdict_on(404, retry_client_errors=True) == "retry"
    assert verdict_on(425, retry_client_errors=True) == "defer"
    assert verdict_on(302, retry_client_errors=True) == "park"


def test_the_status_may_be_that_of_a_cause():
    error = raised_from(ValueError("wrapped"), raised_from(KeyError(), HttpError(503)))

    assert status_of(error) == 503


@table("status", [None, "503", 99, 600, True, 3.5])
def test_what_is_no_status_is_none(status):
    assert status_of(HttpError(status)) is None


def test_errors_that_cause_each_other_come_to_an_end():
    one, two = ValueError("one"), ValueError("two")
    raised_from(one, raised_from(two, one))

    assert list(causes_of(one)) == [one, two]


@table(
    ("told", "seconds"),
    [
        (30, 30),
        (1.5, 1.5),
        (timedelta(minutes=1), 60),
        ("120", 120),
        (" 7 ", 7),
        (NOON + timedelta(hours=1), 3600),
        ("Thu, 01 Jan 2026 12:01:00 GMT", 60),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0),
        (timedelta(seconds=-5), 0),
        (datetime(2026, 1, 1, 12, 0, 9), 9),
    ],
)
def test_a_wish_is_read_in_every_form(told, seconds):
    assert retry_after(HttpError(retry_after=told), NOON) == seconds


@table("told", [None, "soon", -1, math.nan, math.inf, True, [], "9" * 30, ""])
def test_a_wish_that_cannot_be_read_is_none(told):
    assert retry_after(HttpError(retry_after=told), NOON) is None


def test_the_header_of_a_response_is_a_wish_too():
    response = SimpleNamespace(headers={"Retry-After": "5"})
    headers = Headers()
    headers["Retry-After"] = "6"

    assert retry_after(HttpError(response=response), NOON) == 5
    assert retry_after(raised_from(ValueError(), HttpError(response=response)), NOON) == 5
    with urllib.error.HTTPError("http://x", 503, "busy", headers, None) as error:
        assert retry_after(error, NOON) == 6
