"""The selftest of a host: it checks whether jobs can be started, limited and ended here. It needs no server."""
