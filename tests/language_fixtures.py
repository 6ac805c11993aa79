"""The tiny base and its fine-tune that tests of language models share: import the fixtures, and take `base` and `model`."""

import pytest

from language_base_models import chains, fine_tuned, pretrained

TRAIN = chains(60, seed=2)


@pytest.fixture(scope="module", name="base")
def base_fixture():
    return pretrained()


@pytest.fixture(scope="module", name="model")
def model_fixture(base):
    return fine_tuned(base, TRAIN)


def entry(audit, source):
    """The evidence of an audit that came from one source."""
    return next(found for found in audit.evidence if found.source == source)
