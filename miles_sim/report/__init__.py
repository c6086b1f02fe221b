"""What a run looks like: one case as plain text, a whole run on the console."""
