"""The system checks: an id, a sentence, and a remedy for each."""

from __future__ import annotations

from contextlib import contextmanager
from types import ModuleType

import pytest
from django.core import checks as django_checks
from django.core.management import call_command
from django.core.management.base import CommandError, SystemCheckError
from django.db import connections
from django.db.backends.dummy.base import DatabaseWrapper as DummyDatabase
from django.db.backends.sqlite3.base import DatabaseWrapper as SqliteDatabase
from django.test import override_settings

from django_eventbus import Event, checks, subscribe
from tests.support.tables import table

SECRET = "hunter2"
GOOD_OPTIONS = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"}

pytestmark = pytest.mark.usefixtures("no_subscriptions")


class MySQL(DummyDatabase):
    """As Django's own, which cannot be imported without its driver."""

    vendor = "mysql"
    display_name = "MySQL"


class OldPostgres(DummyDatabase):
    """As Django's own where only psycopg2 is installed."""

    vendor = "postgresql"
    Database = ModuleType("psycopg2")


class Untyped(Event):
    pass


def found(**given):
    """Return what the checks find, by id."""
    with override_settings(EVENTBUS={"SERVICE": "orders", **given}):
        return {message.id: message for message in checks.problems()}


def subscribed(pattern="order.placed", **options):
    @subscribe(pattern, **options)
    def handler(event):
        """Never run."""


@contextmanager
def database(alias, wrapper, **settings):
    """Have one more database, without connecting to it."""
    connections.settings[alias] = {**connections.settings["default"], **settings}
    connections[alias] = wrapper(connections.settings[alias], alias)
    try:
        yield
    finally:
        del connections[alias]
        del connections.settings[alias]


def test_a_plain_project_passes():
    subscribed()

    assert found() == {}


def test_the_checks_run_with_djangos_own():
    with override_settings(EVENTBUS={}):
        messages = django_checks.run_checks(tags=[checks.TAG])

    assert [message.id for message in messages] == ["eventbus.E001"]


@override_settings(EVENTBUS={"SERVICE": "orders", "TREIS": 1})
def test_manage_py_check_fails_with_the_id_and_the_hint():
    with pytest.raises(SystemCheckError, match=r"(?s)eventbus.E002.*Did you mean TRIES\?"):
        call_command("check", tags=[checks.TAG])


@pytest.mark.parametrize("given", [{}, {"TRIES": 3}])
def test_a_missing_service_is_an_error_with_an_example(given, settings):
    settings.EVENTBUS = given

    (problem,) = checks.problems()

    assert problem.id == "eventbus.E001"
    assert "EVENTBUS = {'SERVICE': 'orders'}" in problem.hint


@pytest.mark.parametrize("given", [None, "orders", []])
def test_a_setting_that_is_no_dict_is_one_error_with_an_example(given, settings):
    settings.EVENTBUS = given

    (problem,) = checks.problems()

    assert problem.id == "eventbus.E001"
    assert "EVENTBUS = {'SERVICE': 'orders'}" in problem.hint


def test_an_unknown_key_is_an_error_with_a_guess():
    problem = found(BROKER="database://")["eventbus.E002"]

    assert problem.msg == "EVENTBUS has an unknown key 'BROKER'."
    assert problem.hint == "Did you mean BROKER_URL?"


def test_an_unknown_key_like_no_other_is_an_error_with_all_keys():
    assert "SERVICE, SHARDS" in found(QQQQ=1)["eventbus.E002"].hint


@pytest.mark.parametrize("given", [{"POLL_INTERVAL": "soon"}, {"TRIES": "many"}])
def test_a_value_of_the_wrong_kind_is_an_error_that_names_its_key(given):
    (key,) = given

    problems = found(**given)

    assert list(problems) == ["eventbus.E003"]
    assert key in problems["eventbus.E003"].msg
    assert f"remove {key}" in problems["eventbus.E003"].hint


@table(
    ("url", "expected"),
    [
        (5, "eventbus.E003"),
        (f"amqp:{SECRET}@host", "eventbus.E003"),
        (f"me:{SECRET}@host://", "eventbus.E003"),
        (f"kafka://me:{SECRET}@host", "eventbus.E005"),
        (f"database://me:{SECRET}@host/", "eventbus.E005"),
        ("database://nowhere", "eventbus.E005"),
    ],
)
def test_a_bad_broker_url_is_one_error_that_never_repeats_its_password(url, expected):
    problems = found(BROKER_URL=url)

    assert list(problems) == [expected]
    assert problems[expected].hint
    assert SECRET not in str(problems[expected]) + repr(problems[expected])


LIMIT = 255 - len(".retry.3153600000000ms")


@pytest.mark.parametrize(
    ("given", "queue"),
    [({"SERVICE": "x" * 250}, ""), ({"NAMESPACE": "x" * 250}, ""), ({}, "x" * 220)],
)
def test_a_name_over_the_brokers_limit_is_an_error(given, queue):
    subscribed(queue=queue)

    assert "Shorten SERVICE, NAMESPACE or the queue=" in found(**given)["eventbus.E004"].hint


def test_a_long_service_is_an_error_even_where_nothing_subscribes():
    assert "eventbus.E004" in found(SERVICE="x" * 256)


def test_a_queue_name_may_be_as_long_as_its_longest_tier_lets_it():
    prefix = len("default.orders.")
    subscribed(queue="x" * (LIMIT - prefix), name="fits")
    assert found() == {}

    subscribed(queue="x" * (LIMIT - prefix + 1), name="does not")
    assert list(found()) == ["eventbus.E004"]


@table("options", [{"name": "ä" * 128}, {"pattern": "a." * 128}])
def test_a_subscription_name_or_pattern_over_255_bytes_is_an_error(options):
    subscribed(**options)

    assert "shorter name= or pattern" in found()["eventbus.E004"].hint


@table("queue", ["dlq", "retry", "v2", "a.retired", "a.", "a..b", "retry.30s", "a b", "ä", "a\x00"])
def test_a_queue_name_that_is_no_word_or_the_bus_s_own_is_an_error(queue):
    subscribed(queue=queue)

    assert "Choose another name" in found()["eventbus.E010"].hint


def test_templates_that_every_delay_and_queue_has_its_own_tier_by_are_fine():
    subscribed(queue="a", retry=["1s", "5s"], name="a")
    subscribed(queue="b", name="b")

    assert found(NAMES={"tier": "{name}-{delay}", "tier_key": "{name}.{delay}"}) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"NAMES": {"tier": "{queue}.retry"}}, "would serve both"),
        ({"NAMES": {"tier": "{service}.{delay}"}}, "would serve both"),
        ({"NAMES": {"retry_exchange": ""}}, "NAMES['tier_key'] does not make"),
        ({"NAMES": {"tier_return_key": "x"}}, "NAMES['tier_return_key'] does not make"),
        ({"NAMES": {"dead_letter_exchange": ""}}, "NAMES['dead_letter_key'] does not make"),
        ({"EXCHANGE_TYPES": {"events": "direct"}}, "matches nothing on a direct exchange"),
    ],
)
def test_a_layout_that_leads_a_message_astray_is_an_error_with_a_hint(given, words):
    subscribed("order.*", queue="a", name="a")
    subscribed("order.*", queue="b", name="b")

    problem = found(**given)["eventbus.E012"]

    assert words in problem.msg
    assert "NAMES" in problem.hint or "EXCHANGE_TYPES" in problem.hint


@pytest.mark.parametrize(
    ("pattern", "given"),
    [
        ("#.a.#.b.#", {}),
        ("a.#.b.#", {"NAMES": {"binding_key": "{pattern}.#"}}),
    ],
)
def test_a_binding_with_more_wildcards_than_rabbitmq_accepts_is_an_error(pattern, given):
    subscribed(pattern, queue="a")

    problem = found(**given)["eventbus.E018"]

    assert "three or more '#': RabbitMQ 4.3.5 and newer refuse" in problem.msg
    assert "'#'" in problem.hint


def test_a_binding_with_two_wildcards_is_fine_and_so_are_more_where_they_are_not_wildcards():
    subscribed("#.a.#", name="two")
    assert found() == {}

    subscribed("#.a.#.b.#", name="three")
    assert found(EXCHANGE_TYPES={"events": "fanout"}) == {}


def test_an_unknown_placeholder_is_an_error_that_lists_the_known_ones():
    problem = found(NAMES={"tier": "{quue}"})["eventbus.E003"]

    assert "'tier' contains {quue}, but only {namespace}, {service}, {queue}" in problem.msg
    assert "remove NAMES" in problem.hint


@pytest.mark.parametrize(
    "others",
    [{"name": "charge"}, {"name": "bill", "aliases": ["charge"]}],
)
def test_two_subscriptions_of_one_name_are_an_error(others):
    subscribed(name="charge")
    subscribed(**others)

    problem = found()["eventbus.E006"]

    assert problem.msg == "2 subscriptions are called 'charge'."
    assert "name= of its own" in problem.hint


def test_an_alias_that_is_its_own_name_collides_with_nothing():
    subscribed(name="charge", aliases=["charge", "bill", "bill"])

    assert found() == {}


@table("pattern", ["", Untyped])
def test_a_subscription_to_nothing_is_an_error(pattern):
    subscribed(pattern)

    assert "'order.placed', 'order.*', or an Event class" in found()["eventbus.E007"].hint


def test_an_unknown_database_is_an_error():
    subscribed(using="nowhere")

    assert "'nowhere'" in found()["eventbus.E008"].msg
    assert "using=" in found()["eventbus.E008"].hint


def test_mysql_is_an_error():
    subscribed(using="mysql")

    with database("mysql", MySQL, ENGINE="django.db.backends.mysql"):
        problem = found()["eventbus.E009"]

    assert problem.msg == "The database 'mysql' is MySQL, which django_eventbus does not support."
    assert "PostgreSQL" in problem.hint


def test_psycopg2_is_an_error_with_the_package_to_install():
    subscribed(using="old")

    with database("old", OldPostgres, ENGINE="django.db.backends.postgresql"):
        problem = found()["eventbus.E009"]

    assert "through psycopg2" in problem.msg
    assert "pip install 'django-eventbus[postgres]'" in problem.hint


@table(
    "options",
    [
        {},
        {"transaction_mode": "IMMEDIATE"},
        {"init_command": "PRAGMA journal_mode=WAL;"},
        {**GOOD_OPTIONS, "transaction_mode": "DEFERRED"},
        {**GOOD_OPTIONS, "transaction_mode": None},
    ],
)
def test_sqlite_without_wal_and_immediate_is_a_warning_with_the_options(options):
    subscribed(using="lite")

    with database("lite", SqliteDatabase, OPTIONS=options):
        problem = found()["eventbus.W001"]

    assert problem.level == django_checks.WARNING
    assert "'transaction_mode': 'IMMEDIATE'" in problem.hint


def test_sqlite_with_wal_and_immediate_in_any_case_passes():
    subscribed(using="lite")
    options = {"transaction_mode": "immediate", "init_command": "pragma journal_mode=wal"}

    with database("lite", SqliteDatabase, OPTIONS=options):
        assert found() == {}


def test_a_wrong_service_is_not_told_to_leave_it_to_a_default_that_there_is_not():
    assert "Name this service" in found(SERVICE="two words")["eventbus.E003"].hint


@override_settings(USE_TZ=False)
def test_times_without_a_zone_are_an_error():
    with pytest.raises(CommandError, match="USE_TZ is off"):
        call_command("consume_events")

    assert "Set USE_TZ = True" in found()["eventbus.E017"].hint


@pytest.mark.parametrize("pattern", ["order placed", "order.*d", "order..placed", ".", ""])
def test_a_pattern_that_could_never_match_is_an_error(no_subscriptions, pattern):
    subscribe(pattern, name="hopeful")(print)

    assert "'hopeful'" in found()["eventbus.E007"].msg


@pytest.mark.parametrize("pattern", ["system.ping", "system.#", "system"])
def test_a_subscription_to_the_bus_s_own_events_is_an_error(no_subscriptions, pattern):
    subscribe(pattern, name="nosy")(lambda event: None)

    assert "never reaches a handler" in found()["eventbus.E014"].msg


def test_an_ordered_subscription_that_shares_its_queue_is_an_error(no_subscriptions):
    subscribe("order.*", queue="q", name="first", ordered=True)(lambda event: None)
    assert "eventbus.E015" not in found()

    subscribe("order.*", queue="q", name="second")(lambda event: None)

    assert "2 subscriptions share it: 'first', 'second'." in found()["eventbus.E015"].msg


@pytest.mark.parametrize(
    ("options", "changes", "said"),
    [
        ({}, {}, "is not ordered"),
        ({"ordered": True}, {"PARK_TO": "broker"}, "PARK_TO is 'broker'"),
    ],
)
def test_a_key_that_cannot_be_held_is_an_error(no_subscriptions, options, changes, said):
    subscribe("order.*", queue="q", name="holder", hold_key=True, **options)(lambda event: None)

    assert said in found(**changes)["eventbus.E016"].msg


async def coroutine(event):
    """Never run by a call."""


def generator(event):
    yield event


@pytest.mark.parametrize("handler", [coroutine, generator])
def test_a_handler_that_a_call_does_not_run_is_an_error(no_subscriptions, handler):
    subscribe("order.placed", name="lazy")(handler)

    assert "Write it with def" in found()["eventbus.E011"].hint


def test_a_debug_handler_that_a_call_does_not_run_is_an_error(no_subscriptions):
    subscribe("order.placed", name="lazy", debug_handler=coroutine)(lambda event: None)

    assert "eventbus.E011" in found()


@pytest.mark.parametrize(
    "given",
    [7, "", f"jaeger.example/{SECRET}/{{trace_id}}", f"https://{SECRET}@jaeger.example/trace/",
     f"https://{SECRET}@jaeger.example/{{traceid}}", "javascript:alert('{trace_id}')"],
)  # fmt: skip
def test_a_trace_url_without_a_place_for_the_id_is_an_error_that_shows_one(given):
    problem = found(TRACE_URL=given)["eventbus.E003"]

    assert "Example: 'https://jaeger.example/trace/{trace_id}'" in problem.msg
    assert "remove TRACE_URL" in problem.hint
    assert SECRET not in str(problem)


def test_a_trace_url_may_have_other_braces():
    assert found(TRACE_URL='https://grafana.example/explore?left={"query":"{trace_id}"}') == {}


@table("key", ["BROKER_URL", "MANAGEMENT_URL"])
def test_a_password_in_a_url_is_told_where_the_debug_page_shows_settings(key):
    scheme = "amqp" if key == "BROKER_URL" else "http"
    given = {key: f"{scheme}://me:{SECRET}@localhost/"}

    with override_settings(DEBUG=True):
        problem = found(**given)["eventbus.W002"]
        assert "eventbus.W002" not in found(**{key: f"{scheme}://guest:guest@localhost/"})
        assert "eventbus.W002" not in found(
            **{key: f"{scheme}://localhost/", "BROKER_PASSWORD": SECRET}
        )
    assert key in problem.msg
    assert "BROKER_PASSWORD" in problem.hint
    assert SECRET not in problem.msg + problem.hint
    assert found(**given) == {}


@table(
    ("given", "is_told"),
    [
        ({"BROKER_URL": f"amqp://me:{SECRET}@broker/"}, True),
        ({"BROKER_URL": f"amqp://me:{SECRET}@localhost,broker:5672/"}, True),
        ({"BROKER_URL": f"amqp://me:p/{SECRET}@x@[2001:db8::1]:5672/"}, True),
        ({"BROKER_URL": "amqp://broker/", "BROKER_PASSWORD": SECRET}, True),
        ({"MANAGEMENT_URL": f"http://me:{SECRET}@broker:15672"}, True),
        ({"MANAGEMENT_URL": "http://broker:15672", "BROKER_PASSWORD": SECRET}, True),
        ({"BROKER_URL": f"amqps://me:{SECRET}@broker/"}, False),
        ({"BROKER_URL": f"amqp://me:{SECRET}@localhost,127.0.0.2:1,[::1]:7/"}, False),
        ({"BROKER_URL": "amqp://guest:guest@broker/"}, False),
        ({"BROKER_URL": "amqp://broker/"}, False),
        ({"MANAGEMENT_URL": f"https://me:{SECRET}@broker"}, False),
        ({"MANAGEMENT_URL": "http://localhost:15672", "BROKER_PASSWORD": SECRET}, False),
    ],
)
def test_a_password_that_leaves_this_machine_without_tls_is_told(given, is_told):
    problem = found(**given).get("eventbus.W003")

    assert bool(problem) == is_told
    if problem:
        assert "without TLS" in problem.msg
        assert "s://" in problem.hint
        assert SECRET not in problem.msg + problem.hint


def test_a_connection_that_verifies_nothing_is_told():
    problem = found(BROKER_OPTIONS={"TLS": {"VERIFY": False}})["eventbus.W004"]

    assert "VERIFY" in problem.msg
    assert found(BROKER_OPTIONS={"TLS": {"VERIFY": True}}) == {}
