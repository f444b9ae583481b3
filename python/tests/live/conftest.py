import pytest

import harness


def pytest_configure(config):
    # Frameworks warn of many things that do not affect an order: short splits, more workers than cores, deprecated calls.
    config.addinivalue_line("filterwarnings", "ignore")


def pytest_report_header(config):
    return f"LIVE_SEED={harness.SEED}"


@pytest.fixture(autouse=True, scope="session")
def binary():
    """Without the binary each test fails at once, and says what to do."""
    return harness.binary()


def pytest_terminal_summary(terminalreporter):
    """Prints the comparisons, even if all tests pass."""
    terminalreporter.write_line(f"LIVE_SEED={harness.SEED}")
    for line in harness.DONE:
        terminalreporter.write_line("  " + line)
