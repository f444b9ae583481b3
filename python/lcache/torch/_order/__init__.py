"""What finds, copies, computes and pushes the orders that samplers will yield, so that the server knows them ahead. Private: programs import lcache.torch."""
