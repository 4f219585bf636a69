"""Which dead letters are meant: the same words in a URL, a command, a plan and the audit."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_eventbus.admin.dead_letters.filters import FilterForm
from django_eventbus.dead_letters.filters import FILTERS, PATH_FILTERS
from django_eventbus.dead_letters.query import capped_count, freeze, matching, page_of
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import BadSelection
from django_eventbus.models import DeadLetter
from tests.support.tables import table

pytestmark = pytest.mark.both_databases

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def letter(number=0, **values):
    defaults = {
        "message_id": f"m{number}",
        "type": "order.placed",
        "body": b"{}",
        "subscription": "billing.charge",
        "queue": "default.shop.billing",
        "kind": "failed",
        "fingerprint": "f" * 32,
        "error_type": "KeyError",
    }
    return DeadLetter.objects.create(**{**defaults, **values})


def found(*words):
    return {each.message_id for each in matching(Selection.from_words(words), "default")}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("colour=red", "colour=red: this filter does not exist; the filters are type, queue"),
        ("quee=x", "did you mean 'queue'"),
        ("attempts_min=many", "attempts_min=many: write a whole number."),
        ("id=1,x", "id=1,x: write ids separated by commas, for example id=1,2,3."),
        ("edited=maybe", "edited=maybe: write yes or no."),
        ("parked_after=yesterday", "write a time like 2026-01-31T12:00, or a duration like 24h"),
        ("payload.=1", "write a path in the payload, for example payload.order.id=42"),
        ('payload.a={"b": 1}', "write a single value, not an object or a list"),
        ("header.=1", "write the name of a header, for example header.tenant=acme"),
        ("error=", "write the text to search for"),
        ("type", "'type' is not a filter: write name=value."),
        ("type=a\x00", "contains a NUL character or a lone surrogate"),
        ("payload.a\x00=1", "contains a NUL character or a lone surrogate"),
        (r'payload.a="\u0000"', "the value contains a NUL character or a lone surrogate"),
        (r'payload.a="\ud800"', "the value contains a NUL character or a lone surrogate"),
        ("typ=a", "did you mean 'type'"),
        ("headers.tenant=acme", "did you mean 'header'"),
        ("state=opn", "state=opn: this value does not exist; did you mean 'open'."),
        ("state=", "this value does not exist; the values are open, redriving"),
        ("kind=xyz", "this value does not exist; the values are failed, given_up"),
        ("payload.a=", 'payload.a=: write a value; "" is the empty text.'),
        ("header.tenant=", 'write a value; "" is the empty text'),
        ("payload.a=NaN", "this is not a number in JSON; write text in quotes"),
        ("payload.a=-Infinity", "this is not a number in JSON"),
        ("payload.a=1e400", "this is not a number in JSON"),
        ("payload.a=" + "[" * 100_000, "write a single value"),
        ('payload."a=1', "write a path in the payload"),
        ("payload." + "a." * 1000 + "b=1", "write a path in the payload"),
        ("parked_after=9999-12-31T23:59:59-12:00", "this time is out of range"),
        ("parked_before=0001-01-01T00:00+14:00", "this time is out of range"),
        (
            "as_of=9999-12-31T23:59:59-12:00~1",
            "this is not a snapshot of a list; remove this filter",
        ),
        (
            "as_of=2026-01-31T12:00~" + "9" * 30,
            "this is not a snapshot of a list; remove this filter",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_name_with_the_way_to_write_it(words, sentence):
    with pytest.raises(BadSelection) as refusal:
        Selection.from_words([words])

    assert sentence in str(refusal.value)


def test_a_selection_is_the_same_in_a_url_and_on_the_command_line():
    words = ["type=order.placed", "payload.customer.name=Ada & Co", "attempts_min=3", "edited=no"]

    written = Selection.from_words(words).query()

    assert Selection.from_query(written) == Selection.from_words(words)
    assert Selection.from_query(written).words() == " ".join(words)


def test_a_duration_becomes_the_time_that_it_means():
    selection = Selection.from_words(["parked_after=24h"], now=NOW)

    assert selection.pairs == [("parked_after", "2026-01-30T12:00:00+00:00")]
    assert Selection.from_query(selection.query()) == selection


@table(
    ("written", "meant"),
    [
        ("2026-07-01T12:00", "2026-07-01T10:00:00+00:00"),
        ("2026-07-01 12:00", "2026-07-01T10:00:00+00:00"),
        ("2026-07-01", "2026-06-30T22:00:00+00:00"),
        ("2026-07-01T12:00Z", "2026-07-01T12:00:00+00:00"),
        ("2026-07-01T12:00-05:00", "2026-07-01T17:00:00+00:00"),
        ("2026-07-01T12:00 05:00", "2026-07-01T07:00:00+00:00"),
    ],
)
def test_a_time_is_read_in_the_current_time_zone_and_written_down_absolute(written, meant):
    with timezone.override("Europe/Berlin"):
        selection = Selection.from_words([f"parked_after={written}"])

    assert selection.pairs == [("parked_after", meant)]
    assert Selection.from_query(selection.query()) == selection


@table("name", ['payload."a.b".c', 'payload.a."b.c"', "header.a.b"])
def test_a_name_with_a_dot_is_written_as_it_was_read(name):
    selection = Selection.from_words([f"{name}=1"])

    assert selection.pairs == [(name, "1")]


@pytest.mark.django_db
@table("number", ["9" * 30, "-" + "9" * 30, "1e300"])
@table("name", ["payload.n", "payload.lines.0", "payload.lines." + "9" * 30])
def test_a_number_may_be_larger_than_any_column_holds(name, number):
    letter(1, payload={"n": 1, "lines": [1]})

    assert found(f"{name}={number}") == set()


@pytest.mark.django_db
@table(
    ("words", "values"),
    [
        (["type=a.b"], {"type": "a.b"}),
        (["queue=q"], {"queue": "q"}),
        (["subscription="], {"subscription": ""}),
        (["kind=invalid"], {"kind": "invalid"}),
        (["state=discarded"], {"state": "discarded"}),
        (["group=abc"], {"fingerprint": "abc"}),
        (["error_type=ValueError"], {"error_type": "ValueError"}),
        (["error=NO STOCK"], {"error": "there is no stock left"}),
        (["source=orders"], {"source": "orders"}),
        (["message_id=this"], {"message_id": "this"}),
        (["header.tenant=acme"], {"headers": {"tenant": "acme"}}),
        (["header.attempt=3"], {"headers": {"attempt": 3}}),
        (["payload.order_id=42"], {"payload": {"order_id": 42}}),
        (["payload.order_id=42"], {"payload": {"order_id": "42", "x": 1}}),
        (['payload.order_id="42"'], {"payload": {"order_id": "42"}}),
        (["payload.a.b=yes"], {"payload": {"a": {"b": "yes"}}}),
        (['payload."a.b".c=1'], {"payload": {"a.b": {"c": 1}}}),
        (['payload.note=""'], {"payload": {"note": ""}}),
        (["payload.lines.0.sku=A"], {"payload": {"lines": [{"sku": "A"}]}}),
        (["payload.lines.00.sku=A"], {"payload": {"lines": [{"sku": "A"}]}}),
        (["payload.0.sku=A"], {"payload": [{"sku": "A"}]}),
        (["payload.0=true"], {"payload": [True]}),
        (["payload.years.2024=x"], {"payload": {"years": {"2024": "x"}}}),
        (["payload.years.2024=null"], {"payload": {"years": {"2024": None}}}),
        (["payload.years.2024.0.total=7"], {"payload": {"years": {"2024": [{"total": 7}]}}}),
        (["payload.0.1.2.3=7"], {"payload": [{"1": [0, 0, {"3": 7}]}]}),
        (["payload.2024=x"], {"payload": {"2024": "x"}}),
        (['payload."2024"=x'], {"payload": {"2024": "x"}}),
        (["payload.007=x"], {"payload": {"007": "x"}}),
        (["payload.-1=x"], {"payload": {"-1": "x"}}),
        (["payload.²=x"], {"payload": {"²": "x"}}),
        (["payload." + "9" * 30 + "=x"], {"payload": {"9" * 30: "x"}}),
        (["payload.2024=x", "payload.2024=y"], {"payload": {"2024": "y"}}),
        (["header.42=x"], {"headers": {"42": "x"}}),
        (["header.1.5=x"], {"headers": {"1.5": "x"}}),
        (["payload.is_paid=true"], {"payload": {"is_paid": True}}),
        (["payload.note=null"], {"payload": {"note": None}}),
        (["attempts_min=3"], {"attempts": 3}),
        (["attempts_max=0"], {"attempts": 0}),
        (["edited=yes"], {"edited_from": "x"}),
        (["redriven=yes"], {"round": 1}),
        (["parked_before=1h"], {"parked_at": timezone.now() - timedelta(days=1)}),
        (["parked_after=2000-01-01"], {"parked_at": timezone.now()}),
        (["type=a.b", "type=c.d", "kind=invalid"], {"type": "c.d", "kind": "invalid"}),
    ],
)
def test_each_filter_finds_what_it_says_and_nothing_else(words, values):
    others = {"parked_at": datetime(1999, 1, 1, tzinfo=UTC)} if "after" in words[0] else {}
    letter(1, **others)
    letter(2, type="a.b", **{"payload": {"order_id": 43}, **others}) if "type" not in words[
        0
    ] else None
    meant = letter(3, **values)

    assert found(*words) == {meant.message_id}


@pytest.mark.django_db
@table(
    ("words", "is_found"),
    [
        ("BankDown", True),
        ("bankdown", True),
        ("no answer", True),
        ("BankDown: no answer", True),
        ("down: No Answer for order 7: 100%", True),
        ("BankDown:", True),
        ("BankDown: ", True),
        (": no answer", True),
        ("order 7: 100%", True),
        ("Bank: no answer", False),
        ("BankDown: answer", False),
        ("BankDown: no answer for order 7: 100% of", False),
        ("BankDown no answer", False),
        ("B_nkDown", False),
        ("Bank%Down: no", False),
    ],
)
def test_an_error_is_found_by_what_a_list_shows_of_it(words, is_found):
    letter(1, error_type="KeyError", error="'answer'")
    letter(2, error_type="BankDown", error="no answer for order 7: 100%")

    assert found(f"error={words}") == ({"m2"} if is_found else set())


@pytest.mark.postgres
@pytest.mark.django_db
def test_words_of_an_error_are_estimated_by_the_statistics_of_each_column():
    """With a function around a column there are none, and common words are taken to be rare."""
    for number in range(200):
        letter(number, error_type="BankDown", error=f"no answer for order {number}")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE eventbus_deadletter")

    for words in ("BankDown", "no answer", "BankDown: no answer"):
        (plan,) = json.loads(
            matching(Selection.from_words([f"error={words}"]), "default").explain(format="json")
        )
        assert plan["Plan"]["Plan Rows"] > 100, plan


@pytest.mark.django_db
@table(
    ("words", "payload"),
    [
        ("payload.lines.-1=A", {"lines": ["A"]}),
        ("payload.lines.4294967296=A", {"lines": ["A"]}),
        ("payload.lines.1=A", {"lines": ["A"]}),
        ("payload.lines=A", {"lines": ["A"]}),
        ("payload.lines.sku=A", {"lines": [{"sku": "A"}]}),
    ],
)
def test_a_place_is_counted_from_the_first(words, payload):
    letter(1, payload=payload)

    assert found(words) == set()


def test_a_path_has_few_numbers():
    assert Selection.from_words(["payload.a" + ".0" * 4 + "=1"])
    with pytest.raises(BadSelection, match="write a path in the payload"):
        Selection.from_words(["payload.a" + ".0" * 5 + "=1"])


@pytest.mark.postgres
@pytest.mark.django_db
@table("words", ["payload.order_id=1", "header.42=x", "payload.-1.a=1"])
def test_the_index_answers_for_names(words):
    sql = str(matching(Selection.from_words([words]), "default").query)

    assert "@>" in sql


@pytest.mark.django_db
def test_a_number_in_quotes_is_text_only():
    letter(1, payload={"order_id": 42})

    assert found('payload.order_id="42"') == set()


@pytest.mark.django_db
def test_what_is_parked_after_a_selection_was_frozen_is_not_in_it():
    seen, again = letter(1), letter(2)
    frozen = freeze(Selection.from_words(["type=order.placed"]), "default")

    letter(3)
    again.parked_at = timezone.now() + timedelta(seconds=1)
    again.save()

    assert list(matching(frozen, "default")) == [seen]
    assert list(matching(Selection.from_query(frozen.query()), "default")) == [seen]
    assert freeze(frozen, "default") == frozen


@pytest.mark.django_db
def test_pages_follow_one_another_without_a_gap_even_at_the_same_moment():
    for number in range(7):
        letter(number, parked_at=NOW)

    first = page_of(matching(Selection(), "default"), size=4)
    after = (first[-1].parked_at, first[-1].pk)
    second = page_of(matching(Selection(), "default"), size=4, after=after)

    assert [each.message_id for each in [*first, *second]] == [f"m{n}" for n in range(6, -1, -1)]


@pytest.mark.django_db
def test_a_count_stops_at_its_limit():
    for number in range(5):
        letter(number)

    assert capped_count(matching(Selection(), "default"), 3) == 4
    assert capped_count(matching(Selection(), "default"), 10) == 5


def test_every_field_of_the_form_is_a_filter():
    paths = {f"{name}_{half}" for name in PATH_FILTERS for half in ("name", "value")}

    assert FilterForm.base_fields.keys() - FILTERS.keys() == paths
