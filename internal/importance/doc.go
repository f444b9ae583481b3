// Package importance decides what to train on and what to keep in memory by how much each sample matters: ImPACT, SHADE and
// SpiderCache as one pipeline with other parts.
//
// A [score.Scorer] makes values of what the trainer observed: loss ([score.Loss]), rank within a batch ([score.Rank]), or neighbours in embedding
// space ([score.Graph]). [draw.Targets] make of values how often each sample is to be used in the next epoch. [draw.Order] draws the next epoch
// from targets and a seed; it is the same order bit for bit on every machine. A [policy.Policy] says what stays in memory: [policy.NextUse]
// by the order itself, [policy.HCache], [policy.APP] and [policy.Valued] as the papers do, [policy.LRU] and [policy.MinIO] to compare with. [policy.Homophily] has [policy.Nodes] beside any of them. [substitute.LCache] keeps
// the books of samples that may stand in for others, and [substitute.Law] says when one may; [substitute.Law.Serve] decides it for a whole epoch, of class with a [substitute.Rehearsal] of it.
// [substitute.Packing] and [substitute.Victim] decide what lies together on the disk. [Methods] is the only table of which method consists of what.
//
// These packages are pure: indices and numbers in, indices and numbers out. They read no bytes, start no goroutines and look at no
// clock. What they keep for each sample lies outside Go's heap, so whoever makes a part closes it. A wrong observation changes
// what is read when, and never what a sample's bytes are; bad input is refused and counted in a [score.Report]. One goroutine may use
// a part at a time.
package importance
