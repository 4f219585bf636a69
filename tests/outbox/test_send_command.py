"""Commands on the database transport: sent to an exchange of their own, done by one queue."""

from __future__ import annotations

from itertools import product

import pytest
from django.db import transaction
from django.test import override_settings

from django_eventbus import (
    Command,
    Event,
    GiveUp,
    cancel,
    handle_command,
    publish,
    publish_many,
    send_command,
    subscribe,
)
from django_eventbus.checks import problems
from django_eventbus.events.message import Message
from django_eventbus.events.routing import COMMANDS, EVENTS, matches, overlap
from django_eventbus.exceptions import InvalidEvent
from django_eventbus.models import Binding, DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.monitoring.doctor import diagnose
from django_eventbus.redrive.edited_message import problems_with
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.outcomes import Handled, Park, Retry
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.subscriptions.subscription import registry
from tests.support.tables import table

SERVICE = {"SERVICE": "shop-tests"}


class Reprocess(Command, type="file.reprocess", version=2):
    file_id: int


class Uploaded(Event, type="file.uploaded"):
    file_id: int


def eventbus(**given):
    return override_settings(EVENTBUS={**SERVICE, **given})


@pytest.fixture
def commanded(bus):
    """Handle commands for this test only."""

    def handle(*args, **options):
        def register(handler):
            handle_command(*args, **{"name": "command", **options})(handler)
            bus.transport.declare(queue_specs())
            return handler

        return register

    return handle


@pytest.mark.django_db
def test_a_command_goes_to_an_exchange_of_its_own_under_a_key_of_its_own():
    send_command("file.reprocess", {"file_id": 7}, key=7)
    send_command(Reprocess(file_id=7))

    rows = OutboxEvent.objects.order_by("id")
    assert [(row.exchange, row.routing_key, row.type) for row in rows] == [
        ("shop.commands", "commands.file.reprocess", "file.reprocess")
    ] * 2
    assert [(row.key, row.version) for row in rows] == [("7", 1), ("", 2)]


def test_a_command_is_handled_once_with_its_payload_and_its_meta(bus, commanded):
    handled = []
    commanded("file.reprocess", queue="files")(handled.append)
    event_id = send_command("file.reprocess", {"file_id": 7}, key=7, correlation_id="chain")

    bus.drain()

    (command,) = handled
    assert (command.type, command.payload) == ("file.reprocess", {"file_id": 7})
    assert (command.meta.id, command.meta.key) == (str(event_id), "7")
    assert (command.meta.correlation_id, command.meta.source) == ("chain", "shop-tests")


def test_a_typed_command_arrives_as_its_class(bus, commanded):
    handled = []
    commanded(Reprocess)(handled.append)
    send_command(Reprocess(file_id=7))

    bus.drain()

    assert handled == [Reprocess(file_id=7)]


def test_a_command_that_is_rolled_back_is_not_sent(bus, commanded):
    handled = []
    commanded("file.reprocess")(handled.append)
    with transaction.atomic():
        send_command("file.reprocess")
        transaction.set_rollback(True)

    bus.drain()

    assert handled == []


def test_a_command_may_be_delayed_and_taken_back(bus, commanded):
    handled = []
    commanded("file.reprocess")(handled.append)
    event_id = send_command("file.reprocess", delay="1h")

    assert bus.relay() == 0
    assert cancel(event_id)
    bus.drain()

    assert handled == []


def test_a_command_that_nobody_handles_is_kept_as_unroutable(bus):
    send_command("file.reprocess")

    bus.relay()

    assert OutboxEvent.objects.get().state == OutboxEvent.State.UNROUTABLE


def test_a_failed_command_is_retried_parked_and_redriven_like_an_event(bus, commanded):
    attempts = []

    @commanded("file.reprocess", queue="files", retry=["1s"], name="reprocess")
    def reprocess(command):
        attempts.append((command.meta.round, command.meta.attempt))
        if not command.meta.round:
            raise ValueError

    send_command("file.reprocess", {})
    bus.drain()
    redrive([bus.letter.pk], by="me", using="default")
    bus.drain()

    assert attempts == [(0, 1), (0, 2), (1, 1)]
    letter = DeadLetter.objects.get()
    assert (letter.state, letter.subscription) == (DeadLetter.State.HEALED, "reprocess")
    assert (letter.exchange, letter.routing_key) == ("shop.commands", "commands.file.reprocess")


def test_what_a_command_causes_carries_its_id_and_its_chain(bus, commanded):
    @commanded("file.reprocess")
    def reprocess(command):
        publish("file.reprocessed", {})

    event_id = send_command("file.reprocess", correlation_id="chain")
    bus.relay()
    assert bus.consume() == [Handled()]

    caused = OutboxEvent.objects.get(type="file.reprocessed")
    assert (caused.causation_id, caused.correlation_id) == (str(event_id), "chain")


def test_an_error_in_a_policy_list_counts_for_commands_too(bus, commanded):
    @commanded("file.reprocess", park_on=[KeyError])
    def reprocess(command):
        raise KeyError

    send_command("file.reprocess")
    bus.relay()

    (outcome,) = bus.consume()
    assert isinstance(outcome, Park)


# Events and commands on one queue.


def test_a_pattern_for_every_event_gets_no_command_on_the_same_queue(bus, commanded):
    commands, events = [], []
    commanded("file.#", queue="q", name="commands")(commands.append)
    bus.subscribe("#", queue="q", name="events")(events.append)
    send_command("file.reprocess")
    publish("file.reprocess", {})

    bus.drain()

    assert len(commands) == len(events) == 1
    assert InboxRecord.objects.count() == 2


def test_an_event_of_a_command_s_type_runs_no_command_even_on_a_fanout_bus(bus):
    with eventbus(EXCHANGE_TYPES={"events": "fanout"}):
        commands = []
        handle_command("file.reprocess", queue="q", name="commands")(commands.append)
        bus.subscribe("order.placed", queue="q", name="events")(commands.append)
        publish("file.reprocess", {})

        bus.drain()

    assert commands == []


def test_the_retry_of_a_command_that_reached_no_handler_is_no_event(bus, commanded):
    events = []
    commanded("file.reprocess", queue="q", name="commands")(print)
    bus.subscribe("#", queue="q", name="events")(events.append)
    headers = {"x-original-exchange": "shop.commands"}
    key = "commands.file.reprocess"

    bus.put(queue="q", type="file.reprocess", routing_key=key, headers=headers)
    bus.drain()

    assert events == []


def test_a_command_that_reached_no_handler_is_edited_for_the_handlers_of_commands(bus, commanded):
    commanded("file.uploaded", queue="q", name="commands")(print)
    bus.subscribe(Uploaded, queue="q", name="events")(print)
    headers = {"x-original-exchange": "shop.commands"}
    bus.put(queue="q", type="file.uploaded", body=b"not JSON", headers=headers)
    bus.consume("q")

    assert problems_with(DeadLetter.objects.get(), {}) == []


@pytest.mark.parametrize("key", ["commands.file.reprocess.v1", "commands.upload.start"])
def test_a_stranger_s_command_without_a_type_is_matched_by_its_key(key, no_subscriptions):
    handle_command("file.reprocess.*", name="a")(print)
    handle_command("upload.#", name="b")(print)
    message = Message(id="1", type=key, body=b"", exchange="shop.commands", routing_key=key)

    found = [each.name for each in registry if each.matches(message)]

    assert found == (["a"] if "reprocess" in key else ["b"])


# What is refused where it is written.


@pytest.mark.django_db
def test_an_event_is_not_sent_and_a_command_not_published():
    with pytest.raises(InvalidEvent, match="Reprocess is a command: send it with send_command"):
        publish(Reprocess(file_id=1))
    with pytest.raises(InvalidEvent, match="Reprocess is a command"):
        publish_many([Reprocess(file_id=1)])
    with pytest.raises(InvalidEvent, match="Uploaded is an event: publish it"):
        send_command(Uploaded(file_id=1))
    with pytest.raises(InvalidEvent, match="not a dotted name"):
        send_command("file reprocess")
    assert not OutboxEvent.objects.exists()


def test_the_class_of_a_handler_has_to_be_of_its_kind():
    with pytest.raises(TypeError, match="Reprocess is a command: use @handle_command"):
        subscribe(Reprocess)
    with pytest.raises(TypeError, match=r"Use @handle_command\('file.reprocess'\)"):
        handle_command(Uploaded)
    with pytest.raises(TypeError, match="unexpected keyword argument 'retries'"):
        handle_command("file.reprocess", retries=3)


# One queue, or the check and the doctor complain.


def errors():
    return [each for each in problems() if each.id == "eventbus.E013"]


@pytest.mark.usefixtures("no_subscriptions")
@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        (("file.reprocess", "file.reprocess"), 1),
        (("file.*", "#.reprocess"), 1),
        (("file.#", "file"), 1),
        (("file.reprocess", "file.delete"), 0),
        (("file.*", "file.a.b"), 0),
    ],
)
def test_two_queues_for_one_command_are_an_error(patterns, count):
    for number, pattern in enumerate(patterns):
        handle_command(pattern, queue=f"q{number}", name=str(number))(print)

    assert len(errors()) == count


@pytest.mark.usefixtures("no_subscriptions")
def test_one_queue_for_a_command_and_two_for_an_event_are_fine():
    handle_command("file.reprocess", queue="a", name="1")(print)
    handle_command("file.#", queue="a", name="2")(print)
    subscribe("file.reprocess", queue="b", name="3")(print)
    subscribe("file.reprocess", queue="c", name="4")(print)

    assert errors() == []


def said(bus, severity):
    found = diagnose(bus.transport, queue_specs())
    return [each.text for each in found if each.severity == severity]


def test_the_doctor_finds_a_second_queue_of_another_service(bus, commanded):
    commanded("file.*", queue="files")(print)
    assert said(bus, "error") == []

    bound = {"exchange": "shop.commands", "queue": "other.files"}
    Binding.objects.create(**bound, pattern="commands.#.reprocess")

    finding = " ".join(said(bus, "error"))
    assert "'commands.file.*' go to 2 queues, other.files, shop.shop-tests.files" in finding


def test_the_doctor_of_a_sender_finds_two_queues_too(bus):
    for queue in ("a", "b"):
        Binding.objects.create(exchange="shop.commands", queue=queue, pattern="commands.#")
    send_command("file.reprocess")

    (finding,) = said(bus, "error")
    assert "Commands 'file.reprocess' go to 2 queues, a, b" in finding


def test_the_doctor_tells_of_a_command_that_no_queue_takes(bus, commanded):
    commanded("file.reprocess")(print)
    send_command("file.reprocess")
    send_command("file.delete")

    warnings = " ".join(said(bus, "warning"))
    assert "'file.delete'" in warnings
    assert "of the type 'file.reprocess'" not in warnings


# Keys by template.


@table(
    ("template", "pattern", "key"),
    [
        ("{type}", "order.placed", "order.placed"),
        ("{type}.v{version}", "order.placed", "order.placed.*"),
        ("{type}.v{version}", "order.*", "order.*.*"),
        ("{type}.v{version}", "order.#", "order.#.*"),
        ("{type}.v{version}", "#", "#.*"),
        ("{service}.{type}", "order.#", "*.order.#"),
        ("{namespace}.{service}-{version}.{type}", "a", "shop.*.a"),
        ("fixed", "order.#", "fixed"),
        ("", "order.#", ""),
    ],
)
def test_a_queue_is_bound_to_every_key_that_its_pattern_can_have(template, pattern, key):
    with eventbus(NAMES={"routing_key": template, "command_routing_key": template}):
        assert EVENTS.binding_key_of(pattern) == COMMANDS.binding_key_of(pattern) == key
        published = EVENTS.routing_key_of("order.placed", 3)
        assert matches(key, published) is (matches(pattern, "order.placed") or "{" not in template)


@eventbus(NAMES={"binding_key": "{pattern}.x", "command_binding_key": "{key}.y"})
def test_a_binding_key_may_be_another_than_the_routing_key_asks_for():
    assert EVENTS.binding_key_of("a.*") == "a.*.x"
    assert COMMANDS.binding_key_of("a.*") == "commands.a.*.y"


@pytest.mark.parametrize("template", ["{type}.v{version}", "{service}.{type}", "x.{type}.y"])
def test_with_any_routing_key_typed_and_wildcard_handlers_get_their_messages(bus, template):
    names = {"routing_key": template, "command_routing_key": f"commands.{template}"}
    with eventbus(NAMES=names):
        got = []
        bus.subscribe(Uploaded, queue="a", name="typed")(got.append)
        bus.subscribe("file.*", queue="b", name="star")(got.append)
        bus.subscribe("#", queue="c", name="hash")(got.append)
        bus.subscribe("order.*", queue="d", name="other")(got.append)
        handle_command(Reprocess, queue="e", name="command")(got.append)
        bus.transport.declare(queue_specs())
        publish(Uploaded(file_id=1))
        send_command(Reprocess(file_id=1))

        bus.drain()

    assert sorted(each.meta.subscription for each in got) == ["command", "hash", "star", "typed"]


@eventbus(NAMES={"routing_key": "{type}.v{version}"})
def test_a_stranger_s_event_without_a_type_is_matched_by_its_versioned_key(bus):
    got = []
    bus.subscribe(Uploaded, name="typed")(got.append)
    bus.subscribe("#", name="all")(got.append)

    key = "file.uploaded.v1"
    bus.put(type=key, routing_key=key, exchange="shop.events", body=b'{"file_id": 7}')
    bus.drain()

    assert sorted(each.meta.subscription for each in got) == ["all", "typed"]


def test_two_patterns_overlap_exactly_if_a_key_matches_both():
    words = ("a", "b")
    keys = [".".join(each) for size in range(5) for each in product(words, repeat=size)]
    patterns = [".".join(each) for size in range(4) for each in product("a*#", repeat=size)]

    for one, other in product(patterns, repeat=2):
        both = any(matches(one, key) and matches(other, key) for key in keys)
        assert overlap(one, other) is both, (one, other)


def test_a_command_is_retried_by_name_and_no_other_handler_is_asked(bus, commanded):
    @commanded("file.reprocess", retry=["1s"], name="first")
    def first(command):
        raise ValueError

    others = []
    commanded("file.*", name="second")(others.append)
    send_command("file.reprocess")
    bus.relay()

    assert [type(each) for each in bus.consume()] == [Retry, Handled]
    bus.drain()
    assert len(others) == 1


def test_giving_up_parks_a_command_at_once(bus, commanded):
    @commanded("file.reprocess")
    def reprocess(command):
        raise GiveUp("no such file")

    send_command("file.reprocess")
    bus.drain()

    assert (bus.letter.kind, bus.letter.attempts) == ("given_up", 1)
