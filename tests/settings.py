"""Django settings of the test suite."""

from __future__ import annotations

import json
import os

from tests.support import kill_points
from tests.support.databases import database_settings, postgres_database, sqlite_database

kill_points.install()


def default_database() -> dict[str, object]:
    """Return the database of this pass, or the one a test has pointed this process at."""
    if url := os.environ.get("EVENTBUS_TEST_DATABASE_URL"):
        return database_settings(url)
    if os.environ.get("EVENTBUS_TEST_DATABASE", "sqlite") == "sqlite":
        return sqlite_database()
    from tests.support.services import postgres_url

    return postgres_database(postgres_url())


SECRET_KEY = "tests"
USE_TZ = True
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
DATABASES = {"default": default_database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_eventbus",
    "tests.shop",
]
# Hundreds of worker processes are started and killed, and none of them shows a page.
if os.environ.get("EVENTBUS_TEST_LEAN"):
    INSTALLED_APPS = ["django_eventbus", "tests.shop"]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

EVENTBUS = {"SERVICE": "shop-tests", **json.loads(os.environ.get("EVENTBUS_TEST_SETTINGS", "{}"))}
