"""A tokenizer whose tokens are bytes, so that tests can write tokens as text."""

import pytest

from tests.tiny_models import save_tiny_tokenizer
from trtc.runtime.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tiny_tokenizer(directory)
    return Tokenizer.from_directory(directory)
