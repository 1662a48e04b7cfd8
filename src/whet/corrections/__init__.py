"""Corrections: what was corrected, and one rule that decides by it."""
