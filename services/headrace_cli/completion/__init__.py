"""Completion at a Tab behind `headrace`: commands, options, words, and the names that a running one knows."""
