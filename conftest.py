"""Fixtures and options that the tests of the package (tests) and of the studies (studies/*/tests) share."""

pytest_plugins = ["tiers", "harness"]
