"""What whet shows in a browser: thin, as the command line is."""
