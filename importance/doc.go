// Package importance decides what to train on and what to keep in memory by how much each sample matters: ImPACT, SHADE and
// SpiderCache as one pipeline with other parts.
//
// A [Scorer] makes values of what the trainer observed: loss ([Loss]), rank within a batch ([Rank]), or neighbours in embedding
// space ([Graph]). [Targets] make of values how often each sample is to be used in the next epoch. [Order] draws the next epoch
// from targets and a seed; it is the same order bit for bit on every machine. A [Policy] says what stays in memory: [NextUse]
// by the order itself, [HCache], [APP] and [Valued] as the papers do, [LRU] and [MinIO] to compare with. [Homophily] has [Nodes] beside any of them. [LCache] keeps
// the books of samples that may stand in for others, and [Law] says when one may; [Law.Serve] decides it for a whole epoch, of class with a [Rehearsal] of it.
// [Packing] and [Victim] decide what lies together on the disk. [Methods] is the only table of which method consists of what.
//
// The package is pure: indices and numbers in, indices and numbers out. It reads no bytes, starts no goroutines and looks at no
// clock. What it keeps for each sample lies outside Go's heap, so whoever makes a part closes it. A wrong observation changes
// what is read when, and never what a sample's bytes are; bad input is refused and counted in a [Report]. One goroutine may use
// a part at a time.
package importance
