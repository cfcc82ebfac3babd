"""The parts of a shell that all services share: settings, clocks, terms, request handling, start and stop."""
