"""The plain reference of heartbeats: what the allocator must decide on one heartbeat, written from the specification of allocation and
preemption.

It remembers nothing between heartbeats, looks at every operation for each start and at every allocation of the node, and sums usage anew.
It reads the facts that the allocator decides on (`View`, operations, allocations, pools with their share items) and uses none of the
allocator's functions that decide.

It covers what is carried out of a decision: graceful requests, plans of the YARN policies, more jobs for allocations and allocations that
are given back, regular starts with batches and priorities, reserved nodes, gangs that wait for their turn, both preemptive stages with
their victims under both `victim_rules`, gangs that are preempted as a whole, repairs of limits, overcommitted nodes, and excess
allocations for operations that can run on few nodes. It also covers heartbeats that the allocator answers without a decision.

It does not cover why free resources are left, what pools only observe, how YARN plans and searches for gangs come about, and which nodes
are reserved.

`comparing.every_heartbeat_compared` compares every heartbeat of each allocator in the process. The documented cases of `tests/conformance`
say what is right in single situations; they run on the allocator, with this comparison switched on.
"""
