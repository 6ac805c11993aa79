"""Optional dependencies in tests: present, or a skip that says so; a failure where everything must be installed."""

import importlib
import os

import pytest


def extra(module_name):
    """The module; without it the test is skipped, or fails when NOSHADOW_REQUIRE_EXTRAS is set."""
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        reason = f"{module_name} is not installed ({error})"
    if os.environ.get("NOSHADOW_REQUIRE_EXTRAS"):
        pytest.fail(f"{reason}, and NOSHADOW_REQUIRE_EXTRAS asks for it")
    pytest.skip(reason)
