"""Why an operation waits, for people: the reasons as data, how they are found, and their English text."""
