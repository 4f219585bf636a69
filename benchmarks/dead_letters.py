"""Measure groups, filtered lists, dry runs and plans with a million dead letters."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from statistics import median
from typing import Any

from benchmarks.arena import QUEUE, ROOT, Arena
from tests.support.helpers import eventually

#: The maximum seconds of each query.
ASKED = 1.0
ROUNDS = 3

TRACEBACK = "".join(
    f'  File "/srv/shop/billing/step_{number}.py", line {number}, in charge\n    step()\n'
    for number in range(16)
)

LETTERS = """
INSERT INTO eventbus_deadletter (
    message_id, type, body, content_type, source, sent_at, correlation_id, headers, exchange,
    routing_key, subscription, queue, state, kind, round, attempts, error_type, error, traceback,
    fingerprint, payload, host, created_at, parked_at, parked_xid, redriven_by, closed_by, note,
    replaced_by, edited_from)
SELECT gen_random_uuid(), 'order.placed', convert_to(payload::text, 'UTF8'), 'application/json',
    'orders', parked_at - interval '1 hour', '', jsonb_build_object(
        'tenant', 'tenant-' || mod(number, 50), 'eventbus-version', 1),
    'bench.events', 'order.placed',
    CASE WHEN mod(number, 5) = 0 THEN 'ledger.enter' ELSE 'shop.handler_' || mod(number, 20) END,
    CASE WHEN mod(number, 5) = 0 THEN %(queue)s ELSE 'bench.shop.' || mod(number, 10) END,
    CASE WHEN mod(number, 20) = 1 THEN 'unknown' ELSE 'open' END, 'failed', mod(number, 3) / 2,
    1 + mod(number, 4), 'Error' || mod(mod(number, %(groups)s), 40),
    'no stock for order ' || number || CASE WHEN number = 77 THEN ' of the needle' ELSE '' END,
    %(traceback)s, md5(mod(number, %(groups)s)::text), payload, 'host', parked_at, parked_at,
    pg_current_xact_id()::text::bigint, '', '', '', '', ''
FROM (
    SELECT number, now() - (%(letters)s - number) * interval '7 days' / %(letters)s AS parked_at,
        jsonb_build_object('event_id', number::text, 'order_id', number,
            'customer', jsonb_build_object('id', mod(number, 1000))) AS payload
    FROM generate_series(1, %(letters)s) AS number) AS made
"""
GROUPS = """
INSERT INTO eventbus_failuregroup (fingerprint, kind, subscription, error_type, place, title,
    status, note, created_at, changed_by)
SELECT md5(number::text), 'failed', '', 'Error', 'billing.charge:charge', 'no stock for order #',
    'new', '', now(), '' FROM generate_series(0, %(groups)s - 1) AS number
"""
EMPTY = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_name IN ('eventbus_deadletter', 'eventbus_failuregroup', 'eventbus_inboxrecord')
    AND data_type IN ('character varying', 'text') AND is_nullable = 'NO'
    AND column_default IS NULL
"""
INBOX = """
INSERT INTO eventbus_inboxrecord (subscription, message_id, queue, type, source, sent_at, state,
    round, attempt, started, created_at, settled_at, error)
SELECT subscription, message_id, queue, type, source, sent_at, 'parked', round, attempts, 0,
    created_at, parked_at, '' FROM eventbus_deadletter
"""


def questions() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the queries of an operator, each with the function that the pages call for it."""
    from django_eventbus.models import DeadLetter

    fingerprint = DeadLetter.objects.filter(state="open").values_list("fingerprint", flat=True)[0]
    yield "groups with trend, sample and flags", grouped
    for name, words in {
        "all open": (),
        "queue and type": ("queue=bench.shop.3", "type=order.placed"),
        "subscription and error type": ("subscription=shop.handler_7", "error_type=Error7"),
        "a group": (f"group={fingerprint}",),
        "a header": ("header.tenant=tenant-7",),
        "a value of the payload": ("payload.order_id=77",),
        "a nested value of the payload": ("payload.customer.id=42",),
        "words of many errors": ("error=no stock",),
        "words of one error": ("error=the needle",),
        "an hour": ("parked_after=30h", "parked_before=29h"),
        "attempts, re-driven": ("attempts_min=3", "redriven=yes"),
    }.items():
        yield f"list: {name}", partial(listed, words)
    yield "dry run of all", partial(dry, ())
    yield "dry run of a queue", partial(dry, (f"queue={QUEUE}",))
    yield "dry run of a group", partial(dry, (f"group={fingerprint}",))
    yield "page before all are discarded", before_discard
    yield "Django's changelist: all", changelist
    yield "Django's changelist: a value of the payload", partial(changelist, payload__order_id=77)
    yield (
        "Django's changelist: words of one error",
        partial(changelist, error__icontains="the needle"),
    )


def grouped() -> object:
    from django_eventbus.dead_letters.groups import buckets, groups
    from django_eventbus.dead_letters.selection import Selection

    page, total = groups(Selection(), using="default", span=timedelta(days=7))
    return len(page), total, sum(buckets(Selection(), using="default").values())


def listed(words: tuple[str, ...]) -> object:
    from django_eventbus.dead_letters.query import capped_count, matching, page_of
    from django_eventbus.dead_letters.selection import Selection

    letters = matching(Selection.from_words(["state=open", *words]), "default")
    page = page_of(letters, size=100)
    return len(page), capped_count(letters) if len(page) == 100 else len(page)


def dry(words: tuple[str, ...]) -> object:
    from django_eventbus.dead_letters.selection import Selection
    from django_eventbus.redrive.dry_runs import dry_run

    return dry_run(Selection.from_words(words), using="default").count


def before_discard() -> object:
    from django_eventbus.dead_letters.query import freeze, matching
    from django_eventbus.dead_letters.selection import Selection
    from django_eventbus.models import DeadLetter
    from django_eventbus.redrive.dry_runs import staying_of, targets_of

    letters = matching(freeze(Selection(), "default"), "default")
    staying = staying_of(letters, DeadLetter.REDRIVABLE)
    return sum(target.count for target in targets_of(letters.redrivable())), staying


def changelist(**filters: Any) -> object:
    """Run the queries of Django's changelist: two counts, and a page of whole rows."""
    from django_eventbus.models import DeadLetter

    rows = DeadLetter.objects.order_by("-parked_at", "-pk")
    filtered = rows.filter(**filters)
    return filtered.count(), rows.count(), len(list(filtered[:100]))


def ask() -> None:
    """Run every query, and print the seconds and the memory as JSON."""
    import django

    django.setup()
    figures = {}
    for name, question in questions():
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            answer = question()
            times.append(time.perf_counter() - began)
        figures[name] = {"seconds": median(times), "answer": str(answer)}
        print(f"{name:<50} {median(times):8.3f} s  {answer}", file=sys.stderr, flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"questions": figures, "megabytes": memory // 1024}))


def plan(count: int, rate: float) -> dict[str, float]:
    """Create and start a plan; return the duration of the creation."""
    import django

    django.setup()
    from django_eventbus.dead_letters.selection import Selection
    from django_eventbus.redrive import plans

    pace = plans.Pace(canary=5, rate=rate, in_flight=2000, limit=count)
    chosen = Selection.from_words([f"queue={QUEUE}"])
    began = time.perf_counter()
    made = plans.make_plan(chosen, by="bench", reason="bench", using="default", pace=pace)
    seconds = time.perf_counter() - began
    plans.start(made.pk, by="bench", using="default")
    return {"make": seconds}


class Million:
    """An arena full of dead letters."""

    def __init__(self, arena: Arena, letters: int, groups: int) -> None:
        self.arena = arena
        self.values = {
            "letters": letters, "groups": groups, "queue": QUEUE, "traceback": TRACEBACK,
        }  # fmt: skip

    def fill(self) -> None:
        session = self.arena.session
        # Columns that the statements do not fill, also in later versions, are empty.
        for table, column in session.execute(EMPTY).fetchall():
            session.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT ''")
        # GIN indexes are created much faster after the rows are inserted.
        found = session.execute(
            "SELECT indexname, indexdef FROM pg_indexes"
            " WHERE tablename = 'eventbus_deadletter' AND indexdef LIKE '%USING gin%'"
        ).fetchall()
        for name, _ in found:
            session.execute(f"DROP INDEX {name}")
        for statement in (LETTERS, GROUPS, INBOX):
            session.execute(statement, self.values)
        for _, definition in found:
            session.execute(definition)
        session.execute("VACUUM ANALYZE")

    def answers(self) -> dict[str, Any]:
        said = self.arena.run(sys.executable, "-m", "benchmarks.dead_letters", "--ask")
        return json.loads(said.splitlines()[-1])

    def run_plan(self, count: int, rate: float) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.dead_letters", "--plan-only"]
        said = self.arena.run(*command, "--plan", str(count), "--rate", str(rate))
        worker = subprocess.Popen(
            [sys.executable, "-m", "django", "consume_events", "--with-relay"],
            cwd=ROOT,
            env=self.arena.environment,
            stdout=subprocess.DEVNULL,
        )
        try:
            eventually(self.is_over, timeout=count / rate * 4 + 120, interval=1)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
        return {**json.loads(said.splitlines()[-1]), **self.figures()}

    def discard(self, count: int) -> float:
        """Discard *count* others with the command; return the number per second."""
        command = (sys.executable, "-m", "django", "discard_events", "queue=bench.shop.3")
        began = time.perf_counter()
        said = self.arena.run(
            *command, "--limit", str(count), "--reason", "bench", "--yes", "--json"
        )
        return json.loads(said)["discarded"] / (time.perf_counter() - began)

    def is_over(self) -> bool:
        question = "SELECT state IN ('done', 'paused') FROM eventbus_plan"
        row = self.arena.session.execute(question).fetchone()
        return bool(row and row[0])

    def figures(self) -> dict[str, float]:
        # Without the canary, because the plan waits for its outcomes.
        seconds = """
            SELECT extract(epoch FROM max(sent_at) - min(sent_at)), count(*) FROM (
                SELECT sent_at FROM eventbus_plannedletter WHERE sent_at IS NOT NULL
                ORDER BY id OFFSET 5) AS rest"""
        taken, sent = self.arena.session.execute(seconds).fetchone() or (0, 0)
        healed = "SELECT count(*) FROM eventbus_plannedletter WHERE state = 'healed'"
        known = self.arena.session.execute(healed).fetchone() or (0,)
        rate = float(sent) / float(taken or 1)
        return {"rate": rate, "seconds": float(taken or 0), "healed": known[0]}


def main() -> int:
    """Return 1 if --strict was given and a query took too long."""
    parser = argparse.ArgumentParser(prog="benchmarks.dead_letters", description=__doc__)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument(
        "--plan", type=int, default=100_000, help="Dead letters to re-drive; 0: none."
    )
    parser.add_argument("--rate", type=float, default=250)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plan-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        ask()
        return 0
    if options.plan_only:
        print(json.dumps(plan(options.plan, options.rate)))
        return 0
    with Arena(with_peers=False) as arena:
        million = Million(arena, options.letters, options.groups)
        million.fill()
        told = million.answers()
        if options.plan:
            told["plan"] = million.run_plan(options.plan, options.rate)
            told["discard"] = million.discard(options.plan)
    slow = report(told, options)
    return 1 if options.strict and slow else 0


def report(told: dict[str, Any], options: argparse.Namespace) -> list[str]:
    """Print the results; return the queries that took too long."""
    ours = {name: each for name, each in told["questions"].items() if "Django" not in name}
    print(f"{options.letters:,} dead letters in {options.groups:,} groups:")
    for name, each in told["questions"].items():
        verdict = "" if name not in ours else ("ok" if each["seconds"] <= ASKED else "TOO SLOW")
        print(f"  {name:<50} {each['seconds']:8.3f} s  {verdict}")
    print(f"  memory of the process at its peak: {told['megabytes']} MB")
    if figures := told.get("plan"):
        print(f"A plan over {options.plan:,} was made in {figures['make']:.2f} s,", end=" ")
        print(f"ran at {figures['rate']:.0f}/s of {options.rate:.0f}/s;", end=" ")
        print(f"{figures['healed']:,} healed.")
        print(f"A discard went at {told['discard']:,.0f}/s.")
    if options.json:
        print(json.dumps(told))
    return [name for name, each in ours.items() if each["seconds"] > ASKED]


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")
    sys.exit(main())
