// Package substitute decides which sample may be served instead of another one. [Rules] has the rules, and [Rules.Serve] applies them to a whole epoch,
// which gives a [Plan]. A [Keeper] knows the candidates: [LCache] and [Loading] for L-samples that are loaded together, and a [Rehearsal] of memory for
// samples of the same class. [Packing] and [Victim] decide which L-samples are stored together in packages on the disk. The package handles indices and
// sizes; it reads and writes no bytes.
package substitute
