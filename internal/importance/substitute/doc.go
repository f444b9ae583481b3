// Package substitute decides which sample may be served in place of another one. [Law] has the rules; [Law.Serve] decides for a
// whole epoch, as a [Plan]. Which samples could stand in is known to a [Keeper]: [LCache] and [Loading] for L-samples that are
// loaded together, and a [Rehearsal] of memory for samples of the same class. [Packing] and [Victim] decide which L-samples lie
// together in packages on the disk. The package has indices and sizes; it reads and writes no bytes.
package substitute
