"""What speaks to a server, finds one, and starts one: the protocol, connections, sessions, and the caches on disk. Private: programs import lcache."""
