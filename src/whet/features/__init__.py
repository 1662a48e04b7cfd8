"""From raw inputs to weak responses."""
