"""The test project on a database server of its own, which may be stopped under its feet."""

from __future__ import annotations

import psycopg

from tests.end_to_end.oracle import FAST


class PrivateProject:
    """Runs commands on a private PostgreSQL and reads what they left there."""

    def __init__(self, manage, server, environment=FAST):
        self.manage = manage
        self.server = server
        self.environment = {**environment, "EVENTBUS_TEST_DATABASE_URL": server.url}
        migrated = self.start("migrate", "--run-syncdb", "--verbosity", "0")
        assert migrated.wait() == 0, migrated.output

    def start(self, *arguments, **environment):
        return self.manage(*arguments, env={**self.environment, **environment}, is_measured=True)

    def publish(self, number):
        """Publish so many events and return their ids."""
        script = (
            "from django_eventbus import publish_many\n"
            f"for each in publish_many([('count.up', {{}})] * {number}): print('id', each)"
        )
        published = self.start("shell", "-c", script)
        assert published.wait() == 0, published.output
        said = (line.split() for line in published.output.splitlines())
        return [words[1] for words in said if words[:1] == ["id"]]

    def count(self, table):
        return self._select(f"SELECT count(*) FROM {table}")[0][0]

    def effects(self):
        return [
            row[0] for row in self._select("SELECT event_id FROM shop_effect ORDER BY event_id")
        ]

    def _select(self, sql):
        with psycopg.connect(self.server.url) as connection:
            return connection.execute(sql).fetchall()
