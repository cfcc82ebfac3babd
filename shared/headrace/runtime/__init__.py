"""The common parts of every service's shell: settings, clock, terms, guarded handlers, start and stop."""
