"""django-outbox-pattern's publisher, from row to sent and marked. It speaks STOMP."""

from __future__ import annotations

import json
import os
import sys
import time

import django
from django.conf import settings

from benchmarks.payloads import payload
from tests.support.databases import database_settings

DESTINATION = "/amq/queue/bench.ledger"

settings.configure(
    SECRET_KEY="benchmark",
    USE_TZ=True,
    DATABASES={"default": database_settings(os.environ["BENCHMARK_DATABASE_URL"])},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django_outbox_pattern"],
    REQUEST_ID_CONFIG={},
    DJANGO_OUTBOX_PATTERN={
        "DEFAULT_STOMP_HOST_AND_PORTS": [("127.0.0.1", int(os.environ["BENCHMARK_STOMP_PORT"]))],
        "DEFAULT_PRODUCER_WAITING_TIME": 0,
    },
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django_outbox_pattern.factories import factory_producer  # noqa: E402
from django_outbox_pattern.models import Published  # noqa: E402


def main() -> None:
    """Publish so many rows as the command line says."""
    count = int(sys.argv[1])
    call_command("migrate", verbosity=0)
    Published.objects.all().delete()
    headers = {"persistent": "true"}
    Published.objects.bulk_create(
        Published(destination=DESTINATION, body=payload(number), headers=headers)
        for number in range(count)
    )
    producer = factory_producer()
    began = time.perf_counter()
    producer.publish_message_from_database()
    seconds = time.perf_counter() - began
    assert not Published.objects.exclude(status=2).exists()
    print(json.dumps({"messages": count, "seconds": seconds}))


if __name__ == "__main__":
    main()
