"""What `whet demo` shows."""
