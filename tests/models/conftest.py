"""The figures of the table in docs/models.md, which BLESS=1 writes."""
import pytest


@pytest.fixture(scope="session")
def figures():
    found = {}
    yield found
    from cases import write_table
    write_table(found)
