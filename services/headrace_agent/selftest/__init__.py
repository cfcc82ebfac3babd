"""The selftest of a host: whether jobs are started, limited and ended here. It needs no server."""
