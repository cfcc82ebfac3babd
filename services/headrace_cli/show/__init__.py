"""Answers as a person reads them: tables, trees, sentences."""
