"""The EVENTBUS setting: typed, with defaults. Nothing else in the package reads settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, Generic, overload

from django.conf import settings

from django_eventbus.conf import log_codes
from django_eventbus.conf import names as name_templates
from django_eventbus.conf.options import broker_options, redrive_options
from django_eventbus.conf.parsers import (
    T,
    count,
    delays,
    flag,
    function,
    one_of,
    optional,
    rules,
    shard_count,
    statsd_url,
    text,
    trace_url,
    url,
    wait,
    web_url,
    word,
)
from django_eventbus.exceptions import BadSetting

_REQUIRED = object()
NAME_LIMIT = 255


class Setting(Generic[T]):
    """One key of EVENTBUS. Read whenever it is used, so override_settings works."""

    def __init__(self, parse: Callable[[Any], T], default: object = _REQUIRED) -> None:
        self.parse = parse
        self.default = default
        #: The last value as it was written, and as it was read.
        self._last: tuple[object, T] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.key = name.upper()

    @overload
    def __get__(self, conf: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, conf: Conf, owner: type) -> T: ...
    def __get__(self, conf: Conf | None, owner: type) -> Setting[T] | T:
        return self if conf is None else self.read(conf.given)

    def read(self, given: dict[str, Any]) -> T:
        value = given.get(self.key, self.default)
        if value is _REQUIRED:
            raise BadSetting(self.key, "is missing. Name this service, for instance 'orders'.")
        last = self._last
        # The very same object: settings are replaced, never changed in place.
        if last is None or last[0] is not value:
            last = self._last = (value, self._parsed(value))
        return last[1]

    def _parsed(self, value: object) -> T:
        try:
            return self.parse(value)
        except (TypeError, ValueError) as error:
            raise BadSetting(self.key, f"{error}.") from None


class Conf:
    """Shadow the EVENTBUS setting with defaults and types."""

    service = Setting(word)
    broker_url = Setting(url, "database://")
    broker_user = Setting(optional(text), None)
    broker_password = Setting(optional(text), None)
    broker_options = Setting(broker_options, {})
    management_url = Setting(optional(web_url), None)
    topology = Setting(one_of("declare", "check", "assume"), "declare")
    names = Setting(name_templates.names, {})
    exchange_types = Setting(name_templates.exchange_types, {})
    routes = Setting(name_templates.routes, {})
    format = Setting(one_of("native", "envelope", "cloudevents"), "native")
    queue_type = Setting(one_of("quorum", "classic"), "quorum")
    retry_delays = Setting(delays, ("30s", "5m", "30m"))
    tries = Setting(optional(count), None)
    unroutable = Setting(one_of("flag", "hold", "ignore"), "flag")
    park_to = Setting(one_of("database", "broker"), "database")
    collect_dlq = Setting(optional(flag), None)
    require_transaction = Setting(flag, False)
    max_body_bytes = Setting(count, 1024 * 1024)
    batch_size = Setting(count, 100)
    shards = Setting(shard_count, 1)
    poll_interval = Setting(wait, "1s")
    concurrency = Setting(count, 4)
    start_limit = Setting(count, 5)
    defer_limit = Setting(wait, "7d")
    ordered_block = Setting(wait, "10m")
    hold_keys = Setting(flag, False)
    redrive = Setting(redrive_options, {})
    log_levels = Setting(log_codes.levels, {})
    statsd = Setting(optional(statsd_url), None)
    redact = Setting(rules, ("password", "secret", "token", "api_key", "authorization", "cookie"))
    permission = Setting(optional(function), None)
    trace_url = Setting(optional(trace_url), None)

    @property
    def given(self) -> dict[str, Any]:
        given = getattr(settings, "EVENTBUS", {})
        if not isinstance(given, dict):
            raise BadSetting(
                "SERVICE", "EVENTBUS must be a dict, for instance {'SERVICE': 'orders'}."
            )
        return given

    @property
    def has_time_zones(self) -> bool:
        """USE_TZ of Django itself."""
        return bool(settings.USE_TZ)

    @property
    def is_debug(self) -> bool:
        """DEBUG of Django itself."""
        return bool(settings.DEBUG)

    @property
    def namespace(self) -> str:
        """NAMESPACE, or SERVICE up to its first hyphen, or "default"."""
        return _NAMESPACE.read(self.given) or self._prefix

    @property
    def _prefix(self) -> str:
        prefix, hyphen, _ = self.service.partition("-")
        return prefix if hyphen and prefix else "default"

    @property
    def unmatched(self) -> str:
        """UNMATCHED, or "ignore" where others decide what reaches our queues, or "park"."""
        is_foreign = self.topology != "declare" or self.exchange_types["events"] == "fanout"
        return _UNMATCHED.read(self.given) or ("ignore" if is_foreign else "park")

    def name(self, key: str, /, **values: object) -> str:
        """Fill the template *key* of NAMES with *values*."""
        return self.filled(self.names[key], **values)

    def filled(self, template: str, **values: object) -> str:
        return template.format(namespace=self.namespace, service=self.service, **values)

    @property
    def events_exchange(self) -> str:
        return self.name("events_exchange")

    @property
    def commands_exchange(self) -> str:
        return self.name("commands_exchange")

    def queue(self, name: str = "") -> str:
        """Return the full name of this service's queue *name*; "" is its main queue."""
        return self.name("queue", name=name) if name else self.name("main_queue")

    def queue_part(self, key: str, queue: str, **values: object) -> str:
        """Return the name or key of something that belongs to *queue*."""
        return self.name(key, queue=queue, name=self.short_name(queue), **values)

    def short_name(self, queue: str) -> str:
        """Return what queue() made the full name *queue* of."""
        before, _, after = self.name("queue", name="\0").partition("\0")
        has_both = queue.startswith(before) and queue.endswith(after)
        return queue[len(before) : len(queue) - len(after)] if has_both and before != queue else ""

    def problems(self) -> Iterator[BadSetting]:
        """Yield the problems of the current setting."""
        for setting in SETTINGS.values():
            try:
                setting.read(self.given)
            except BadSetting as problem:
                yield problem

    def unknown_keys(self) -> Iterator[tuple[str, str]]:
        """Yield each key that is not a setting, with the most similar setting."""
        for key in sorted(set(map(str, self.given)) - set(SETTINGS)):
            yield key, next(iter(get_close_matches(key.upper(), SETTINGS, 1)), "")


_NAMESPACE: Setting[str | None] = Setting(optional(word), None)
_NAMESPACE.key = "NAMESPACE"
_UNMATCHED: Setting[str | None] = Setting(optional(one_of("park", "ignore")), None)
_UNMATCHED.key = "UNMATCHED"
SETTINGS: dict[str, Setting[Any]] = {
    setting.key: setting
    for setting in (*vars(Conf).values(), _NAMESPACE, _UNMATCHED)
    if isinstance(setting, Setting)
}
conf = Conf()
