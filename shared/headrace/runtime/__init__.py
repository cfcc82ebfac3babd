"""The ground that every service's shell stands on: settings, clock, terms, guarded handlers, start and stop."""
