"""eventbus_dlq and redrive_events --from-broker: the DLQ of teams that keep their dead there."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from django_eventbus.models import AuditEntry, DeadLetter, InboxRecord
from tests.support.helpers import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]

KILLED = -9
ACT = {"eventbus-subscription": "shop.act"}


@pytest.fixture
def shop(shop):
    shop.configure(PARK_TO="broker", COLLECT_DLQ=False)
    return shop


def run(command, *arguments, **options):
    out = StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


def redrive(shop, *, queue=None, **options):
    options = {"from_broker": queue or shop.queue, "json": True, "yes": True, **options}
    return json.loads(run("redrive_events", **options))


def peeked(shop, *arguments):
    lines = run("eventbus_dlq", shop.dlq, "--json", *arguments).splitlines()
    return [json.loads(line) for line in lines]


def fill(shop, number):
    with shop.amqp.channel() as channel:
        channel.confirm_delivery()
        for each in range(number):
            channel.basic_publish("", shop.dlq, b"{}", shop.properties(f"m-{each}"))
    assert shop.amqp.count(shop.dlq) == number


def test_what_was_parked_to_the_broker_runs_again_and_is_handled(shop):
    message_id = shop.put("fail", headers={**ACT, "x-retry-count": 2})
    shop.work()
    assert InboxRecord.objects.get().state == "parked"

    # A person mends the message on the broker, as some tools can.
    ((_, properties, _),) = shop.dead()
    shop.put("ok", to=shop.dlq, message_id=message_id, headers=properties.headers)
    assert redrive(shop, by="ada") == {"moved": [message_id], "left": {}}

    with shop.amqp.channel() as channel:
        method, properties, _ = channel.basic_get(shop.queue)
        channel.basic_nack(method.delivery_tag, requeue=True)
    headers = properties.headers
    assert (headers["x-redriven-count"], headers["x-redriven-by"]) == (1, "ada")
    assert (headers["x-retry-count"], headers["x-original-queue"]) == (0, shop.queue)
    assert "x-redriven-at" in headers
    assert not [name for name in headers if name.startswith(("x-final", "x-death"))]
    shop.work()
    assert shop.effects == [(message_id, "shop.act")]
    assert InboxRecord.objects.get().state == "handled"


def test_what_fails_again_comes_back_in_the_next_round_and_can_be_sent_again(shop):
    message_id = shop.put("give up", headers=ACT)
    shop.work()

    for number in (1, 2):
        assert redrive(shop)["moved"] == [message_id]
        shop.work()
        assert InboxRecord.objects.get().round == number

    (found,) = peeked(shop)
    assert (found["round"], found["reason"]) == (2, "given_up")


def test_a_copy_that_is_older_than_its_record_is_sent_in_a_newer_round(shop):
    message_id = shop.put(to=shop.dlq, headers=ACT)
    InboxRecord.objects.create(
        subscription="shop.act", message_id=message_id, state="parked", round=7
    )

    redrive(shop)
    shop.work()

    assert shop.effects == [(message_id, "shop.act")]


def test_a_broker_side_death_runs_for_every_subscription_that_had_not_handled_it(shop):
    message_id = shop.put(headers={"eventbus-subscription": "shop.witness"})
    shop.work()
    shop.bury(message_id=message_id)

    redrive(shop)
    shop.work()

    assert shop.effects == [(message_id, "shop.act"), (message_id, "shop.witness")]


def test_an_open_dead_letter_of_the_same_message_is_healed(shop):
    message_id = shop.put(to=shop.dlq, headers=ACT)
    shop.configure(COLLECT_DLQ=True)
    shop.work()
    assert DeadLetter.objects.get().state == "open"
    shop.configure(COLLECT_DLQ=False)
    shop.put(to=shop.dlq, message_id=message_id, headers=ACT)

    redrive(shop)
    shop.work()

    assert DeadLetter.objects.get().state == "healed"


def test_never_more_than_the_limit_and_the_oldest_first(shop):
    ids = [shop.put(to=shop.dlq) for _ in range(5)]

    assert redrive(shop, limit=2) == {"moved": ids[:2], "left": {}}

    assert eventually(lambda: shop.amqp.count(shop.dlq) == 3)
    assert shop.amqp.count(shop.queue) == 2
    assert {each["id"] for each in peeked(shop)} == set(ids[2:])


def test_more_than_a_batch_moves(shop):
    fill(shop, 120)

    assert len(redrive(shop, limit=1000, reason="mended")["moved"]) == 120

    assert eventually(lambda: shop.amqp.count(shop.queue) == 120)
    assert shop.amqp.count(shop.dlq) == 0


def test_a_dry_run_moves_nothing_and_says_where_it_would(shop):
    message_id = shop.put(to=shop.dlq)

    assert redrive(shop, dry_run=True) == {"would_move": {message_id: shop.queue}}

    assert eventually(lambda: shop.amqp.count(shop.dlq) == 1)
    assert shop.amqp.count(shop.queue) == 0


def audited():
    columns = ("verb", "by", "why", "filter", "count", "outcome")
    return list(AuditEntry.objects.order_by("id").values_list(*columns))


def test_a_re_drive_from_the_broker_is_audited_before_and_after(shop):
    shop.put(to=shop.dlq)
    shop.put(to=shop.dlq, headers={"x-original-queue": "somebody.else"})

    with pytest.raises(CommandError, match="1 message stays"):
        redrive(shop, limit=5, by="ada", reason="mended in 1.4")

    who = ("ada", "mended in 1.4", f"queue={shop.queue}")
    assert audited() == [
        ("redrive DLQ", *who, 5, {}),
        ("redrove DLQ", *who, 1, {"moved": 1, "left": 1}),
    ]


def test_the_audit_tells_that_a_re_drive_from_the_broker_failed(shop):
    shop.configure(BROKER_URL="amqp://127.0.0.1:1")

    with pytest.raises(CommandError, match="does not answer"):
        redrive(shop, by="ada")

    _, (verb, *_, outcome) = audited()
    assert verb == "redrove DLQ"
    assert "does not answer" in outcome["failed"]


def test_a_re_drive_from_the_broker_is_asked_for_and_many_need_a_reason(shop, monkeypatch):
    monkeypatch.setattr("sys.stdin", StringIO())
    shop.put(to=shop.dlq)

    with pytest.raises(CommandError, match=f"up to 3 messages from {shop.dlq}.*use --yes"):
        redrive(shop, limit=3, yes=False)
    with pytest.raises(CommandError, match="A reason is required for more than 100 dead letters"):
        redrive(shop, limit=101)

    assert audited() == []
    assert eventually(lambda: shop.amqp.count(shop.dlq) == 1)


@pytest.mark.parametrize("name", ["acts", "queue", "dlq"])
def test_a_queue_is_known_by_its_short_or_full_name_or_that_of_its_dlq(shop, name):
    message_id = shop.put(to=shop.dlq)
    full = {"queue": shop.queue, "dlq": shop.dlq}.get(name, name)

    assert redrive(shop, queue=full)["moved"] == [message_id]


@pytest.mark.parametrize("command", ["redrive_events --from-broker", "eventbus_dlq"])
def test_a_queue_that_is_not_ours_is_refused(shop, command):
    with pytest.raises(CommandError, match=r"'elsewhere' is not a queue of this project"):
        run(*command.split(), "elsewhere")


def test_what_belongs_to_another_queue_stays(shop):
    message_id = shop.put(to=shop.dlq, headers={"x-original-queue": "somebody.else"})

    with pytest.raises(CommandError, match="1 message stays"):
        redrive(shop)

    assert [each["id"] for each in peeked(shop)] == [message_id]


def test_what_the_broker_does_not_take_back_stays(shop):
    message_id = shop.put(to=shop.dlq)
    with shop.amqp.channel() as channel:
        channel.queue_delete(shop.queue)

    with pytest.raises(CommandError, match="1 message stays"):
        redrive(shop)

    assert [each["id"] for each in peeked(shop)] == [message_id]


def test_a_kill_between_the_publish_and_the_ack_makes_a_copy_that_the_inbox_absorbs(shop, manage):
    message_id = shop.put(to=shop.dlq, headers=ACT)
    command = ("redrive_events", "--from-broker", shop.queue, "--yes")
    environment = shop.amqp.environment

    killed = manage(*command, env=environment, kill_at="eventbus.broker_redrive.published")
    assert killed.wait() == KILLED
    eventually(lambda: shop.amqp.count(shop.dlq) == 1)
    again = manage.run(*command, env=environment, is_measured=True)

    assert again.returncode == 0, again.output
    assert shop.amqp.count(shop.queue) == 2
    shop.work()
    assert shop.effects == [(message_id, "shop.act")]


def test_sigterm_finishes_the_batch_in_hand_and_ends_it_with_0(shop, manage):
    fill(shop, 60)

    stopped = manage.run(
        "redrive_events",
        "--from-broker",
        "acts",
        "--yes",
        env=shop.amqp.environment,
        kill_at="eventbus.broker_redrive.published!TERM",
    )

    assert stopped.returncode == 0, stopped.output
    assert "Moved 50 messages." in stopped.output
    assert eventually(lambda: shop.amqp.count(shop.dlq) == 10)
    assert shop.amqp.count(shop.queue) == 50


def test_peeking_shows_what_is_there_and_leaves_it_in_its_order(shop):
    ids = [shop.bury("ok"), shop.put("fail", to=shop.dlq, headers={"x-retry-count": 2})]
    eventually(lambda: shop.amqp.count(shop.dlq) == 2)

    first, second = peeked(shop)
    again = peeked(shop, "--payload")

    assert (first["id"], first["type"], first["reason"]) == (ids[0], "act.now", "rejected")
    assert (first["attempts"], first["bytes"], first["queue"]) == (1, 12, shop.queue)
    assert 0 <= first["age_seconds"] < 60
    assert (second["reason"], second["attempts"]) == ("foreign", 3)
    assert "payload" not in first
    assert [each["id"] for each in again] == ids
    assert again[0]["payload"] == '{"do": "ok"}'
    assert [each["id"] for each in peeked(shop, "--limit", "1")] == ids[:1]


def test_peeking_at_some_puts_them_behind_what_was_returned_before_and_loses_none(shop):
    ids = [shop.put(to=shop.dlq) for _ in range(5)]
    assert [each["id"] for each in peeked(shop)] == ids

    assert [each["id"] for each in peeked(shop, "--limit", "2")] == ids[:2]

    assert sorted(each["id"] for each in peeked(shop)) == sorted(ids)
    assert eventually(lambda: shop.amqp.count(shop.dlq) == 5)


def test_peeking_in_words_says_what_it_costs(shop):
    message_id = shop.put(to=shop.dlq)

    said = run("eventbus_dlq", "acts")

    assert f"{message_id} act.now foreign, attempt 1" in said
    assert "a quorum queue counts this as a delivery" in said
    assert "behind messages that were returned to it before" in said
    assert '"do"' not in said


def test_what_cannot_be_decoded_is_peeked_at_and_moved_under_the_id_of_its_dead_letter(shop):
    shop.put(to=shop.dlq, body=b"\xff\x00", message_id="x" * 255, type="")
    shop.put(to=shop.dlq, body=b"\xff\x00", no_id=True)

    first, second = peeked(shop, "--payload")

    assert second["id"].startswith("sha256:")
    assert redrive(shop)["moved"] == [first["id"], second["id"]]


def test_on_the_database_transport_there_is_no_dlq(settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "BROKER_URL": "database://"}

    with pytest.raises(CommandError, match="There is no DLQ here"):
        run("eventbus_dlq", "acts")


def test_an_unreachable_broker_ends_the_command_with_one_sentence(shop):
    shop.configure(BROKER_URL="amqp://127.0.0.1:1")

    with pytest.raises(CommandError, match="does not answer"):
        run("eventbus_dlq", "acts")
