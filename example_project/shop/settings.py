"""Settings of the shop, read from the environment and from a file .env beside manage.py."""

from __future__ import annotations

from pathlib import Path

import environ

PROJECT = Path(__file__).resolve().parent.parent
env = environ.Env()
env.read_env(PROJECT / ".env")

SECRET_KEY = env.str("SECRET_KEY", default="only-for-the-demo")
DEBUG = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost"])

INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.messages", "django.contrib.sessions", "django.contrib.staticfiles",
    "django_eventbus",
    "orders", "billing", "shipping", "stock", "notifications", "partner",
]  # fmt: skip
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
CONTEXT = ["template.context_processors.request", "contrib.auth.context_processors.auth",
           "contrib.messages.context_processors.messages"]  # fmt: skip
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
              "OPTIONS": {"context_processors": [f"django.{each}" for each in CONTEXT]}}]  # fmt: skip
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
STATIC_URL = "static/"
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = {"default": env.db("DATABASE_URL", default=f"sqlite:///{PROJECT / 'shop.sqlite3'}")}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    wal = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"}
    DATABASES["default"]["OPTIONS"] = {"timeout": 20, **wal}

EVENTBUS = {
    "SERVICE": "shop",
    "NAMESPACE": env.str("EVENTBUS_NAMESPACE", default=None),
    "BROKER_URL": env.str("EVENTBUS_BROKER_URL", default="database://"),
    "RETRY_DELAYS": env.list("EVENTBUS_RETRY_DELAYS", default=["1s", "2s"]),
    "POLL_INTERVAL": "200ms",
}
PARTNER_URL = env.str("PARTNER_URL", default="http://127.0.0.1:8000/partner/")
PARTNER_SECRET = env.str("PARTNER_SECRET", default="only-for-the-demo")
LOGGING = {"version": 1, "disable_existing_loggers": False,
           "handlers": {"console": {"class": "logging.StreamHandler"}},
           "loggers": {"django_eventbus": {"handlers": ["console"], "level": "DEBUG"}}}  # fmt: skip
