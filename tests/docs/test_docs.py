"""The docs are true: their code runs, their tables are the code's, their links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from django.core.management import CommandParser, load_command_class
from django.core.management.base import BaseCommand
from django.db.models import TextChoices
from django.dispatch import Signal

import django_eventbus
from django_eventbus import Meta, exceptions, models, signals, testing
from django_eventbus.conf import SETTINGS
from django_eventbus.conf.log_codes import FIELDS, LINES
from django_eventbus.conf.names import TEMPLATES
from django_eventbus.conf.options import OPTIONS
from django_eventbus.contrib.http import forward
from django_eventbus.events import message
from django_eventbus.models import reasons
from django_eventbus.observability.metric_names import EVENT_METRICS, TABLE_METRICS, Kind, Metric
from django_eventbus.observability.tracing import attributes
from django_eventbus.observability.tracing.spans import OUTCOMES, RETURNED
from tests.support.fork_server import Forked
from tests.support.helpers import eventually, plugin_arguments
from tests.support.processes import start_python
from tests.support.tables import table

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "django_eventbus"
DOCS = ROOT / "docs"
README = ROOT / "README.md"
TUTORIAL = DOCS / "tutorial.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
COMMANDS_PAGE = DOCS / "reference/commands.md"
COMMANDS = (
    "consume_events",
    "discard_events",
    "eventbus_doctor",
    "eventbus_ping",
    "eventbus_status",
    "eventbus_topology",
    "eventbus_subscriptions",
    "eventbus_dlq",
    "prune_events",
    "redrive_events",
    "relay_events",
    "eventbus_plan",
)

#: Of the public names, those that are called to do something.
FUNCTIONS = sorted(
    {*django_eventbus.__all__} - {"Command", "Event", "Meta", "ReceivedEvent", "registry"}
)
FUNCTIONS = [each for each in FUNCTIONS if each not in ("GiveUp", "RetryLater", "Skip", "TooEarly")]
NONE = inspect.Parameter.empty

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRESS = "<!-- the test presses them here -->"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in FENCE.findall(page.read_text()) if found == language]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def rows(page: Path, heading: str = "") -> list[list[str]]:
    """Return the cells of every table of the page, or of one section of it, without headers."""
    text = section(page, heading) if heading else page.read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    headers = {index - 1 for index, line in enumerate(lines) if re.match(r"\|\s*-", line)}
    return [
        row
        for index, row in enumerate(cells)
        if index not in headers and not lines[index].startswith(("|-", "| -"))
    ]


def section(page: Path, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S)
    assert found, f"{name_of(page)} has no section {heading!r}"
    return found[1]


def first_column(page: Path, heading: str = "") -> list[str]:
    return [row[0].strip("`") for row in rows(page, heading)]


def sources() -> dict[Path, str]:
    found = PACKAGE.rglob("*.py")
    return {path: path.read_text() for path in found if "migrations" not in path.parts}


# Form: sizes, links, and the names that the docs refer to.


def test_every_picture_is_shown_with_words_for_whoever_cannot_see_it():
    shown = set()
    for page in DOCS.rglob("*.md"):
        for words, target in re.findall(r"!\[(.*?)\]\((.*?)\)", page.read_text()):
            assert len(words.split()) > 3, f"{page.name}: {target}"
            shown.add((page.parent / target).resolve())

    assert shown == {file.resolve() for file in (DOCS / "images").iterdir()}


@table(("page", "limit"), [("README.md", 120), ("CONTRIBUTING.md", 80)])
def test_the_first_pages_are_short(page: str, limit: int):
    assert len((ROOT / page).read_text().splitlines()) <= limit


@table("page", PAGES)
def test_every_link_leads_somewhere(page: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link} has no such heading"


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def test_every_page_is_reached_from_the_index():
    linked = set(re.findall(r"\]\(([^)#\s]+\.md)", (DOCS / "index.md").read_text()))

    assert linked >= {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}


def test_every_test_that_the_docs_name_exists():
    for page in PAGES:
        for path, test in re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", page.read_text()):
            assert f"def {test}(" in (ROOT / path).read_text(), f"{name_of(page)}: {test}"


@table("page", PAGES)
def test_every_command_line_is_one_that_the_command_takes(page: Path):
    for name, rest in re.findall(
        r"manage\.py (\w+_events|\w+_dlq|eventbus_\w+|list_\w+)([^\n`]*)", page.read_text()
    ):
        assert name in COMMANDS
        parser_of(name).parse_args(shlex.split(rest, comments=True))


@table("page", PAGES)
def test_every_block_of_python_is_python(page: Path):
    for block in blocks(page, "python"):
        ast.parse(block)


# Reference: the tables are the code's.


def test_the_table_of_settings_is_the_code_s():
    table = rows(DOCS / "reference/settings.md", "Keys")
    documented = {key.strip("`"): default.strip("`") for key, default, _ in table}

    required = documented.pop("SERVICE")
    defaults = {key: ast.literal_eval(default) for key, default in documented.items()}

    assert required == "required"
    assert defaults == {
        key: list(setting.default) if isinstance(setting.default, tuple) else setting.default
        for key, setting in SETTINGS.items()
        if key != "SERVICE"
    }


@pytest.mark.parametrize("key", OPTIONS)
def test_the_table_of_options_is_the_code_s(key):
    table = rows(DOCS / "reference/settings.md", f"Options of {key}")

    documented = {name.strip("`"): ast.literal_eval(each.strip("`")) for name, each, _ in table}

    assert documented == {name: each.default for name, each in OPTIONS[key].items()}


def test_there_are_few_settings():
    assert len(SETTINGS) <= 35


def test_the_tables_of_metrics_are_the_code_s():
    page = DOCS / "reference/metrics.md"
    sections = {"Metrics of a process": EVENT_METRICS, "Metrics of the tables": TABLE_METRICS}

    for heading, metrics in sections.items():
        assert rows(page, heading) == [
            [f"`{each.name}`", each.kind.value, ", ".join(f"`{n}`" for n in each.labels), each.help]
            for each in metrics
        ]
    labels = {label for each in (*EVENT_METRICS, *TABLE_METRICS) for label in each.labels}
    assert set(first_column(page, "Labels")) == labels


def test_every_alert_is_about_metrics_and_labels_that_there_are():
    known = {
        sample: set(each.labels)
        for each in (*EVENT_METRICS, *TABLE_METRICS)
        for sample in samples(each)
    }
    *_, rules = blocks(DOCS / "how-to/collect-metrics.md", "yaml")
    selectors = re.findall(r"(eventbus_\w+)(?:\{(.*?)\})?", rules)

    assert len(selectors) >= rules.count("alert:") > 10
    for name, conditions in selectors:
        assert set(re.findall(r"(\w+)=", conditions)) <= known[name], name
    for line in re.findall(r"by .*", rules):
        for grouped, name in re.findall(r"by \(([^)]*)\) \((?:rate\()?(eventbus_\w+)", line):
            assert set(grouped.split(", ")) - {"le"} <= known[name], line


def samples(metric: Metric) -> list[str]:
    """Return the names that a query can ask for."""
    ends = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
    return [f"{metric.name}{end}" for end in ends]


def test_the_table_of_names_is_the_code_s():
    table = rows(DOCS / "reference/settings.md", "Names")
    bus = ["namespace", "service"]

    documented = {
        row[0].strip("`"): (ast.literal_eval(row[1].strip("`")), re.findall(r"{(\w+)}", row[3]))
        for row in table
    }

    assert documented == {
        key: (each.default, [part for part in each.placeholders if part not in bus])
        for key, each in TEMPLATES.items()
    }


def test_the_table_of_checks_is_the_code_s():
    text = "".join(each.read_text() for each in (PACKAGE / "checks").glob("*.py"))
    ids = set(re.findall(r'id="(eventbus\.\w+)"', text))

    documented = first_column(DOCS / "reference/checks.md")

    assert sorted(documented) == sorted(ids)


def parser_of(command: str) -> CommandParser:
    return load_command_class("django_eventbus", command).create_parser("manage.py", command)


@table("command", COMMANDS)
def test_the_options_of_each_command_are_its_parser_s(command: str):
    of_every_command = options(BaseCommand().create_parser("manage.py", command))

    documented = [each.split()[0] for each in first_column(COMMANDS_PAGE, command)]

    own = [each for each in options(parser_of(command)) if each not in of_every_command]
    assert documented == own


def options(parser: CommandParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def test_every_command_is_documented():
    assert sorted(COMMANDS) == sorted(
        path.stem for path in (PACKAGE / "management/commands").glob("[a-z]*.py")
    )


def test_every_public_name_is_documented():
    page = DOCS / "reference/api.md"

    assert sorted(first_column(page, "Names")) == sorted(django_eventbus.__all__)
    documented = first_column(page, "Meta")
    assert documented == [*(field.name for field in fields(Meta)), "is_last"]


def test_every_part_of_the_test_tools_is_documented():
    page = DOCS / "reference/testing.md"

    assert first_column(page, "Names") == testing.__all__
    for tool in (testing.EventBus, testing.Delivered):
        documented = first_column(page, tool.__name__)
        own = sorted(name for name in dir(tool) if not name.startswith("_"))
        assert [each.partition("(")[0] for each in documented] == own
        for each in documented:
            assert arguments(each) == parameters(getattr(tool, each.partition("(")[0]))


def arguments(documented: str) -> list[str]:
    return re.findall(r"\w+", documented.partition("(")[2])


def parameters(member: object) -> list[str]:
    """Return the parameters of a method, without self; of anything else, none."""
    return list(inspect.signature(member).parameters)[1:] if inspect.isfunction(member) else []


@table("name", [*FUNCTIONS, "forward"])
def test_every_signature_is_documented(name: str):
    page = section(DOCS / "reference/api.md", f"{name}()")
    documented = ast.parse(FENCE.search(page)[2]).body[0].args

    public = forward if name == "forward" else getattr(django_eventbus, name)
    given = inspect.signature(public).parameters.values()
    by_place = [each.name for each in given if each.kind == each.POSITIONAL_OR_KEYWORD]
    by_name = [each for each in given if each.kind == each.KEYWORD_ONLY]

    assert [each.arg for each in documented.args] == by_place
    assert [each.arg for each in documented.kwonlyargs] == [each.name for each in by_name]
    defaults = [ast.literal_eval(each) if each else NONE for each in documented.kw_defaults]
    assert defaults == [each.default for each in by_name]
    assert bool(documented.kwarg) == any(each.kind == each.VAR_KEYWORD for each in given)


def test_everything_for_operators_is_there_and_says_what_it_does():
    documented = first_column(DOCS / "reference/api.md", "For operators")

    for each in documented:
        name, _, parameters = each.partition("(")
        if name.startswith("django_eventbus."):
            found = named(name)
            assert inspect.getdoc(found), name
            assert re.findall(r"\w+", parameters) == list(inspect.signature(found).parameters), name


def named(path: str) -> object:
    """Return what is called *path*: a function, or a method of a class."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError:
        return getattr(named(module), name)


def test_what_the_docs_import_is_in_the_reference():
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))

    for page in PAGES:
        for name in imported(page):
            assert re.search(rf"`[\w.]*\b{name}\b|^## {name}", pages, re.M), f"{page}: {name}"


def imported(page: Path) -> Iterator[str]:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "django_eventbus"
            ):
                yield from (each.name for each in node.names)


def test_every_error_is_documented():
    own = {name for name, each in vars(exceptions).items() if is_own_error(each)}

    assert set(first_column(DOCS / "reference/errors.md")) == own
    (tree,) = blocks(DOCS / "reference/errors.md", "text")
    assert set(re.findall(r"\w+", tree)) == own


def is_own_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, exceptions.EventBusError)


def test_every_signal_is_documented():
    own = [name for name, each in vars(signals).items() if isinstance(each, Signal)]

    assert first_column(DOCS / "reference/signals.md") == own


@table(
    "choices",
    [
        models.OutboxEvent.State,
        models.InboxRecord.State,
        models.DeadLetter.State,
        models.DeadLetter.Kind,
        models.Worker.Kind,
        models.BrokerRequest.Kind,
        models.BrokerRequest.State,
        models.Plan.Action,
        models.Plan.State,
        models.PlannedLetter.State,
        models.FailureGroup.Status,
        reasons.PlanNote,
        reasons.LetterReason,
        reasons.UnansweredReason,
        reasons.SkipReason,
        reasons.StayReason,
    ],
)
def test_every_state_is_documented(choices: type[TextChoices]):
    documented = first_column(DOCS / "reference/models.md", choices.__qualname__)

    assert documented == choices.values


def test_every_header_is_documented():
    constants = {name: each for name, each in vars(message).items() if name.isupper()}
    headers = {name: each for name, each in constants.items() if name[0] != "_"}
    own = {each for each in headers.values() if isinstance(each, str)}

    assert set(first_column(DOCS / "reference/wire-format.md", "Headers")) == own


def test_every_span_attribute_and_outcome_is_documented():
    page = DOCS / "reference/tracing.md"
    constants = [each for name, each in vars(attributes).items() if name.isupper()]
    documented = [each for each in constants if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", str(each))]

    assert first_column(page, "Attributes") == documented
    assert first_column(page, "Spans") == [
        attributes.CREATE,
        attributes.PUBLISH,
        attributes.PROCESS,
    ]
    assert sorted(first_column(page, "Outcomes")) == sorted([*OUTCOMES.values(), RETURNED])
    version = attributes.SCHEMA_URL.rpartition("/")[2]
    assert f"version {version}" in page.read_text()


# Logs and errors: what the docs quote is what the code says.


def said() -> set[str]:
    """Return every text of the package, with … for what is filled in."""
    return {text for source in sources().values() for text in texts(ast.parse(source))}


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if is_text(part) else "…" for part in node.values)
        elif is_text(node):
            yield re.sub(r"%(\(\w+\))?[.\d]*[sdfr]", "…", node.value)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def logged(given: Iterable[str]) -> Iterator[str]:
    """Return the template of every log line of the sources."""
    levels = ("info", "warning", "error", "critical", "exception", "debug")
    for source in given:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in levels:
                yield ast.literal_eval(node.args[0])


def test_every_log_line_is_documented():
    page = DOCS / "how-to/monitor.md"

    assert sorted(first_column(page, "Log lines")) == sorted(logged(sources().values()))


def test_every_logger_is_named_after_its_package_and_documented():
    documented = [
        (line.strip("`"), logger.strip("`"))
        for line, _, logger in rows(DOCS / "how-to/monitor.md", "Log lines")
    ]

    assert sorted(documented) == sorted(logged_with_loggers())


def logged_with_loggers() -> Iterator[tuple[str, str]]:
    root = Path(django_eventbus.__file__).parent
    for file in root.rglob("*.py"):
        first, *others = file.relative_to(root).parts
        package = f"{first}.{others[0]}" if first == "transports" else first
        for name in re.findall(r"^logger = logging\.getLogger\((.+)\)$", file.read_text(), re.M):
            assert name == f'"django_eventbus.{package}"', file
            yield from ((line, ast.literal_eval(name)) for line in logged([file.read_text()]))


def test_the_table_of_codes_is_the_code_s():
    page = DOCS / "reference/logs.md"
    table = [[cell.strip("`") for cell in row] for row in rows(page, "Codes")]

    assert table == [[code, each.level, each.logger, each.text] for code, each in LINES.items()]
    assert first_column(page, "Fields") == list(FIELDS)


def test_every_symptom_is_something_that_the_code_says():
    page = DOCS / "troubleshooting.md"
    known = said()

    for symptom in re.findall(r"^## `(.+)`$", page.read_text(), re.MULTILINE):
        assert any(symptom in text for text in known), symptom


# Guarantees: each point where a process can die is there, with a test.


def test_every_point_between_two_steps_is_in_the_guarantees_with_its_test():
    named = {each for text in sources().values() for each in re.findall(r'audit\("([^"]+)"', text)}
    crashes = rows(DOCS / "explanation/guarantees.md", "When a process dies")

    assert sorted(row[0].strip("`") for row in crashes) == sorted(named)
    for point, *_, test in crashes:
        assert "::test_" in test, point


def test_every_promise_names_its_tests():
    promises = re.findall(
        r"^### \d\. .+?(?=^##|\Z)",
        (DOCS / "explanation/guarantees.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )

    assert len(promises) == 6
    assert all("::test_" in promise for promise in promises)


# Code: the tutorial and the how-to pages run; tests/docs/test_readme.py runs the README.


Started = subprocess.Popen[bytes] | Forked


class Terminals:
    """The reader's terminals: one for commands, one for the worker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.worker: Started | None = None
        self.log = directory.parent / "worker.log"
        self.seen = 0

    @property
    def environment(self) -> dict[str, str]:
        hidden = ("DJANGO_SETTINGS_MODULE", "EVENTBUS_", "COVERAGE_PROCESS_CONFIG")
        kept = {name: each for name, each in os.environ.items() if not name.startswith(hidden)}
        return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def type(self, block: str) -> None:
        """Run the commands of a console block, and compare what they say."""
        for part in re.split(r"^(?=\$ |\^C)", block, flags=re.MULTILINE):
            line, _, expected = part.partition("\n")
            if line == "^C":
                self.interrupt()
            elif "consume_events" in line:
                self.start(line)
                self.read(expected)
            elif line:
                assert re.fullmatch(pattern(expected), self.run(line)), line

    def run(self, line: str) -> str:
        output, errors = (self.directory.parent / f"{name}.log" for name in ("output", "errors"))
        ended = self.started(line, output, errors).wait(60)
        assert ended == 0, f"{line}\n{output.read_text()}{errors.read_text()}"
        return output.read_text().strip()

    def started(self, line: str, output: Path, errors: Path | None = None) -> Started:
        words = shlex.split(line.removeprefix("$ "))
        variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        python, *words = words[len(variables) :]
        assert python == "python", line
        environment = {**self.environment, **variables}
        return start_python(words, environment, output, errors=errors, directory=self.directory)

    def start(self, line: str) -> None:
        self.seen = 0
        self.worker = self.started(line, self.log)

    def read(self, expected: str) -> None:
        """Wait until the worker has said every line; two threads may say them in any order."""
        ends = [self.end_of(pattern(line)) for line in expected.splitlines()]
        self.seen = max(ends, default=self.seen)

    def end_of(self, line: str) -> int:
        found = eventually(
            lambda: re.compile(line).search(self.log.read_text(), self.seen),
            timeout=20,
            message=lambda: f"{line!r} is not in:\n{self.log.read_text()}",
        )
        return found.end()

    def interrupt(self) -> None:
        assert self.worker
        self.worker.send_signal(signal.SIGINT)
        assert self.worker.wait(20) == 0, self.log.read_text()

    def close(self) -> None:
        if self.worker and self.worker.poll() is None:
            self.worker.send_signal(signal.SIGKILL)
            self.worker.wait()


def pattern(expected: str) -> str:
    return re.escape(expected.strip()).replace("…", ".*?")


def write(directory: Path, block: str) -> Path:
    """Write a block into the file that its first line names; return the file."""
    line, _, code = block.partition("\n")
    name, added, _ = line.removeprefix("# ").partition(", at the end")
    path = directory / name
    path.write_text(path.read_text() + code if added else code)
    return path


def is_file(block: str) -> bool:
    return bool(re.match(r"# [\w/]+\.py(, at the end)?\n", block))


PRESS_SCRIPT = """
import re
from html import unescape
from django.test import Client

client = Client(SERVER_NAME="localhost")
assert client.login(username="ada", password="tutorial")

groups = client.get("/admin/eventbus/deadletter/").content.decode()
group = re.search(r'href="(/admin/eventbus/deadletter/groups/[^"]+)"', groups)[1]
shown = client.get(group).content.decode()
link = re.search(r'href="([^"]+)">Re-drive…</a>', shown)[1]
dry_run = client.get(unescape(link)).content.decode()
assert "1 would be re-driven" in dry_run
form = re.search(r'<form method="post" action="([^"]*)"(.*?)</form>', dry_run, re.DOTALL)
assert 'value="Start the re-drive"' in form[2]
inputs = dict(re.findall(r'<input [^>]*name="(\\w+)" value="([^"]*)"', form[2]))
inputs = {name: unescape(value) for name, value in inputs.items()}
assert client.post(unescape(form[1]), inputs).status_code == 302
"""


# A group of its own comes early: it takes long enough to be the last to end.
@pytest.mark.xdist_group("tutorial")
@pytest.mark.timeout(300)
def test_the_tutorial_runs_as_it_is_written(tmp_path: Path):
    terminals = Terminals(tmp_path / "project")
    terminals.directory.mkdir()
    steps = re.finditer(rf"{FENCE.pattern}|{PRESS}", TUTORIAL.read_text(), FENCE.flags)
    try:
        for step in steps:
            match step[1], step[2]:
                case "console", block:
                    terminals.type(block)
                case "text", block:
                    terminals.read(block)
                case "python", block:
                    write(terminals.directory, block)
                case None, None:
                    terminals.run(f"python manage.py shell -v 0 -c {shlex.quote(PRESS_SCRIPT)}")
    finally:
        terminals.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's project as it is at its end, before anything was ordered."""
    terminals = Terminals(tmp_path_factory.mktemp("tutorial") / "project")
    terminals.directory.mkdir()
    (start, *_, tables) = [
        block
        for block in blocks(TUTORIAL, "console")
        if "startproject" in block or "migrate" in block
    ]
    terminals.type(start)
    for block in blocks(TUTORIAL, "python"):
        write(terminals.directory, block)
    terminals.type(tables)
    return terminals.directory


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Terminals:
    """A copy of it, for one test."""
    return Terminals(Path(shutil.copytree(finished, tmp_path / "project")))


CHECK_SCRIPT = """
from django.core.management import call_command

call_command("check")
import page
"""


# One worker: the project takes longer to make than most pages to run.
@pytest.mark.xdist_group("how-to")
@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_the_code_of_every_how_to_runs(project: Terminals, page: Path):
    if "celery" in page.stem:
        pytest.importorskip("celery")
    code = blocks(page, "python")
    files = [write(project.directory, block) for block in code if is_file(block)]
    modules = [
        ".".join(file.relative_to(project.directory).with_suffix("").parts) for file in files
    ]
    imports = [f"import {module}\n" for module in dict.fromkeys(modules)]
    script = [*imports, *(block for block in code if not is_file(block))]
    (project.directory / "page.py").write_text("\n".join(script))

    project.run(f"python manage.py shell -v 0 -c {shlex.quote(CHECK_SCRIPT)}")

    if any(file.name == "tests.py" for file in files):
        project.run("python manage.py test --noinput")
    if any(file.name.startswith("test_") for file in files):
        options = shlex.join(["-q", "-W", "error", "--ds=shop.settings", *plugin_arguments()])
        project.run(f"python -m pytest {options}")
