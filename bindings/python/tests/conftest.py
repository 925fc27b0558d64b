import pytest
import terracedb


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def db(path):
    with terracedb.open(path, memory="64MiB") as database:
        yield database
