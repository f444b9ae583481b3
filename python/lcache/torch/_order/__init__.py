"""Finds, copies, computes and pushes the orders that samplers will yield, so that the server knows them in advance. Private: programs import lcache.torch."""
