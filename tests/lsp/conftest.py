import pytest

from client import Session


@pytest.fixture
def session():
    server = Session()
    yield server
    assert server.close() == 0
