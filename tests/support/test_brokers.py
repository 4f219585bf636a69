"""Brokers by version: where they come from, and that the tests run on the one that was chosen."""

from __future__ import annotations

import pytest

from tests.support import services
from tests.support.broker_matrix import table as printed
from tests.support.own_broker import ONE_WORKER
from tests.support.private_servers import RABBITMQ_VERSION, chosen_rabbitmq
from tests.support.probes import Unavailable, rabbitmq_answers
from tests.support.suite import Pass
from tests.support.tables import table
from tools import brokers

STANZAS = """\
# http://example.invalid/debian
Types: deb
URIs: https://example.invalid/mirror/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: https://example.invalid/security
Suites: bookworm-security
Components: main
"""
LINES = """\
deb https://example.invalid/rabbitmq bookworm main
deb [signed-by=/usr/share/keyrings/some.gpg] https://example.invalid/debian/ bookworm main contrib
# deb https://example.invalid/commented bookworm main
"""


@table(
    ("name", "text", "mirror"),
    [
        ("sources.list.d/debian.sources", STANZAS, "https://example.invalid/mirror/debian"),
        ("sources.list", LINES, "https://example.invalid/debian/"),
    ],
)
def test_the_mirror_is_that_of_the_apt_sources(name, text, mirror, tmp_path):
    directory = tmp_path / name.replace("/", "-")
    file = directory / name
    file.parent.mkdir(parents=True)
    file.write_text(text)

    assert brokers.mirror_of(directory, "bookworm") == mirror


def test_without_an_archive_of_debian_there_is_one_sentence(tmp_path):
    with pytest.raises(brokers.Unfetched, match="do not name an archive of Debian"):
        brokers.mirror_of(tmp_path, "bookworm")


def test_a_broker_that_cannot_be_fetched_is_named_in_one_sentence(capsys):
    assert brokers.main(["2.8"]) == 1
    assert capsys.readouterr().err == (
        "RabbitMQ 2.8 cannot be fetched: the versions are 4.0, 4.3.\n"
    )


def test_a_version_that_is_not_installed_is_not_replaced_by_another(monkeypatch):
    monkeypatch.setenv(RABBITMQ_VERSION, "2.8")
    with (
        pytest.raises(services.ServiceMissing, match=r"RabbitMQ 2\.8 is not installed"),
        services.private_rabbitmq(),
    ):
        pass


@pytest.mark.rabbitmq
def test_a_url_that_leads_to_another_version_is_refused(rabbitmq_url, monkeypatch):
    monkeypatch.setenv(services.RABBITMQ.variable, rabbitmq_url)
    monkeypatch.setenv(RABBITMQ_VERSION, "2.8")
    with pytest.raises(Unavailable, match=rf"{services.RABBITMQ.variable} leads to RabbitMQ \d"):
        services.locate(services.RABBITMQ)


@ONE_WORKER
@pytest.mark.rabbitmq
def test_the_shared_broker_and_private_nodes_have_the_chosen_version(rabbitmq_url, own_node):
    chosen = chosen_rabbitmq()
    versions = {rabbitmq_answers(url) for url in (rabbitmq_url, own_node.server.url)}

    assert all(f"{each}.".startswith(f"{chosen}." if chosen else "") for each in versions)
    if chosen:
        # erl_call and rabbitmqctl are those of the same version, too.
        assert own_node.server.evaluate("rabbit_misc:version()").strip('"') in versions


def test_the_table_names_versions_that_were_not_run():
    results = {"3.10": Pass(0, passed=5), "4.0": "no root", "4.3": Pass(1, failed=2, skipped=1)}

    assert list(printed(results)) == [
        "RabbitMQ     passed   failed  skipped",
        "3.10              5        0        0",
        "4.0       NOT RUN: no root",
        "4.3               0        2        1",
    ]
