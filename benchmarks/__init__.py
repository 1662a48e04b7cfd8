"""Ratios against peers, measured side by side in one run. They print JSON and are not tests."""
