.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test chaos lint check matrix brokers matrix-brokers bench bench-admin messages screenshots build clean

find_python = for candidate in python3 python3.13 python3.12 python3.11; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$candidate; break; fi; done
PYTHON ?= $(shell $(find_python))
need_python = $(if $(PYTHON),,$(error django-eventbus needs Python 3.11 or newer, and there is none on PATH))
bin := .venv/bin
no_database := EVENTBUS_TEST_DATABASE_URL=sqlite:///:memory:

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; \
	do printf '%-21s %s\n' "$$name" "$$text"; done

demo: .venv/.demo ## Run the shop: handled, retried, parked, re-driven, forwarded, in order (BROKER=…, DEMO_ONCE=1)
	@$(bin)/python example_project/demo.py

test: .venv/.dev ## Run the tests on PostgreSQL and SQLite (ARGS="tests/outbox/test_relay.py -k claim")
	@$(bin)/python -m tests.support.suite $(measured) $(ARGS)

chaos: .venv/.dev ## Break servers, connections and nodes under load for longer (CHAOS_SECONDS=60 each)
	EVENTBUS_TEST_DATABASE=postgres EVENTBUS_TEST_CHAOS_SECONDS=$(or $(CHAOS_SECONDS),60) $(bin)/pytest -n0 \
	--timeout=900 tests/transports/rabbitmq/test_chaos.py tests/transports/rabbitmq/test_cluster.py \
	tests/end_to_end/test_ordering.py::test_order_is_kept_while_consumers_with_a_backlog_are_stopped_in_turn \
	tests/end_to_end/test_ordering.py::test_order_is_kept_while_consumers_of_rabbitmq_are_stopped_in_turn $(ARGS)

lint: .venv/.dev ## Run ruff, mypy, import-linter and makemigrations --check
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(no_database) $(bin)/mypy
	$(bin)/lint-imports
	$(no_database) $(bin)/python -m django makemigrations eventbus --check --dry-run --settings tests.settings

check: measured := --coverage
check: lint test build ## Run everything that CI runs, and measure the coverage

matrix: ## Run the tests on the corners of Python and Django (CORNERS="3.12 3.13")
	$(need_python)
	@$(PYTHON) tools/matrix.py $(CORNERS)

brokers: ## Fetch RabbitMQ 4.0 and 4.3 into .brokers, for EVENTBUS_TEST_RABBITMQ=4.3 (root on Debian)
	$(need_python)
	@$(PYTHON) tools/brokers.py $(BROKERS)

matrix-brokers: .venv/.dev ## Run the tests that need a broker on RabbitMQ 3.10, 4.0 and 4.3 (BROKERS="4.0 4.3")
	@$(bin)/python -m tests.support.broker_matrix $(BROKERS) $(ARGS)

bench: .venv/.dev ## Measure relay and consumer beside a raw client and their peers (ARGS="--rounds 3")
	@$(bin)/python -m benchmarks $(ARGS)

bench-admin: .venv/.dev ## Measure groups, lists, dry runs and a plan with a million dead letters (ARGS="--plan 0")
	@$(bin)/python -m benchmarks.dead_letters $(ARGS)

messages: .venv/.dev ## Collect what is to be translated, and compile what is (needs gettext)
	cd django_eventbus && ../$(bin)/python -m django makemessages --locale de --locale pt_BR --no-wrap --no-location \
	--no-obsolete && ../$(bin)/python -m django compilemessages

screenshots: .venv/.dev ## Take the pictures of the docs anew, with Chromium
	@$(bin)/python -m tools.screenshots

build: .venv/.dev ## Build sdist and wheel, and try the wheel in a fresh environment
	@$(bin)/python tools/package.py

clean: ## Remove the environments and everything that was built
	rm -rf .venv .matrix .beat .bench .brokers dist build .coverage .coverage.* htmlcov .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

.venv/.demo: pyproject.toml tools/environment.py
	$(need_python)
	@$(PYTHON) tools/environment.py .venv example
	@touch $@

.venv/.dev: pyproject.toml tools/environment.py
	$(need_python)
	@$(PYTHON) tools/environment.py .venv dev
	@touch $@ .venv/.demo
