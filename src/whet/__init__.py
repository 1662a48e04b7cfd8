"""whet: train a small, fast object detector and sharpen it online, exactly, with every example."""

__version__ = "0.1.0"
