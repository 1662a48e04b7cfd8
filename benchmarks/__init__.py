"""Measurements that support decisions (docs/decisions.md), each in one run. They print JSON and are no tests."""
