// Package importance combines the parts of ImPACT, SHADE and SpiderCache: they choose the samples to train on, and the samples to keep in memory, by how
// much each sample matters.
//
// A [score.Scorer] computes values from the trainer's observations: loss ([score.Loss]), rank within a batch ([score.Rank]), or neighbours in embedding
// space ([score.Graph]). [draw.Targets] computes from values how often the next epoch should use each sample. [draw.Order] draws the next epoch from
// targets and a seed, bit for bit the same on every machine.
//
// A [policy.Policy] decides which samples stay in memory: [policy.NextUse] by the order itself; [policy.HCache], [policy.APP] and [policy.Valued] as in
// the papers; [policy.LRU] and [policy.MinIO] for comparison. [policy.Homophily] adds [policy.Nodes] to any of them.
//
// [substitute.LCache] tracks samples that may replace others, and [substitute.Rules] has the rules.
// [substitute.Rules.Serve] decides for a whole epoch; for rule Class it uses a [substitute.Rehearsal] of the epoch.
// [substitute.Packing] and [substitute.Victim] decide which samples are stored together on the disk. [Methods] is the
// only table of the parts of each method.
//
// These packages are pure: indices and numbers in, indices and numbers out. They read no bytes, start no goroutines and use no clock. Their memory per
// sample is outside Go's heap, so the owner of a part must close it. A wrong observation can change when a sample is read, but never its bytes. Invalid
// input is refused and counted in a [score.Report]. Only one goroutine may use a part at a time.
package importance
