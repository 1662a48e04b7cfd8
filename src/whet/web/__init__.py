"""The studio: correct a detector in the browser, and see the effect on all images at once. Live pages of videos."""
