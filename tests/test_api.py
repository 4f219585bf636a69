"""The public names: what they are, and that they can be imported early."""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from inspect import getdoc, signature
from pathlib import Path

import pytest

import django_eventbus
from django_eventbus import exceptions, redrive, testing
from tests.support.tables import table

PACKAGE = Path(django_eventbus.__file__).parent
PUBLIC = [
    "Command", "Event", "EventSignal", "GiveUp", "Meta", "ReceivedEvent", "RetryLater", "Skip",
    "TooEarly", "cancel", "handle_command", "publish", "publish_many", "publish_model_events",
    "registry", "send_command", "subscribe",
]  # fmt: skip

#: Before django.setup(), without any settings: where a project's events and subscribers may be
#: imported from.
EARLY = """
import django_eventbus as bus
from django_eventbus import Event, GiveUp, RetryLater, Skip, TooEarly, subscribe
from django.apps import apps
from django.conf import settings

class OrderPlaced(Event, type="order.placed"):
    order_id: int

@subscribe(OrderPlaced, retry=["1s"])
def handler(event): ...

assert "publish" in dir(bus)
assert not apps.ready and not settings.configured
"""

#: An app that is loaded before ours, and whose models use publish().
BEFORE_OURS = """
import sys, types
import django
from django.conf import settings

app = types.ModuleType("early"); app.__path__ = []; app.__file__ = "early/__init__.py"
sys.modules["early"] = app
settings.configure(
    INSTALLED_APPS=["early", "django_eventbus"],
    EVENTBUS={"SERVICE": "orders"},
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)

class Models:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "early.models":
            from importlib.util import spec_from_loader
            return spec_from_loader(name, Models)
    @staticmethod
    def create_module(spec): ...
    @staticmethod
    def exec_module(module):
        from django_eventbus import publish, publish_many
        module.publish = publish

sys.meta_path.insert(0, Models)
django.setup()
assert sys.modules["early.models"].publish is sys.modules["django_eventbus.outbox.publish"].publish
"""


def run(code: str) -> str:
    """Run *code* in a Python of its own; return what it complained of."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent, check=False)
    return done.stderr


def test_the_public_names_are_these():
    assert django_eventbus.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(django_eventbus))


@table("name", PUBLIC)
def test_every_public_name_can_be_had_and_says_what_it_is_for(name):
    assert getdoc(getattr(django_eventbus, name))


@table("name", testing.__all__)
def test_so_do_the_tools_for_tests(name):
    assert getdoc(getattr(testing, name))


def test_every_member_of_what_is_public_says_what_it_is_for():
    public = [getattr(django_eventbus, name) for name in PUBLIC]
    tools = [getattr(testing, name) for name in testing.__all__]
    for each in (each for each in (*public, *tools) if isinstance(each, type)):
        for name, member in vars(each).items():
            if callable(member) and not name.startswith("_"):
                assert getdoc(member), f"{each.__name__}.{name}"


def test_an_unknown_name_is_an_attribute_error_like_anywhere_else():
    with pytest.raises(AttributeError, match="module 'django_eventbus' has no attribute 'emit'"):
        _ = django_eventbus.emit


def test_events_and_subscribers_can_be_written_before_django_is_set_up():
    assert run(EARLY) == ""


def test_an_app_that_is_loaded_before_ours_can_import_publish_in_its_models():
    assert run(BEFORE_OURS) == ""


def test_publish_takes_what_its_documentation_says():
    options = ["key", "delay", "at", "headers", "correlation_id", "debug", "using"]

    assert list(signature(django_eventbus.publish).parameters) == ["event", "payload", *options]
    assert list(signature(django_eventbus.publish_many).parameters) == ["events", *options]


def test_subscribe_takes_what_its_documentation_says():
    assert list(signature(django_eventbus.subscribe).parameters) == [
        "pattern", "queue", "name", "aliases", "retry", "tries", "retry_on", "park_on", "skip_on",
        "retry_for", "retry_client_errors", "timeout", "on_retry", "on_parked",
        "debug_handler", "ordered", "hold_key", "atomic", "using",
    ]  # fmt: skip


def error_classes() -> list[type[Exception]]:
    return [
        each
        for each in vars(exceptions).values()
        if isinstance(each, type) and each.__module__ == exceptions.__name__
    ]


def test_every_error_is_one_tree_and_the_tree_is_drawn():
    for each in error_classes():
        assert issubclass(each, exceptions.EventBusError)
        assert f" {each.__name__}" in f" {exceptions.__doc__}".replace("\n", " ")


def test_every_module_that_says_anything_begins_with_what_it_is_for():
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        is_told = bool(ast.get_docstring(ast.parse(source)))
        assert is_told or not source.strip() or "migrations" in path.parts, path


#: Where a project may import from.
PUBLIC_PATHS = re.compile(
    r"django_eventbus(\.(models|signals|exceptions|redrive|pruning|testing|contrib\.\w+))?"
)
#: The demo cleans the broker up after itself, which no project has to.
INTERNAL = {"demonstration/broker.py"}


@pytest.mark.parametrize("module", [django_eventbus, redrive, testing])
def test_no_lazy_name_hides_a_module(module):
    modules = {each.name for each in pkgutil.iter_modules(module.__path__)}

    assert not modules & set(module.__all__)
    assert all(getattr(module, name) for name in module.__all__)


def imported_paths(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module == "django_eventbus":
            # A name, or a module of the package.
            names = {each.name for each in node.names} - set(PUBLIC)
            yield from (f"django_eventbus.{name}" for name in names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def test_the_example_imports_public_paths_only():
    root = PACKAGE.parent / "example_project"
    sources = [each for each in root.rglob("*.py") if str(each.relative_to(root)) not in INTERNAL]

    found = {path for each in sources for path in imported_paths(each.read_text())}

    ours = {path for path in found if path.partition(".")[0] == "django_eventbus"}
    assert ours
    assert [path for path in ours if not PUBLIC_PATHS.fullmatch(path)] == []


def test_the_docs_name_public_paths_only():
    pages = [PACKAGE.parent / "README.md", *(PACKAGE.parent / "docs").rglob("*.md")]
    code = [
        block
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    ]
    lines = [line for block in code for line in block.splitlines() if "django_eventbus" in line]
    paths = re.findall(r"(?:from|import) (django_eventbus[\w.]*)", "\n".join(lines))

    assert paths
    assert [path for path in paths if not PUBLIC_PATHS.fullmatch(path)] == []


def test_outbox_and_consumer_do_not_load_pika():
    code = (
        "import django; django.setup(); import sys; "
        "import django_eventbus.outbox.relay, django_eventbus.consumer.consumer; "
        "assert 'pika' not in sys.modules"
    )

    assert run(code) == ""
