import pytest

import harness


def pytest_configure(config):
    # Frameworks warn of much that has no part in an order: short splits, more workers than cores, deprecated calls.
    config.addinivalue_line("filterwarnings", "ignore")


def pytest_report_header(config):
    return f"LIVE_SEED={harness.SEED}"


@pytest.fixture(autouse=True, scope="session")
def binary():
    """Without the binary every test fails at once, with what to do."""
    return harness.binary()


def pytest_terminal_summary(terminalreporter):
    """What was compared is part of the result, also when all is well."""
    terminalreporter.write_line(f"LIVE_SEED={harness.SEED}")
    for line in harness.DONE:
        terminalreporter.write_line("  " + line)
