"""Django settings of the benchmark: one database and one broker."""

from __future__ import annotations

import os

from tests.support.databases import database_settings

SECRET_KEY = "benchmark"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Keep the connections: a connection per message would measure how PostgreSQL forks.
DATABASES = {
    "default": {**database_settings(os.environ["BENCHMARK_DATABASE_URL"]), "CONN_MAX_AGE": None}
}
INSTALLED_APPS = ["django_eventbus", "benchmarks.ledger"]
EVENTBUS = {
    "SERVICE": "ledger",
    "NAMESPACE": "bench",
    "BROKER_URL": os.environ["BENCHMARK_BROKER_URL"],
    "BATCH_SIZE": 1000,
}
